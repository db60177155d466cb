// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/leaf_buckets.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "core/parallel/ranks.h"

namespace oxbow::parallel {

struct LeafBuckets::Impl {
  void Cut(const std::vector<at::Tensor>& leaves, int64_t length_max);
  void OnGradient(size_t leaf);
  void TakeTurns(bool all);
  std::vector<size_t> Filled() const;
  absl::Status AgreeOnOrder(Ranks& ranks);

  Calls calls;
  std::vector<Bucket> buckets;
  std::vector<int64_t> begins;    // By leaf.
  std::vector<size_t> bucket_of;  // By leaf.

  std::vector<size_t> missing;     // By bucket: leaves whose gradient has not come since Arm.
  std::vector<bool> has_gradient;  // By leaf, since Arm.
  std::vector<size_t> completed;   // Buckets in the order of their last gradient, since Arm.
  std::vector<size_t> order;       // In which they have their turns; empty until agreed.
  size_t turns = 0;                // Since Arm.
  int64_t turns_in_backward = 0;
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

std::string Packed(const std::vector<size_t>& buckets) {
  std::vector<uint32_t> wire(buckets.begin(), buckets.end());
  return {reinterpret_cast<const char*>(wire.data()), wire.size() * sizeof(uint32_t)};
}

std::vector<size_t> Unpacked(const std::string& bytes) {
  std::vector<uint32_t> wire(bytes.size() / sizeof(uint32_t));
  std::memcpy(wire.data(), bytes.data(), wire.size() * sizeof(uint32_t));
  return {wire.begin(), wire.end()};
}

}  // namespace

void LeafBuckets::Impl::Cut(const std::vector<at::Tensor>& leaves, int64_t length_max) {
  int64_t end = 0;
  for (const at::Tensor& leaf : leaves) {
    if (buckets.empty() || buckets.back().length + leaf.numel() > length_max) {
      buckets.push_back({.begin = end, .first_leaf = begins.size()});
    }
    begins.push_back(end);
    bucket_of.push_back(buckets.size() - 1);
    buckets.back().length += leaf.numel();
    ++buckets.back().leaves;
    end += leaf.numel();
  }
}

void LeafBuckets::Impl::OnGradient(size_t leaf) {
  if (!armed) return;
  OXBOW_CHECK(!has_gradient[leaf]) << "a second gradient came after Arm, of leaf " << leaf;
  has_gradient[leaf] = true;
  if (calls.on_gradient) calls.on_gradient(leaf);
  const size_t bucket = bucket_of[leaf];
  if (--missing[bucket] > 0) return;
  completed.push_back(bucket);
  TakeTurns(/*all=*/false);
}

void LeafBuckets::Impl::TakeTurns(bool all) {
  while (turns < order.size() && (all || missing[order[turns]] == 0)) calls.on_turn(order[turns++]);
}

// The buckets that got gradients: the complete ones in their order, then the others.
std::vector<size_t> LeafBuckets::Impl::Filled() const {
  std::vector<size_t> filled = completed;
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    if (missing[bucket] > 0 && missing[bucket] < buckets[bucket].leaves) filled.push_back(bucket);
  }
  return filled;
}

// Takes the order of the first rank that has gradients. Buckets for which it got none come last.
absl::Status LeafBuckets::Impl::AgreeOnOrder(Ranks& ranks) {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<std::string> all, ranks.GatherBytes(Packed(Filled())));
  const auto first =
      std::find_if(all.begin(), all.end(), [](const std::string& bytes) { return !bytes.empty(); });
  if (first == all.end()) return absl::OkStatus();
  order = Unpacked(*first);
  std::vector<bool> listed(buckets.size(), false);
  for (const size_t bucket : order) listed.at(bucket) = true;
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    if (!listed[bucket]) order.push_back(bucket);
  }
  return absl::OkStatus();
}

LeafBuckets::LeafBuckets(const std::vector<at::Tensor>& leaves, int64_t length_max, Calls calls)
    : impl_(std::make_shared<Impl>()) {
  impl_->calls = std::move(calls);
  impl_->Cut(leaves, length_max);
  for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    OXBOW_CHECK(torch::autograd::impl::post_acc_grad_hooks(leaves[leaf]) == nullptr)
        << "leaf " << leaf << " has a hook";
    torch::autograd::impl::set_post_acc_grad_hooks(
        leaves[leaf], std::make_unique<Hook>([impl = impl_, leaf] { impl->OnGradient(leaf); }));
  }
}

// The hooks stay and do nothing any more.
LeafBuckets::~LeafBuckets() { impl_->armed = false; }

const std::vector<LeafBuckets::Bucket>& LeafBuckets::buckets() const { return impl_->buckets; }
int64_t LeafBuckets::begin_of(size_t leaf) const { return impl_->begins[leaf]; }
size_t LeafBuckets::bucket_of(size_t leaf) const { return impl_->bucket_of[leaf]; }
bool LeafBuckets::knows_order() const { return !impl_->order.empty(); }
int64_t LeafBuckets::turns_in_backward() const { return impl_->turns_in_backward; }

void LeafBuckets::Arm() {
  Impl& impl = *impl_;
  OXBOW_CHECK(!impl.armed) << "armed twice";
  impl.missing.clear();
  for (const Bucket& bucket : impl.buckets) impl.missing.push_back(bucket.leaves);
  impl.has_gradient.assign(impl.begins.size(), false);
  impl.completed.clear();
  impl.turns = 0;
  impl.armed = true;
}

void LeafBuckets::Drop() { impl_->armed = false; }

absl::Status LeafBuckets::Disarm(Ranks& ranks) {
  Impl& impl = *impl_;
  OXBOW_CHECK(impl.armed) << "not armed";
  impl.armed = false;
  impl.turns_in_backward = static_cast<int64_t>(impl.turns);
  if (impl.order.empty()) OXBOW_RETURN_IF_ERROR(impl.AgreeOnOrder(ranks));
  impl.TakeTurns(/*all=*/true);
  return absl::OkStatus();
}

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
