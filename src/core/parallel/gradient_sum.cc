// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/gradient_sum.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "core/parallel/ranks.h"

namespace oxbow::parallel {

GradientBuckets::GradientBuckets(Ranks& ranks, at::Tensor flat_grad,
                                 const std::vector<at::Tensor>& leaves, int64_t bucket_bytes)
    : ranks_(ranks),
      flat_grad_(std::move(flat_grad)),
      buckets_(leaves,
               std::max<int64_t>(1, bucket_bytes / static_cast<int64_t>(flat_grad_.element_size())),
               {.on_gradient = {}, .on_turn = [this](size_t place) {
                  const LeafBuckets::Bucket& bucket = buckets_.buckets()[place];
                  pending_.push_back(
                      ranks_.StartAllReduceSum(flat_grad_.narrow(0, bucket.begin, bucket.length)));
                }}) {
  int64_t end = 0;
  for (const at::Tensor& leaf : leaves) {
    const at::Tensor& grad = leaf.grad();
    OXBOW_CHECK(grad.defined() && grad.is_alias_of(flat_grad_) &&
                grad.storage_offset() == flat_grad_.storage_offset() + end)
        << "a leaf's gradient is not the next piece of the flat one at " << end;
    end += leaf.numel();
  }
  OXBOW_CHECK(end == flat_grad_.numel()) << end << " of " << flat_grad_.numel();
}

GradientBuckets::~GradientBuckets() = default;

void GradientBuckets::Arm() {
  pending_.clear();
  buckets_.Arm();
}

absl::Status GradientBuckets::Finish() {
  OXBOW_RETURN_IF_ERROR(buckets_.Disarm(ranks_));
  absl::Status status;
  for (const auto& pending : pending_) status.Update(pending->Wait());
  return status;
}

}  // namespace oxbow::parallel
