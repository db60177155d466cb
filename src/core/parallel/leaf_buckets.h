// SPDX-License-Identifier: Apache-2.0
// The leaves of a backward pass in buckets, the order in which ranks begin to sum them, and the sum
// of a whole gradient in that order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"

namespace oxbow::parallel {

class Pending;
class Ranks;

// A bucket is a contiguous piece of the flat gradient [N] that leaves cover one after another. It
// is complete when the last of its leaves has its gradient.
//
// Collectives must begin in one order on all ranks. It is the order in which the buckets of some
// rank were complete in the first pass that had gradients at all; a bucket that is complete before
// its turn waits. So nothing begins before that pass has ended.
class LeafBuckets {
 public:
  struct Bucket {
    int64_t begin = 0;   // In the flat gradient.
    int64_t length = 0;  // In elements.
    size_t first_leaf = 0;
    size_t leaves = 0;
  };
  // Functions that are called during an armed backward pass, in a thread of autograd's.
  struct Calls {
    // The leaf's .grad has come, or is undefined because a node that takes the leaf has no gradient
    // for it.
    std::function<void(size_t leaf)> on_gradient;
    std::function<void(size_t bucket)> on_turn;  // The bucket is complete, and the next in order.
  };

  // Buckets have at most `length_max` elements, or one leaf. Uses the post-accumulate hook of each
  // leaf; a tensor has only one.
  LeafBuckets(const std::vector<at::Tensor>& leaves, int64_t length_max, Calls calls);
  ~LeafBuckets();
  LeafBuckets(const LeafBuckets&) = delete;
  LeafBuckets& operator=(const LeafBuckets&) = delete;

  const std::vector<Bucket>& buckets() const;
  int64_t begin_of(size_t leaf) const;  // In the flat gradient.
  size_t bucket_of(size_t leaf) const;

  // The next backward pass counts. Dies if a leaf gets a second gradient before Disarm.
  void Arm();

  // After it: agrees on the order, where there is none yet, and gives every bucket its turn whose
  // turn did not come, complete or not. Without an order, because no rank ever had a gradient, no
  // bucket has a turn. Called on all ranks. Errors as in ranks.h.
  absl::Status Disarm(Ranks& ranks);

  // Ends an armed pass whose gradients were all taken: no bucket has a turn.
  void Drop();

  bool knows_order() const;

  // How many buckets had their turn during the latest backward pass.
  int64_t turns_in_backward() const;

 private:
  struct Impl;
  const std::shared_ptr<Impl> impl_;  // Shared with the hooks, which may live longer.
};

// The all-reduce of a gradient [N], in buckets that start while the backward pass still runs.
//
//   GradientBuckets buckets(ranks, flat_grad, leaves);
//   buckets.Arm();               // before the last backward() of an update
//   loss.backward();             // starts the sum of each bucket once its last gradient is there
//   status = buckets.Finish();   // starts the rest and waits: flat_grad is the sum over ranks
//
// A bucket is a contiguous piece of the flat gradient, so nothing is copied. The first armed
// backward pass overlaps nothing: it finds the order.
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
