// SPDX-License-Identifier: Apache-2.0
#include "core/model/lora.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/nearest_name.h"
#include "base/philox.h"
#include "base/status_macros.h"

namespace oxbow::model {
namespace {

// The name or end of a name with the fewest edits; among equals one with as many
// parts as the target.
std::string NearestTarget(const std::string& target, const LinearModules& modules) {
  std::set<std::string> candidates;
  for (const auto& [module, widths] : modules) {
    for (size_t begin = 0; begin != std::string::npos;) {
      candidates.insert(module.substr(begin));
      const size_t dot = module.find('.', begin);
      begin = dot == std::string::npos ? dot : dot + 1;
    }
  }
  const auto parts = [](const std::string& name) {
    return std::count(name.begin(), name.end(), '.');
  };
  std::string nearest;
  int fewest = std::numeric_limits<int>::max();
  for (const std::string& candidate : candidates) {
    const int edits =
        2 * EditDistance(target, candidate) + (parts(candidate) == parts(target) ? 0 : 1);
    if (edits >= fewest) continue;
    fewest = edits;
    nearest = candidate;
  }
  return nearest;
}

// `own` and behind it what `wide` has more along `dimension`.
at::Tensor Widened(const at::Tensor& own, const at::Tensor& wide, int64_t dimension) {
  const bool smaller = own.dim() == 2 && own.size(1 - dimension) == wide.size(1 - dimension) &&
                       own.size(dimension) < wide.size(dimension);
  if (!smaller) return own;
  return at::cat({own.to(wide.device()),
                  wide.detach().slice(dimension, own.size(dimension), wide.size(dimension))},
                 dimension);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> MatchLoraTargets(const LinearModules& modules,
                                                          const std::vector<std::string>& targets) {
  std::set<std::string> matched;
  for (const std::string& target : targets) {
    bool any = false;
    for (const auto& [module, widths] : modules) {
      if (target.empty() || (module != target && !module.ends_with("." + target))) continue;
      matched.insert(module);
      any = true;
    }
    if (!any) {
      return absl::InvalidArgumentError(
          absl::StrCat("LoRA target matches no linear layer, did you mean `",
                       NearestTarget(target, modules), "`? (", target, ")"));
    }
  }
  if (matched.empty()) return absl::InvalidArgumentError("LoRA has no targets");
  return std::vector<std::string>(matched.begin(), matched.end());
}

at::Tensor MergedWeight(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b,
                        double scale) {
  const at::NoGradGuard no_grad;
  return at::addmm(weight.to(at::kFloat), b.to(at::kFloat), a.to(at::kFloat), 1, scale)
      .to(weight.scalar_type());
}

// |B A|^2 = sum of (B^T B) * (A A^T), elementwise: nothing as large as a weight is made.
double AdapterNorm(const LoraAdapter& adapter) {
  static constexpr std::string_view kDown = ".lora_A.weight";
  const at::NoGradGuard no_grad;
  at::Tensor sum;
  for (const auto& [name, a] : adapter.tensors) {
    if (!name.ends_with(kDown)) continue;
    const std::string module = name.substr(0, name.size() - kDown.size());
    const at::Tensor& b = adapter.tensors.at(module + ".lora_B.weight");
    const at::Tensor square = (at::mm(b.t(), b) * at::mm(a, a.t())).sum(at::kDouble);
    sum = sum.defined() ? sum + square : square;
  }
  // Rounding may leave a zero just below zero.
  return sum.defined() ? adapter.scale * std::sqrt(std::max(0.0, sum.item<double>())) : 0;
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

NamedTensors CompletedAdapter(const NamedTensors& fresh, const NamedTensors& adapter) {
  const at::NoGradGuard no_grad;
  NamedTensors whole = adapter;
  for (const auto& [name, wide] : fresh) {
    const auto own = adapter.find(name);
    whole[name] = own == adapter.end()
                      ? wide.detach().clone()
                      : Widened(own->second, wide, name.ends_with(".lora_A.weight") ? 0 : 1);
  }
  return whole;
}

}  // namespace oxbow::model
