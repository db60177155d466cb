// SPDX-License-Identifier: Apache-2.0
// The sum of a gradient over ranks, in buckets that start while the backward pass still runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "core/parallel/leaf_buckets.h"

namespace oxbow::parallel {

class Pending;
class Ranks;

// The all-reduce of a gradient [N], in buckets that start while the backward pass still runs.
//
//   GradientBuckets buckets(ranks, flat_grad, leaves);
//   buckets.Arm();               // before the last backward() of an update
//   loss.backward();             // starts the sum of each bucket once its last gradient is there
//   status = buckets.Finish();   // starts the rest and waits: flat_grad is the sum over ranks
//
// A bucket is a contiguous piece of the flat gradient, so nothing is copied. The first armed
// backward pass overlaps nothing: it finds the order (leaf_buckets.h).
class GradientBuckets {
 public:
  // The .grad of every leaf is a view of `flat_grad` [N], and the leaves cover it in rising order.
  // `ranks` outlives this.
  GradientBuckets(Ranks& ranks, at::Tensor flat_grad, const std::vector<at::Tensor>& leaves,
                  int64_t bucket_bytes = int64_t{4} << 20);
  ~GradientBuckets();

  // The next backward pass is the last that adds to the gradient. Passes before it, unarmed, only
  // accumulate. Dies if a leaf gets a second gradient before Finish.
  void Arm();

  // Starts the sums that have not been started, also those of leaves without a gradient (a rank
  // without work calls only Arm and Finish), and waits for all. Errors as in ranks.h.
  absl::Status Finish();

  int64_t count() const { return static_cast<int64_t>(buckets_.buckets().size()); }
  int64_t started_in_backward() const { return buckets_.turns_in_backward(); }

 private:
  Ranks& ranks_;
  const at::Tensor flat_grad_;
  std::vector<std::unique_ptr<Pending>> pending_;
  LeafBuckets buckets_;
};

}  // namespace oxbow::parallel
