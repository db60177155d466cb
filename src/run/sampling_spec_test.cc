// SPDX-License-Identifier: Apache-2.0
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

v1::SamplingConfig CompressedConfig() {
  v1::SamplingConfig config;
  config.set_steps(10);
  config.set_schedule(v1::SCHEDULE_KIND_DIFFUSERS_DEFAULT);
  config.set_shift(3);
  config.set_dynamics(v1::DYNAMICS_KIND_FLOW_SDE);
  config.set_sde_count(4);
  config.set_solver(v1::SOLVER_KIND_EULER);
  config.mutable_window()->set_kind(v1::WINDOW_KIND_ALL);
  config.mutable_compression()->set_share(.4);
  config.mutable_compression()->set_carry(true);
  return config;
}

TEST(SamplingSpecTest, RolloutsAreCompressedAndEvaluationsAreNot) {
  v1::RunConfig config;
  *config.mutable_sampling() = CompressedConfig();
  config.mutable_eval()->set_solver(v1::SOLVER_KIND_EULER);
  const auto rollout = SamplingSpecFromConfig(config.sampling());
  ASSERT_TRUE(rollout.ok()) << rollout.status();
  EXPECT_EQ(rollout->compression.share, .4);
  EXPECT_EQ(rollout->compression.shift, 3);
  EXPECT_TRUE(rollout->compression.carry);
  EXPECT_EQ(rollout->steps(), 10) << "transitions are counted as ever";
  const auto evaluation = EvaluationSpecFromConfig(config);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_FALSE(evaluation->compression.on());
}

TEST(SamplingSpecTest, AStretchedGridIsNotCompressed) {
  v1::SamplingConfig config = CompressedConfig();
  config.set_shift_terminal(.1);
  const auto spec = SamplingSpecFromConfig(config);
  EXPECT_NE(spec.status().message().find("stretched grid"), std::string::npos) << spec.status();
  config.mutable_compression()->set_share(1);
  EXPECT_TRUE(SamplingSpecFromConfig(config).ok());
  config.set_shift_terminal(0);
  config.mutable_compression()->set_share(0);
  EXPECT_FALSE(SamplingSpecFromConfig(config).ok());
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

TEST(SamplingSpecTest, RolloutsOfTreesSplitAndEvaluationsDoNot) {
  v1::RunConfig config;
  v1::SamplingConfig& sampling = *config.mutable_sampling();
  sampling.set_steps(10);
  sampling.set_schedule(v1::SCHEDULE_KIND_DIFFUSERS_DEFAULT);
  sampling.set_shift(3);
  sampling.set_dynamics(v1::DYNAMICS_KIND_FLOW_SDE);
  sampling.set_eta(0.7);
  sampling.set_sde_count(9);
  sampling.set_guidance(1);
  sampling.set_solver(v1::SOLVER_KIND_EULER);
  sampling.mutable_window()->set_kind(v1::WINDOW_KIND_ALL);
  sampling.set_split_width(3);
  sampling.add_split_steps(0);
  sampling.add_split_steps(4);
  const absl::StatusOr<flow::SamplingSpec> spec = SamplingSpecFromConfig(sampling);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->splits.steps, (std::vector<int>{0, 4}));
  EXPECT_EQ(spec->splits.Leaves(), 9u);
  config.mutable_eval()->set_solver(v1::SOLVER_KIND_EULER);
  EXPECT_TRUE(EvaluationSpecFromConfig(config)->splits.empty());
}

// Promise: Noise levels equal those of diffusers.
TEST(SamplingSpecTest, WhatAConfigLeavesToTheModelIsTheSchedulers) {
  v1::SamplingConfig config;
  config.set_schedule(v1::SCHEDULE_KIND_DIFFUSERS_DEFAULT);
  ResolveSampling({.shift = 3}, config);
  EXPECT_EQ(config.shift(), 3);
  EXPECT_EQ(config.shift_terminal(), 0);
  EXPECT_EQ(config.schedule(), v1::SCHEDULE_KIND_DIFFUSERS_DEFAULT);
  EXPECT_FALSE(config.whole_timesteps());
  const io::PipelineSchedule unipc{.grid = flow::ScheduleKind::kUnipcFlowWhole,
                                   .shift = 5,
                                   .shift_terminal = .1,
                                   .whole_timesteps = true};
  ResolveSampling(unipc, config);
  EXPECT_EQ(config.shift(), 3) << "its own";
  EXPECT_EQ(config.shift_terminal(), 0) << "it comes with the shift";
  EXPECT_EQ(config.schedule(), v1::SCHEDULE_KIND_UNIPC_FLOW_WHOLE);
  EXPECT_TRUE(config.whole_timesteps());
  config.set_schedule(v1::SCHEDULE_KIND_UNIPC_FLOW);
  config.set_whole_timesteps(false);
  ResolveSampling(unipc, config);
  EXPECT_EQ(config.schedule(), v1::SCHEDULE_KIND_UNIPC_FLOW);
  EXPECT_FALSE(config.whole_timesteps());
}

TEST(SamplingSpecTest, TheLevelAtTheEndComesWithTheModelsShift) {
  const io::PipelineSchedule own{.grid = flow::ScheduleKind::kLinspace, .shift_terminal = .1};
  v1::SamplingConfig config;
  config.set_schedule(v1::SCHEDULE_KIND_DIFFUSERS_DEFAULT);
  config.set_dynamics(v1::DYNAMICS_KIND_ODE);
  config.set_solver(v1::SOLVER_KIND_EULER);
  config.set_steps(4);
  v1::SamplingConfig stretched = config, chosen = config;
  ResolveSampling(own, stretched);
  EXPECT_EQ(stretched.schedule(), v1::SCHEDULE_KIND_LINSPACE);
  EXPECT_EQ(SamplingSpecFromConfig(stretched)->sigmas,
            flow::SigmaGrid(flow::ScheduleKind::kLinspace, 4, 1, .1));
  chosen.set_shift_terminal(.2);
  ResolveSampling(own, chosen);
  EXPECT_EQ(chosen.shift_terminal(), .2);
  chosen.set_shift_terminal(1);
  EXPECT_FALSE(SamplingSpecFromConfig(chosen).ok());
}

TEST(SamplingSpecTest, WholeTimestepsLeaveTheGridAsItIs) {
  v1::SamplingConfig config;
  config.set_steps(4);
  config.set_schedule(v1::SCHEDULE_KIND_UNIPC_FLOW_WHOLE);
  config.set_shift(3);
  config.set_dynamics(v1::DYNAMICS_KIND_ODE);
  config.set_guidance(1);
  config.set_solver(v1::SOLVER_KIND_EULER);
  const auto exact = SamplingSpecFromConfig(config);
  config.set_whole_timesteps(true);
  const auto whole = SamplingSpecFromConfig(config);
  ASSERT_TRUE(exact.ok() && whole.ok()) << exact.status() << whole.status();
  EXPECT_EQ(whole->sigmas, flow::SigmaGrid(flow::ScheduleKind::kUnipcFlowWhole, 4, 3));
  EXPECT_EQ(whole->sigmas, exact->sigmas);
  EXPECT_TRUE(whole->whole_timesteps);
  EXPECT_FALSE(exact->whole_timesteps);
}

}  // namespace
}  // namespace oxbow::run
