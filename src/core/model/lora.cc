#include "core/model/lora.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "base/status_macros.h"
#include "core/model/lora_targets.h"

namespace oxbow::model {

absl::StatusOr<std::vector<std::string>> MatchLoraTargets(const LinearModules& modules,
                                                          const std::vector<std::string>& targets) {
  std::vector<std::string> names;
  for (const auto& [name, widths] : modules) names.push_back(name);
  return MatchTargets(names, targets);
}

at::Tensor MergedWeight(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b,
                        double scale) {
  const at::NoGradGuard no_grad;
  return at::addmm(weight.to(at::kFloat), b.to(at::kFloat), a.to(at::kFloat), 1, scale)
      .to(weight.scalar_type());
}

absl::StatusOr<NamedTensors> InitialLora(const LinearModules& modules, const LoraSpec& spec,
                                         uint64_t seed) {
  if (spec.rank < 1 || spec.rank > (1 << 16)) {
    return absl::InvalidArgumentError(absl::StrCat("LoRA rank out of range: ", spec.rank));
  }
  if (!(spec.alpha > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("LoRA alpha must be positive: ", spec.alpha));
  }
  OXBOW_ASSIGN_OR_RETURN(const auto names, MatchLoraTargets(modules, spec.targets));
  RandomStream random({.seed = seed, .step = kWeightInit});
  NamedTensors tensors;
  for (const std::string& name : names) {
    const auto [in, out] = modules.at(name);
    at::Tensor a = at::empty({spec.rank, in}, at::kFloat);
    float* values = a.mutable_data_ptr<float>();
    for (int64_t i = 0; i < a.numel(); ++i) {
      values[i] = static_cast<float>(random.NextNormal() / static_cast<double>(spec.rank));
    }
    tensors[name + ".lora_A.weight"] = a;
    tensors[name + ".lora_B.weight"] = at::zeros({out, spec.rank}, at::kFloat);
  }
  return tensors;
}

}  // namespace oxbow::model
