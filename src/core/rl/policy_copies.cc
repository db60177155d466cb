// SPDX-License-Identifier: Apache-2.0
#include "core/rl/policy_copies.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "base/check.h"
#include "core/model/policy.h"

namespace oxbow::rl {
namespace {

constexpr char kOld[] = "old_policy";
constexpr char kReference[] = "reference";

// 0 .. 1 over `length` steps.
double Progress(double step, uint64_t length) {
  return length == 0 ? 1 : std::clamp(step / static_cast<double>(length), 0., 1.);
}

}  // namespace

double DecayAt(const DecayOptions& o, uint64_t step) {
  const auto s = static_cast<double>(step);
  const auto warmup = static_cast<double>(o.warmup);
  switch (o.shape) {
    case DecayShape::kConstant:
      return o.decay;
    case DecayShape::kPower:
      return std::min(o.decay, (1 + s) / (warmup + s));
    case DecayShape::kLinear:
      return o.decay * Progress(s, o.warmup);
    case DecayShape::kPiecewiseLinear:
      if (step < o.flat) return 0;
      return std::min((s - static_cast<double>(o.flat)) * o.rate, o.decay);
  }
  OXBOW_CHECK(false) << "decay shape " << static_cast<int>(o.shape);
}

PolicyCopies::PolicyCopies(const CopyOptions& options, model::Policy& policy)
    : options_(options), policy_(policy) {}

double PolicyCopies::Follow(uint64_t done) {
  const at::NoGradGuard no_grad;
  const at::Tensor& weights = policy_.parameters().flat();
  double decay = 0;
  if (policy_.has_old()) {
    decay = DecayAt(options_.old, done);
    at::Tensor& old = policy_.old_parameters().flat();
    // Not a weighted sum with weight 0: a copy has the same bits.
    if (decay == 0) {
      old.copy_(weights);
    } else {
      old.mul_(decay).add_(weights, 1 - decay);
    }
  }
  const auto every = static_cast<uint64_t>(options_.reference_every);
  if (done == options_.reference_at || (every > 0 && done % every == 0)) {
    policy_.reference_parameters().flat().copy_(weights);
  }
  return decay;
}

std::map<std::string, at::Tensor> PolicyCopies::Moving() const {
  std::map<std::string, at::Tensor> flats;
  if (policy_.has_old()) flats[kOld] = policy_.old_parameters().flat().detach();
  if (options_.moves_reference()) {
    flats[kReference] = policy_.reference_parameters().flat().detach();
  }
  return flats;
}

std::map<std::string, at::Tensor> PolicyCopies::State() const {
  std::map<std::string, at::Tensor> state = Moving();
  for (auto& [name, flat] : state) {
    flat = flat.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  }
  return state;
}

std::map<std::string, parallel::HostCopy> PolicyCopies::CopyToHost() const {
  std::map<std::string, parallel::HostCopy> copies;
  for (const auto& [name, flat] : Moving()) copies.emplace(name, flat);
  return copies;
}

void PolicyCopies::Load(const std::map<std::string, at::Tensor>& state) {
  const at::NoGradGuard no_grad;
  if (policy_.has_old()) policy_.old_parameters().flat().copy_(state.at(kOld));
  if (options_.moves_reference()) {
    policy_.reference_parameters().flat().copy_(state.at(kReference));
  }
}

}  // namespace oxbow::rl
