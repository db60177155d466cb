// SPDX-License-Identifier: Apache-2.0
#include "core/rl/gspo.h"

#include <ATen/ATen.h>

namespace oxbow::rl {

// One sample after another: the bits of its mean do not depend on the samples beside it.
at::Tensor PathMeans(const at::Tensor& rows, const std::vector<RowRef>& refs) {
  std::vector<at::Tensor> means;
  for (size_t begin = 0, end = 0; begin < refs.size(); begin = end) {
    while (end < refs.size() && refs[end].trajectory == refs[begin].trajectory) ++end;
    const auto count = static_cast<int64_t>(end - begin);
    means.push_back(rows.narrow(0, static_cast<int64_t>(begin), count).mean().expand({count}));
  }
  return at::cat(means);
}

}  // namespace oxbow::rl
