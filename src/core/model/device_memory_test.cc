// SPDX-License-Identifier: Apache-2.0
#include "core/model/device_memory.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/exit_code.h"
#include "core/model/velocity_model.h"
#include "gtest/gtest.h"

namespace oxbow::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

[[noreturn]] void RunOutOfMemory() {
  C10_THROW_ERROR(OutOfMemoryError, "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 ...");
}

// v = x + tokens, for at most `room` rows at a time.
class SmallDevice final : public VelocityModel {
 public:
  SmallDevice(int64_t room, std::vector<int64_t>& asked) : room_(room), asked_(asked) {}

 private:
  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const Conditioning& conditioning) const override {
    asked_.push_back(x.size(0));
    if (x.size(0) > room_) RunOutOfMemory();
    return x + conditioning.at(kPromptTokens) * sigma.view({-1, 1});
  }
  const int64_t room_;
  std::vector<int64_t>& asked_;
};

struct Batch {
  at::Tensor x = at::arange(22, at::kFloat).view({11, 2});
  at::Tensor sigma = at::linspace(0.1, 0.9, 11);
  Conditioning conditioning = {{kPromptTokens, at::arange(11, at::kFloat).view({11, 1}).sin()}};
  at::Tensor Through(const VelocityModel& model) const {
    return model.Velocity(x, sigma, conditioning);
  }
};

TEST(BoundedTest, GoesOnWithHalfTheRowsAndStaysThere) {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> asked;
  const auto model = MakeBounded(std::make_unique<SmallDevice>(3, asked), 0);
  const Batch batch;
  std::vector<int64_t> whole;
  const at::Tensor expected = batch.Through(SmallDevice(11, whole));
  EXPECT_TRUE(at::equal(batch.Through(*model), expected));
  EXPECT_THAT(asked, ElementsAre(11, 5, 2, 2, 2, 2, 2, 1));
  asked.clear();
  EXPECT_TRUE(at::equal(batch.Through(*model), expected));
  EXPECT_THAT(asked, ElementsAre(2, 2, 2, 2, 2, 1));
  EXPECT_EQ(model->rows().forward, 22) << "rows are counted once";
}

TEST(BoundedTest, CutsAConditioningThatAllRowsShare) {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> asked;
  const auto model = MakeBounded(std::make_unique<SmallDevice>(4, asked), 4);
  Batch batch;
  batch.conditioning = NarrowRows(batch.conditioning, 3, 1);
  std::vector<int64_t> whole;
  EXPECT_TRUE(at::equal(batch.Through(*model), batch.Through(SmallDevice(11, whole))));
  EXPECT_THAT(asked, ElementsAre(4, 4, 3));
}

TEST(BoundedTest, ARowThatDoesNotFitAndABatchWithGradientsAreErrors) {
  std::vector<int64_t> asked;
  const auto model = MakeBounded(std::make_unique<SmallDevice>(0, asked), 0);
  EXPECT_THROW(Batch().Through(*model), c10::OutOfMemoryError);
  EXPECT_THAT(asked, ElementsAre(11)) << "gradients go through whole batches";
  const at::NoGradGuard no_grad;
  EXPECT_THROW(Batch().Through(*model), c10::OutOfMemoryError);
  EXPECT_EQ(asked.back(), 1);
}

TEST(DeviceMemoryTest, ItsErrorIsOneLineWithTheRemedyAndAnExitCodeOfItsOwn) {
  const absl::Status status =
      WithMemoryFor([]() -> absl::Status { RunOutOfMemory(); }, "lower batch.rows_per_pass");
  EXPECT_EQ(ExitCodeOf(status), kExitOutOfMemory);
  EXPECT_TRUE(IsFinal(kExitOutOfMemory));
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(HasSubstr("out of memory: "), HasSubstr("allocate 2.00 GiB"),
                               HasSubstr(": lower batch.rows_per_pass"), Not(HasSubstr("\n"))));
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("the disk is full")), kExitFull);
  EXPECT_TRUE(WithMemoryFor([] { return absl::OkStatus(); }, "").ok());
}

// Promise: One bad worker ends no run.
TEST(DeviceMemoryTest, AnErrorOfCudaThatIsNoWantOfMemoryIsALostDevice) {
  const auto code_of = [](const std::string& text) {
    const absl::Status status =
        WithMemoryFor([&]() -> absl::Status { TORCH_CHECK(false, text); }, "less");
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
    return ExitCodeOf(status);
  };
  EXPECT_EQ(code_of("CUDA error: an illegal memory access was encountered\nCUDA kernel errors "
                    "might be asynchronously reported"),
            kExitDeviceLost);
  EXPECT_EQ(code_of("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), kExitDeviceLost);
  EXPECT_EQ(code_of("CUDA error: out of memory"), kExitOutOfMemory);
  // Another process would hear the same.
  EXPECT_EQ(code_of("CUDA error: no kernel image is available for execution on the device\n"
                    "CUDA kernel errors might be asynchronously reported"),
            kExitUsage);
  EXPECT_EQ(code_of("CUDA error: the provided PTX was compiled with an unsupported toolchain."),
            kExitUsage);
  EXPECT_ANY_THROW(code_of("mat1 and mat2 shapes cannot be multiplied"));
  EXPECT_FALSE(IsFinal(kExitDeviceLost));
}

// Promise: A full GPU is one line.
TEST(DeviceMemoryTest, AFullHostIsTheSameErrorAndOtherErrorsStayTheirs) {
  const auto status_of = [](const std::function<void()>& fail) {
    return WithMemoryFor(
        [&]() -> absl::Status {
          fail();
          return absl::OkStatus();
        },
        "lower batch.rows_per_pass");
  };
  // 2^50 bytes: no machine has them, and torch says so itself. Other tests set allocators of their
  // own.
  const absl::Status full =
      status_of([] { (void)c10::GetDefaultCPUAllocator()->allocate(size_t{1} << 50); });
  EXPECT_EQ(ExitCodeOf(full), kExitOutOfMemory) << full;
  EXPECT_THAT(std::string(full.message()),
              ::testing::AllOf(HasSubstr("host memory: tried to allocate 1048576.00 GiB"),
                               HasSubstr("offload_weights"), Not(HasSubstr("\n"))));
  // As c10 says it of cudaHostAlloc.
  const absl::Status pinned = status_of([] { TORCH_CHECK(false, "CUDA error: out of memory"); });
  EXPECT_EQ(ExitCodeOf(pinned), kExitOutOfMemory) << pinned;
  EXPECT_EQ(ExitCodeOf(status_of([] { throw std::bad_alloc(); })), kExitOutOfMemory);
  EXPECT_THROW((void)status_of([] { TORCH_CHECK(false, "a wrong shape"); }), c10::Error);
  EXPECT_THROW((void)status_of([] { throw std::runtime_error("x"); }), std::runtime_error);
}

}  // namespace
}  // namespace oxbow::model
