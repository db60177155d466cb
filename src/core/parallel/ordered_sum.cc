#include "core/parallel/ordered_sum.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"
#include "core/parallel/ranks.h"

namespace oxbow::parallel {

absl::Status SumInOrder(Ranks& ranks, const std::vector<int>& owners, const at::Tensor& mine,
                        at::Tensor& total, int64_t bytes_max) {
  const at::NoGradGuard no_grad;
  const int64_t size = ranks.size();
  std::vector<int64_t> held(static_cast<size_t>(size), 0);
  for (const int owner : owners) {
    OXBOW_CHECK(owner >= 0 && owner < size) << "owner " << owner << " of " << size << " ranks";
    ++held[static_cast<size_t>(owner)];
  }
  const int64_t own = held[static_cast<size_t>(ranks.rank())];
  OXBOW_CHECK(mine.dim() == 2 && mine.size(0) == own && mine.size(1) == total.numel())
      << "parts " << mine.sizes() << ", owned " << own << ", sum " << total.sizes();

  // Every rank sends as many rows as the rank with the most parts; rows past its own are not read.
  const int64_t rows = std::max<int64_t>(1, *std::max_element(held.begin(), held.end()));
  const int64_t column_bytes = (size + 1) * rows * static_cast<int64_t>(total.element_size());
  const int64_t piece = std::clamp<int64_t>(bytes_max / column_bytes, 1, total.numel());
  total.zero_();
  for (int64_t begin = 0; begin < total.numel(); begin += piece) {
    const int64_t length = std::min(piece, total.numel() - begin);
    at::Tensor sent = at::zeros({rows, length}, total.options());
    sent.narrow(0, 0, own).copy_(mine.narrow(1, begin, length));
    at::Tensor all = at::empty({size * rows, length}, total.options());
    OXBOW_RETURN_IF_ERROR(ranks.AllGather(sent, all));
    at::Tensor sum = total.narrow(0, begin, length);
    std::vector<int64_t> next(held.size(), 0);
    for (const int owner : owners) {
      sum.add_(all.select(0, owner * rows + next[static_cast<size_t>(owner)]++));
    }
  }
  return absl::OkStatus();
}

}  // namespace oxbow::parallel
