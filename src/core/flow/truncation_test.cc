#include "core/flow/truncation.h"

#include <gmock/gmock.h>

namespace oxbow::flow {
namespace {

SamplingSpec FlowSde(ScheduleKind kind, int steps, double shift, double eta, int first, int count) {
  SamplingSpec spec{.sigmas = SigmaGrid(kind, steps, shift), .eta = eta};
  spec.sde.assign(static_cast<size_t>(steps), false);
  for (int i = first; i < first + count; ++i) spec.sde[static_cast<size_t>(i)] = true;
  return spec;
}

// The per-step constants of SD3.5-M with eta .7; the last step is deterministic.
TEST(TruncationTest, SensitivityOfTheSd35Grid) {
  const auto table = SensitivityTable(FlowSde(ScheduleKind::kDiffusersDefault, 10, 3, .7, 0, 9));
  EXPECT_THAT(table,
              ::testing::Pointwise(::testing::DoubleNear(6e-5), {.0016, .0031, .0084, .0177, .0349,
                                                                 .0688, .1435, .3401, 1.1052, 0.}));
}

TEST(TruncationTest, KeepsTheStepsUnderTheLimit) {
  EXPECT_EQ(KeptSteps(FlowSde(ScheduleKind::kDiffusersDefault, 10, 3, .7, 0, 9), .3), 7);
  EXPECT_EQ(KeptSteps(FlowSde(ScheduleKind::kLinspace, 6, DynamicShift(1024), .9, 0, 5), .3), 5);
}

TEST(TruncationTest, AWindowEndsTheKeptPart) {
  EXPECT_EQ(KeptSteps(FlowSde(ScheduleKind::kDiffusersDefault, 10, 3, .7, 1, 3), .3), 4);
  EXPECT_EQ(KeptSteps(FlowSde(ScheduleKind::kDiffusersDefault, 10, 3, .7, 0, 0), .3), 0);
  EXPECT_EQ(KeptSteps(FlowSde(ScheduleKind::kDiffusersDefault, 10, 3, .7, 8, 1), .3), 0);
}

}  // namespace
}  // namespace oxbow::flow
