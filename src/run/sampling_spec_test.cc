#include "run/sampling_spec.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/flow/schedule.h"

namespace oxbow::run {
namespace {

TEST(SamplingSpecTest, EvaluationFollowsTheRunsGridWithItsOwnStepsAndSolver) {
  v1::RunConfig config;
  config.mutable_sampling()->set_steps(10);
  config.mutable_sampling()->set_shift(3);
  config.mutable_sampling()->set_schedule(v1::SCHEDULE_KIND_LINSPACE);
  config.mutable_sampling()->set_dynamics(v1::DYNAMICS_KIND_FLOW_SDE);
  config.mutable_sampling()->set_solver(v1::SOLVER_KIND_EULER);
  config.mutable_eval()->set_solver(v1::SOLVER_KIND_DPMPP_2M);
  config.mutable_eval()->set_steps(4);
  const auto spec = EvaluationSpecFromConfig(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->sigmas, flow::SigmaGrid(flow::ScheduleKind::kLinspace, 4, 3));
  EXPECT_EQ(spec->solver, flow::SolverKind::kDpmpp2m);
  EXPECT_EQ(std::count(spec->sde.begin(), spec->sde.end(), true), 0);
  config.mutable_eval()->clear_steps();
  EXPECT_EQ(EvaluationSpecFromConfig(config)->steps(), 10);
}

TEST(SamplingSpecTest, TheLastStepIsNeverStochastic) {
  v1::SamplingConfig config;
  config.set_steps(10);
  config.set_schedule(v1::SCHEDULE_KIND_DIFFUSERS_DEFAULT);
  config.set_shift(3);
  config.set_dynamics(v1::DYNAMICS_KIND_FLOW_SDE);
  config.set_eta(0.7);
  config.set_sde_first(2);
  config.set_sde_count(UINT32_MAX);
  config.set_guidance(1);
  config.set_solver(v1::SOLVER_KIND_DPMPP_2M);
  config.mutable_window()->set_kind(v1::WINDOW_KIND_ALL);
  const absl::StatusOr<flow::SamplingSpec> spec = SamplingSpecFromConfig(config);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->steps(), 10);
  EXPECT_EQ(spec->solver, flow::SolverKind::kDpmpp2m);
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(spec->sde[i], i >= 2 && i < 9) << i;
  config.set_shift(0);
  EXPECT_FALSE(SamplingSpecFromConfig(config).ok());
}

}  // namespace
}  // namespace oxbow::run
