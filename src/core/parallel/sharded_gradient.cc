// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/sharded_gradient.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "core/parallel/ranks.h"

namespace oxbow::parallel {

// A bucket whose elements are on their way to the ranks that keep them.
struct ShardedGradient::UnderWay {
  struct Part {
    int owner;
    int64_t begin;  // In the flat gradient.
    at::Tensor gradient;
    std::unique_ptr<Pending> pending;
  };
  std::vector<Part> parts;
};

namespace {

int64_t LengthOf(const std::vector<at::Tensor>& leaves) {
  return std::accumulate(
      leaves.begin(), leaves.end(), int64_t{0},
      [](int64_t length, const at::Tensor& leaf) { return length + leaf.numel(); });
}

}  // namespace

ShardedGradient::ShardedGradient(Ranks& ranks, const std::vector<at::Tensor>& leaves,
                                 int64_t stride, int64_t bucket_bytes)
    : ranks_(ranks),
      leaves_(leaves),
      stride_(stride),
      length_(LengthOf(leaves)),
      begin_(std::min(length_, stride * ranks.rank())),
      own_(at::zeros({std::min(stride, length_ - begin_)},
                     at::TensorOptions(ranks.device()).dtype(at::kFloat))),
      buckets_(leaves, std::max<int64_t>(1, bucket_bytes / static_cast<int64_t>(sizeof(float))),
               {.on_gradient = [this](size_t leaf) { TakeFrom(leaf); },
                .on_turn = [this](size_t bucket) { Send(bucket); }}) {
  OXBOW_CHECK(stride_ * ranks.size() >= length_) << stride_ << " of " << length_;
  for (const at::Tensor& leaf : leaves_) {
    OXBOW_CHECK(!leaf.grad().defined()) << "a leaf has a gradient that nobody would take";
  }
  filling_.resize(buckets_.buckets().size());
}

ShardedGradient::~ShardedGradient() = default;

void ShardedGradient::Arm() {
  status_ = absl::OkStatus();
  filled_.assign(leaves_.size(), false);
  std::fill(filling_.begin(), filling_.end(), at::Tensor());  // A pass was given up.
  under_way_.clear();
  buckets_.Arm();
}

void ShardedGradient::ArmOnHost(at::Tensor flat) {
  OXBOW_CHECK(flat.is_cpu() && flat.numel() == length_) << flat.sizes() << ", not " << length_;
  on_host_ = std::move(flat);
  buckets_.Arm();
}

void ShardedGradient::FinishOnHost() {
  buckets_.Drop();
  on_host_ = at::Tensor();
}

// The leaf's gradient goes where it is collected.
void ShardedGradient::TakeFrom(size_t leaf) {
  const at::NoGradGuard no_grad;
  at::Tensor gradient = std::exchange(leaves_[leaf].mutable_grad(), at::Tensor());
  if (!gradient.defined()) return;  // Its block ran and does not depend on it.
  gradient = gradient.view({-1});
  const int64_t begin = buckets_.begin_of(leaf);
  if (on_host_.defined()) {
    on_host_.narrow(0, begin, gradient.numel()).add_(gradient.to(at::kCPU));
    return;
  }
  const LeafBuckets::Bucket& bucket = buckets_.buckets()[buckets_.bucket_of(leaf)];
  at::Tensor& filling = filling_[buckets_.bucket_of(leaf)];
  if (!filling.defined()) {
    const at::Device device = buckets_.knows_order() ? ranks_.device() : at::Device(at::kCPU);
    filling = at::empty({bucket.length}, at::TensorOptions(device).dtype(at::kFloat));
  }
  filling.narrow(0, begin - bucket.begin, gradient.numel()).copy_(gradient);
  filled_[leaf] = true;
}

// Begins the sums of a bucket; one without a gradient adds zeros to those of other ranks.
void ShardedGradient::Send(size_t place) {
  if (on_host_.defined()) return;
  const at::NoGradGuard no_grad;
  const LeafBuckets::Bucket& bucket = buckets_.buckets()[place];
  at::Tensor gradient = std::exchange(filling_[place], at::Tensor());
  if (!gradient.defined()) gradient = at::empty({bucket.length}, own_.options());
  gradient = gradient.to(ranks_.device());
  for (size_t leaf = bucket.first_leaf; leaf < bucket.first_leaf + bucket.leaves; ++leaf) {
    if (filled_[leaf]) continue;
    gradient.narrow(0, buckets_.begin_of(leaf) - bucket.begin, leaves_[leaf].numel()).zero_();
  }
  UnderWay sent;
  const int64_t end = bucket.begin + bucket.length;
  for (int64_t from = bucket.begin; from < end;) {
    const auto owner = static_cast<int>(from / stride_);
    const int64_t to = std::min(end, stride_ * (owner + 1));
    const at::Tensor part = gradient.narrow(0, from - bucket.begin, to - from);
    sent.parts.push_back({owner, from, part, ranks_.StartReduceSum(part, owner)});
    from = to;
  }
  under_way_.push_back(std::move(sent));
  while (under_way_.size() > kUnderWay) FinishOldest();
}

void ShardedGradient::FinishOldest() {
  const at::NoGradGuard no_grad;
  for (const UnderWay::Part& part : under_way_.front().parts) {
    status_.Update(part.pending->Wait());
    if (!status_.ok() || part.owner != ranks_.rank()) continue;
    own_.narrow(0, part.begin - begin_, part.gradient.numel()).add_(part.gradient);
  }
  under_way_.pop_front();
}

absl::Status ShardedGradient::Finish() {
  OXBOW_RETURN_IF_ERROR(buckets_.Disarm(ranks_));
  while (!under_way_.empty()) FinishOldest();
  return status_;
}

}  // namespace oxbow::parallel
