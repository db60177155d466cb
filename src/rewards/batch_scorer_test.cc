// SPDX-License-Identifier: Apache-2.0
#include "rewards/batch_scorer.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/exit_code.h"

namespace oxbow::rewards {
namespace {

using ::testing::HasSubstr;

// A model whose device answers with an error.
class FailingModel final : public BatchScorer {
 public:
  explicit FailingModel(std::string error) : BatchScorer({.name = "taste"}), error_(error) {}

 private:
  absl::Status CheckImage(const Image8& /*image*/) const override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<double>> Values(
      absl::Span<const reward::Item* const> /*items*/) const override {
    TORCH_CHECK(false, error_);
  }

  const std::string error_;
};

absl::Status ErrorAfter(const std::string& error) {
  FailingModel model(error);
  const Image8 image{.width = 1, .height = 1, .channels = 1, .pixels = {7}};
  const reward::Item item{.prompt = "a", .frames = {&image, 1}};
  return model.ScoreBatch({&item, 1}).front().status();
}

// Promise: One bad worker ends no run.
TEST(BatchScorerTest, AnErrorOfTheDeviceIsAStatusThatEndsTheProcess) {
  const absl::Status lost = ErrorAfter("CUDA error: an illegal memory access was encountered");
  EXPECT_TRUE(IsDeviceError(lost));
  EXPECT_EQ(ExitCodeOf(lost), kExitDeviceLost) << lost;
  EXPECT_THAT(std::string(lost.message()), HasSubstr("illegal memory access"));
  EXPECT_TRUE(IsOutOfMemory(ErrorAfter("CUDA error: out of memory")));
  EXPECT_THROW((void)ErrorAfter("a wrong shape"), c10::Error);
}

}  // namespace
}  // namespace oxbow::rewards
