// SPDX-License-Identifier: Apache-2.0
// One rank: every collective is the identity.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "core/parallel/ranks.h"

namespace oxbow::parallel {
namespace {

class Done final : public Pending {
 public:
  explicit Done(absl::Status status) : status_(std::move(status)) {}
  absl::Status Wait() override { return status_; }

 private:
  const absl::Status status_;
};

class SingleRank final : public Ranks {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  absl::Status AllReduceSum(at::Tensor&) override { return State(); }
  absl::Status AllReduceMax(at::Tensor&) override { return State(); }
  std::unique_ptr<Pending> StartAllReduceSum(const at::Tensor&) override {
    return std::make_unique<Done>(State());
  }
  std::unique_ptr<Pending> StartReduceSum(const at::Tensor&, int root) override {
    OXBOW_CHECK(root == 0) << "root " << root;
    return std::make_unique<Done>(State());
  }
  absl::Status ReduceScatterSum(const at::Tensor& input, at::Tensor& output) override {
    return Copy(input, output);
  }
  absl::Status AllGather(const at::Tensor& input, at::Tensor& output) override {
    return Copy(input, output);
  }
  absl::Status Broadcast(at::Tensor&, int root) override {
    OXBOW_CHECK(root == 0) << "root " << root;
    return State();
  }
  std::unique_ptr<Pending> StartBroadcast(const at::Tensor&, int root) override {
    OXBOW_CHECK(root == 0) << "root " << root;
    return std::make_unique<Done>(State());
  }
  absl::Status Barrier() override { return State(); }

  absl::StatusOr<std::vector<std::string>> GatherBytes(std::string_view mine) override {
    OXBOW_RETURN_IF_ERROR(State());
    return std::vector<std::string>{std::string(mine)};
  }
  absl::Status BroadcastBytes(std::string&, int root) override {
    OXBOW_CHECK(root == 0) << "root " << root;
    return State();
  }

  void Abort(const absl::Status& why) override {
    const absl::MutexLock lock(&mutex_);
    if (state_.ok()) state_ = why;
  }

 private:
  absl::Status State() const {
    const absl::MutexLock lock(&mutex_);
    return state_;
  }

  absl::Status Copy(const at::Tensor& input, at::Tensor& output) const {
    OXBOW_CHECK(input.sizes() == output.sizes() && input.dtype() == output.dtype())
        << input.sizes() << " into " << output.sizes();
    OXBOW_RETURN_IF_ERROR(State());
    const at::NoGradGuard no_grad;
    output.copy_(input);
    return absl::OkStatus();
  }

  mutable absl::Mutex mutex_;
  absl::Status state_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Ranks> MakeSingleRank() { return std::make_unique<SingleRank>(); }

}  // namespace oxbow::parallel
