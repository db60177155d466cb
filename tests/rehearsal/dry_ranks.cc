// SPDX-License-Identifier: Apache-2.0
#include "tests/rehearsal/dry_ranks.h"

#include <ATen/ATen.h>

#include "base/check.h"
#include "tests/rehearsal/device_log.h"

namespace oxbow::rehearsal {
namespace {

class Done final : public parallel::Pending {
 public:
  absl::Status Wait() override { return absl::OkStatus(); }
};

class DryRanks final : public parallel::Ranks {
 public:
  explicit DryRanks(int size) : size_(size) {}

  int rank() const override { return 0; }
  int size() const override { return size_; }
  at::Device device() const override { return {at::kCUDA, 0}; }

  absl::Status AllReduceSum(at::Tensor& tensor) override { return Count("sum", tensor, tensor); }
  absl::Status AllReduceMax(at::Tensor& tensor) override { return Count("max", tensor, tensor); }
  std::unique_ptr<parallel::Pending> StartAllReduceSum(const at::Tensor& tensor) override {
    (void)Count("sum", tensor, tensor);
    return std::make_unique<Done>();
  }
  std::unique_ptr<parallel::Pending> StartReduceSum(const at::Tensor& tensor,
                                                    int /*root*/) override {
    (void)Count("reduce", tensor, tensor);
    return std::make_unique<Done>();
  }
  absl::Status ReduceScatterSum(const at::Tensor& input, at::Tensor& output) override {
    OXBOW_CHECK(input.numel() == size_ * output.numel()) << input.sizes() << output.sizes();
    return Count("reduce_scatter", input, output);
  }
  absl::Status AllGather(const at::Tensor& input, at::Tensor& output) override {
    OXBOW_CHECK(output.numel() == size_ * input.numel()) << input.sizes() << output.sizes();
    return Count("all_gather", input, output);
  }
  absl::Status Broadcast(at::Tensor& tensor, int /*root*/) override {
    return Count("broadcast", tensor, tensor);
  }
  std::unique_ptr<parallel::Pending> StartBroadcast(const at::Tensor& tensor,
                                                    int /*root*/) override {
    (void)Count("broadcast", tensor, tensor);
    return std::make_unique<Done>();
  }
  absl::Status Barrier() override { return absl::OkStatus(); }

  absl::StatusOr<std::vector<std::string>> GatherBytes(std::string_view mine) override {
    return std::vector<std::string>(static_cast<size_t>(size_), std::string(mine));
  }
  absl::Status BroadcastBytes(std::string& /*bytes*/, int /*root*/) override {
    return absl::OkStatus();
  }
  void Abort(const absl::Status& /*why*/) override {}

 private:
  static absl::Status Count(const char* name, const at::Tensor& input, const at::Tensor& output) {
    if (input.is_cuda()) {
      TheLog().Kernel(input.device().index(), name,
                      static_cast<double>(input.nbytes() + output.nbytes()), 0);
    }
    return absl::OkStatus();
  }

  const int size_;
};

}  // namespace

std::unique_ptr<parallel::Ranks> MakeDryRanks(int size) { return std::make_unique<DryRanks>(size); }

}  // namespace oxbow::rehearsal
