// SPDX-License-Identifier: Apache-2.0
#include "core/flow/schedule.h"

#include <gmock/gmock.h>

#include "tests/golden/golden.h"

namespace oxbow::flow {
namespace {

using ::oxbow::testing::FlowGolden;
using ::oxbow::testing::Golden;
using ::oxbow::testing::kGoldenTolerance;
using ::oxbow::testing::UnipcGolden;
using ::testing::DoubleNear;
using ::testing::Pointwise;

TEST(ScheduleTest, GoldenGrids) {
  const std::vector<std::pair<std::string, ScheduleKind>> kinds = {
      {"diffusers_default", ScheduleKind::kDiffusersDefault},
      {"linspace", ScheduleKind::kLinspace},
      {"dance", ScheduleKind::kDance},
      {"unipc_flow", ScheduleKind::kUnipcFlow}};
  for (const auto& record : Golden()["grids"]) {
    for (const auto& [name, kind] : kinds) {
      const auto grid = SigmaGrid(kind, record["n"].get<int>(), record["shift"].get<double>());
      EXPECT_THAT(grid,
                  Pointwise(DoubleNear(kGoldenTolerance), record[name].get<std::vector<double>>()))
          << name << ", " << record["n"] << " steps";
    }
  }
}

TEST(ScheduleTest, GoldenDynamicShifts) {
  for (const auto& r : FlowGolden()["dynamic_shift"]) {
    EXPECT_NEAR(DynamicShift(r["tokens"], r["base_shift"], r["max_shift"], r["base_tokens"],
                             r["max_tokens"]),
                r["shift"], kGoldenTolerance);
  }
}

// The grid of diffusers from 0.37 on, which keeps its levels in float32.
// Promise: Noise levels equal those of diffusers. The grid of UniPC from 0.37 on equals diffusers'
// in float32 for 30 pairs of steps and shift, and so do the whole timesteps that the network is
// shown. A run without `whole_timesteps` keeps its schedule id. The levels of FLUX are those of
// FluxPipeline to 2e-7 at five sizes, dynamic shift included, and those of Flux2Pipeline at eight.
TEST(ScheduleTest, GoldenGridsOfUnipc) {
  ASSERT_GE(UnipcGolden()["grids"].size(), 20u);
  for (const auto& r : UnipcGolden()["grids"]) {
    const auto grid = SigmaGrid(ScheduleKind::kUnipcFlowWhole, r["steps"], r["shift"]);
    EXPECT_THAT(grid, Pointwise(DoubleNear(6e-8), r["sigmas"].get<std::vector<double>>()))
        << r["steps"] << " steps, shift " << r["shift"];
  }
}

// Values of the diffusers library for SD3.5-M and FLUX.1-dev at 512 pixels.
TEST(ScheduleTest, GridsOfPublishedPipelines) {
  EXPECT_THAT(SigmaGrid(ScheduleKind::kDiffusersDefault, 10, 3),
              Pointwise(DoubleNear(1e-6), {1., .960129, .913349, .857692, .790368, .707278, .602151,
                                           .464876, .278049, .008929, 0.}));
  EXPECT_THAT(SigmaGrid(ScheduleKind::kLinspace, 6, DynamicShift(1024)),
              Pointwise(DoubleNear(1e-6), {1., .903736, .789705, .652489, .484218, .273003, 0.}));
}

TEST(ScheduleTest, EveryGridFallsStrictlyToZero) {
  for (const auto kind :
       {ScheduleKind::kDiffusersDefault, ScheduleKind::kLinspace, ScheduleKind::kDance,
        ScheduleKind::kUnipcFlow, ScheduleKind::kUnipcFlowWhole}) {
    for (const int steps : {1, 2, 7, 40}) {
      const auto grid = SigmaGrid(kind, steps, 3);
      ASSERT_EQ(grid.size(), static_cast<size_t>(steps) + 1);
      EXPECT_EQ(grid.back(), 0);
      EXPECT_LE(grid.front(), 1);
      for (size_t i = 1; i < grid.size(); ++i) EXPECT_LT(grid[i], grid[i - 1]);
      const auto stretched = SigmaGrid(kind, steps, 3, .125);
      EXPECT_NEAR(stretched[grid.size() - 2], steps == 1 ? grid[0] : .125, 1e-15);
      EXPECT_EQ(stretched.back(), 0);
      for (size_t i = 1; i < grid.size(); ++i) EXPECT_LT(stretched[i], stretched[i - 1]);
    }
  }
}

}  // namespace
}  // namespace oxbow::flow
