// SPDX-License-Identifier: Apache-2.0
#include "tests/rehearsal/floating_point_operations.h"

#include <set>

namespace oxbow::rehearsal {

double FlopOf(std::string_view name, const std::vector<at::Tensor>& reads,
              const std::vector<at::Tensor>& writes) {
  std::string_view base = name.substr(6, name.find('.') - 6);  // Without "aten::".
  if (base.ends_with('_')) base.remove_suffix(1);              // In place.
  static const std::set<std::string_view> kProducts = {"mm", "addmm", "bmm", "baddbmm",
                                                       "mv", "addmv", "dot", "_addmm_activation"};
  if (!kProducts.contains(base) || writes.empty() || reads.size() < 2) return 0;
  const bool adds =
      base == "addmm" || base == "baddbmm" || base == "addmv" || base == "_addmm_activation";
  const at::Tensor& left = reads.at(adds ? 1 : 0);  // [..., K]
  return 2.0 * static_cast<double>(writes[0].numel()) * static_cast<double>(left.size(-1));
}

double AttentionFlop(const at::Tensor& q, const at::Tensor& k) {
  return 4.0 * static_cast<double>(q.numel()) * static_cast<double>(k.size(2));
}

double ConvolutionFlop(const at::Tensor& result, const at::Tensor& weight) {
  return 2.0 * static_cast<double>(result.numel()) *
         static_cast<double>(weight.numel() / weight.size(0));
}

}  // namespace oxbow::rehearsal
