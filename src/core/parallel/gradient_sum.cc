// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/gradient_sum.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/status_macros.h"
#include "core/parallel/ranks.h"

namespace oxbow::parallel {
namespace {

struct Bucket {
  at::Tensor piece;     // Its part of the flat gradient.
  int64_t leaves = 0;   // Leaves in it.
  int64_t missing = 0;  // Leaves whose gradient has not come.
};

}  // namespace

struct GradientBuckets::Impl {
  Impl(Ranks& r, at::Tensor flat) : ranks(r), flat_grad(std::move(flat)) {}

  void Cut(const std::vector<at::Tensor>& leaves, int64_t bucket_bytes);
  void OnGradient(size_t leaf);
  void StartReady();
  absl::Status AgreeOnOrder();

  Ranks& ranks;
  const at::Tensor flat_grad;
  std::vector<Bucket> buckets;
  std::vector<size_t> bucket_of;   // By leaf.
  std::vector<bool> has_gradient;  // By leaf, since Arm.
  std::vector<size_t> completed;   // Buckets in the order of their last gradient, since Arm.
  std::vector<size_t> order;       // Order of starting; empty until agreed.
  std::vector<std::unique_ptr<Pending>> pending;  // As started, so order[i] for each i.
  int64_t overlapped = 0;
  bool armed = false;
};

namespace {

class Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit Hook(std::function<void()> call) : call_(std::move(call)) {}
  void operator()(const at::Tensor&) override { call_(); }

 private:
  const std::function<void()> call_;
};

}  // namespace

void GradientBuckets::Impl::Cut(const std::vector<at::Tensor>& leaves, int64_t bucket_bytes) {
  const int64_t length_max =
      std::max<int64_t>(1, bucket_bytes / static_cast<int64_t>(flat_grad.element_size()));
  int64_t begin = 0;
  int64_t end = 0;
  Bucket bucket;
  const auto close = [&] {
    if (bucket.leaves == 0) return;
    bucket.piece = flat_grad.narrow(0, begin, end - begin);
    buckets.push_back(std::exchange(bucket, {}));
    begin = end;
  };
  for (const at::Tensor& leaf : leaves) {
    const at::Tensor& grad = leaf.grad();
    OXBOW_CHECK(grad.defined() && grad.is_alias_of(flat_grad) &&
                grad.storage_offset() == flat_grad.storage_offset() + end)
        << "a leaf's gradient is not the next piece of the flat one at " << end;
    if (end - begin + leaf.numel() > length_max) close();
    bucket_of.push_back(buckets.size());
    end += leaf.numel();
    ++bucket.leaves;
  }
  close();
  OXBOW_CHECK(end == flat_grad.numel()) << end << " of " << flat_grad.numel();
}

void GradientBuckets::Impl::OnGradient(size_t leaf) {
  if (!armed) return;
  OXBOW_CHECK(!has_gradient[leaf]) << "a second gradient came after Arm, of leaf " << leaf;
  has_gradient[leaf] = true;
  const size_t bucket = bucket_of[leaf];
  if (--buckets[bucket].missing > 0) return;
  completed.push_back(bucket);
  StartReady();
}

void GradientBuckets::Impl::StartReady() {
  while (pending.size() < order.size() && buckets[order[pending.size()]].missing == 0) {
    pending.push_back(ranks.StartAllReduceSum(buckets[order[pending.size()]].piece));
  }
}

// Rank 0 sends the order that it saw; buckets for which it got no gradient come last.
absl::Status GradientBuckets::Impl::AgreeOnOrder() {
  std::vector<bool> listed(buckets.size(), false);
  std::vector<uint32_t> wire;
  for (const size_t bucket : completed) {
    listed[bucket] = true;
    wire.push_back(static_cast<uint32_t>(bucket));
  }
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    if (!listed[bucket]) wire.push_back(static_cast<uint32_t>(bucket));
  }
  std::string bytes(reinterpret_cast<const char*>(wire.data()), wire.size() * sizeof(uint32_t));
  OXBOW_RETURN_IF_ERROR(ranks.BroadcastBytes(bytes, /*root=*/0));
  OXBOW_CHECK(bytes.size() == wire.size() * sizeof(uint32_t)) << "ranks have other buckets";
  std::memcpy(wire.data(), bytes.data(), bytes.size());
  order.assign(wire.begin(), wire.end());
  return absl::OkStatus();
}

GradientBuckets::GradientBuckets(Ranks& ranks, at::Tensor flat_grad,
                                 const std::vector<at::Tensor>& leaves, int64_t bucket_bytes)
    : impl_(std::make_shared<Impl>(ranks, std::move(flat_grad))) {
  impl_->Cut(leaves, bucket_bytes);
  for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    OXBOW_CHECK(torch::autograd::impl::post_acc_grad_hooks(leaves[leaf]) == nullptr)
        << "leaf " << leaf << " has a hook";
    torch::autograd::impl::set_post_acc_grad_hooks(
        leaves[leaf], std::make_unique<Hook>([impl = impl_, leaf] { impl->OnGradient(leaf); }));
  }
}

// The hooks stay and do nothing any more.
GradientBuckets::~GradientBuckets() { impl_->armed = false; }

void GradientBuckets::Arm() {
  Impl& impl = *impl_;
  OXBOW_CHECK(!impl.armed) << "armed twice";
  for (Bucket& bucket : impl.buckets) bucket.missing = bucket.leaves;
  impl.has_gradient.assign(impl.bucket_of.size(), false);
  impl.completed.clear();
  impl.pending.clear();
  impl.overlapped = 0;
  impl.armed = true;
}

absl::Status GradientBuckets::Finish() {
  Impl& impl = *impl_;
  OXBOW_CHECK(impl.armed) << "Finish without Arm";
  impl.armed = false;
  impl.overlapped = static_cast<int64_t>(impl.pending.size());
  if (impl.order.empty()) OXBOW_RETURN_IF_ERROR(impl.AgreeOnOrder());
  for (Bucket& bucket : impl.buckets) bucket.missing = 0;
  impl.StartReady();
  absl::Status status;
  for (const auto& pending : impl.pending) status.Update(pending->Wait());
  return status;
}

int64_t GradientBuckets::count() const { return static_cast<int64_t>(impl_->buckets.size()); }
int64_t GradientBuckets::started_in_backward() const { return impl_->overlapped; }

}  // namespace oxbow::parallel
