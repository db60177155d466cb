// SPDX-License-Identifier: Apache-2.0
#include "core/flow/dpmpp.h"

#include <cmath>

#include "base/check.h"

namespace oxbow::flow {
namespace {

double Lambda(double sigma) { return std::log1p(-sigma) - std::log(sigma); }

}  // namespace

at::Tensor DpmppFirst(const at::Tensor& x, const at::Tensor& m0, double sigma, double sigma_next) {
  OXBOW_CHECK(sigma > sigma_next && sigma_next >= 0) << "step " << sigma << " to " << sigma_next;
  const double ratio = sigma_next / sigma;
  return x * ratio + m0 * (1 - ratio);
}

at::Tensor DpmppSecond(DpmppKind kind, const at::Tensor& x, const at::Tensor& m0,
                       const at::Tensor& m1, double sigma_prev, double sigma, double sigma_next) {
  const at::Tensor first = DpmppFirst(x, m0, sigma, sigma_next);
  if (kind == DpmppKind::kFirst || sigma_prev >= 1 || sigma_next <= 0) return first;
  const double h = Lambda(sigma_next) - Lambda(sigma);
  const double r0 = (Lambda(sigma) - Lambda(sigma_prev)) / h;
  const double decay = std::expm1(-h);
  const double weight = kind == DpmppKind::kMidpoint ? -0.5 * decay : decay / h + 1;
  return first + (m0 - m1) * ((1 - sigma_next) * weight / r0);
}

at::Tensor DpmppSolver::Step(const at::Tensor& x, const at::Tensor& velocity, double sigma,
                             double sigma_next, bool last) {
  const at::Tensor data = x - velocity * sigma;
  const at::Tensor next = last || !data_.defined()
                              ? DpmppFirst(x, data, sigma, sigma_next)
                              : DpmppSecond(kind_, x, data, data_, sigma_, sigma, sigma_next);
  data_ = data;
  sigma_ = sigma;
  return next;
}

void DpmppSolver::Note(const at::Tensor& x, const at::Tensor& velocity, double sigma) {
  data_ = x - velocity * sigma;
  sigma_ = sigma;
}

}  // namespace oxbow::flow
