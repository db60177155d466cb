#include "core/rl/awm.h"

#include <ATen/ATen.h>

#include <cmath>

#include "base/check.h"
#include "core/rl/row_math.h"

namespace oxbow::rl {
namespace {

constexpr double kEpsilon = 1e-10;

}  // namespace

at::Tensor AwmLogProb(const AwmOptions& options, const at::Tensor& x0, const at::Tensor& noise,
                      const at::Tensor& t, const at::Tensor& v) {
  const at::Tensor target = noise.to(at::kDouble) - x0.to(at::kDouble);
  const at::Tensor l = ElementMean((v.to(at::kDouble) - target).square());
  const at::Tensor time = t.to(l.device(), at::kDouble);
  switch (options.weighting) {
    case AwmWeighting::kUniform:
      return -l;
    case AwmWeighting::kLinear:
      return -(time * l);
    case AwmWeighting::kSquare:
      return -(time * time * l);
    case AwmWeighting::kHuber:
      return -(time * ((l + kEpsilon).sqrt() - std::sqrt(kEpsilon)));
    case AwmWeighting::kGeneralHuber:
      return -(time / options.power *
               ((l + kEpsilon).pow(options.power) - std::pow(kEpsilon, options.power)));
  }
  OXBOW_CHECK(false) << "awm weighting " << static_cast<int>(options.weighting);
}

}  // namespace oxbow::rl
