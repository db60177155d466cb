// SPDX-License-Identifier: Apache-2.0
// The sum over ranks of a gradient that no rank ever holds whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "core/parallel/leaf_buckets.h"

namespace oxbow::parallel {

class Pending;
class Ranks;

// Rank r keeps elements [r stride, (r + 1) stride) of the sum over ranks and passes of the flat
// gradient [N], as ZeRO-2 does (arXiv:1910.02054, section 5.2).
//
//   ShardedGradient gradient(ranks, leaves, stride);
//   gradient.Zero();
//   for each backward pass, as many on every rank:
//     gradient.Arm();
//     loss.backward();               // a rank without work leaves this out
//     status = gradient.Finish();
//   gradient.own()                   // this rank's elements of the sum
//
// A gradient leaves its leaf as soon as backward() has made it, for its bucket. A bucket that is
// complete goes to the ranks that keep its elements, and its memory is free again. So a rank has
// room for its piece and for the few buckets under way, and pays with one exchange of the whole
// gradient in every pass. The first pass keeps its buckets in host memory: their order is not
// known before it has ended (leaf_buckets.h).
class ShardedGradient {
 public:
  // The leaves [in all N] cover the flat gradient one after another, and have no .grad. `ranks`
  // outlives this.
  ShardedGradient(Ranks& ranks, const std::vector<at::Tensor>& leaves, int64_t stride,
                  int64_t bucket_bytes = kBucketBytes);
  ~ShardedGradient();

  void Zero() { own_.zero_(); }
  void Arm();
  // Dies if a leaf gets a second gradient before it. Errors as in ranks.h.
  absl::Status Finish();

  // For sums whose order matters: the next backward pass adds the gradient to `flat` [N] in host
  // memory instead, and no rank is asked. Ended by FinishOnHost.
  void ArmOnHost(at::Tensor flat);
  void FinishOnHost();

  const at::Tensor& own() const { return own_; }  // A view of what Finish adds to.
  int64_t begin() const { return begin_; }        // Where it begins in the flat gradient.

  // Buckets that are sent at a time. Others fill meanwhile: neighbours by name are not always
  // neighbours in the graph. A larger leaf has a larger bucket.
  static constexpr size_t kUnderWay = 3;
  static constexpr int64_t kBucketBytes = int64_t{64} << 20;
  // About what buckets take on the device where the largest leaf has `largest` bytes.
  static constexpr uint64_t BytesOnTheWay(uint64_t largest) {
    return (kUnderWay + 1) * std::max(uint64_t{kBucketBytes}, largest);
  }

 private:
  struct UnderWay;

  void TakeFrom(size_t leaf);
  void Send(size_t bucket);
  void FinishOldest();

  Ranks& ranks_;
  const std::vector<at::Tensor> leaves_;
  const int64_t stride_;
  const int64_t length_;  // N
  const int64_t begin_;
  at::Tensor own_;
  std::vector<at::Tensor> filling_;  // By bucket; undefined: no gradient has come.
  std::vector<bool> filled_;         // By leaf: its gradient is in its bucket.
  std::deque<UnderWay> under_way_;
  absl::Status status_;  // The first error of this pass.
  at::Tensor on_host_;   // Undefined but between ArmOnHost and FinishOnHost.
  LeafBuckets buckets_;
};

}  // namespace oxbow::parallel
