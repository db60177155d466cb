#include "core/rl/rate_schedule.h"

#include <gtest/gtest.h>

namespace oxbow::rl {
namespace {

TEST(RateScheduleTest, FallsFromOneToItsShareAndStays) {
  for (const RateShape shape : {RateShape::kLinear, RateShape::kCosine}) {
    const RateSchedule schedule{.shape = shape, .steps = 40, .to = .2};
    EXPECT_EQ(RateFactorAt(schedule, 0), 1);
    EXPECT_NEAR(RateFactorAt(schedule, 20), .6, 1e-15) << "both are half way down half way";
    EXPECT_EQ(RateFactorAt(schedule, 40), .2);
    EXPECT_EQ(RateFactorAt(schedule, 4000), .2);
    for (uint64_t step = 0; step < 40; ++step) {
      EXPECT_GT(RateFactorAt(schedule, step), RateFactorAt(schedule, step + 1));
    }
  }
  EXPECT_LT(RateFactorAt({.shape = RateShape::kLinear, .steps = 40, .to = 0}, 10),
            RateFactorAt({.shape = RateShape::kCosine, .steps = 40, .to = 0}, 10));
  EXPECT_EQ(RateFactorAt({.shape = RateShape::kConstant, .steps = 40}, 30), 1);
}

}  // namespace
}  // namespace oxbow::rl
