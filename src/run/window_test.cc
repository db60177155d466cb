// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run/sampling_spec.h"

namespace oxbow::run {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::SamplingConfig Config(v1::WindowKind kind) {
  v1::SamplingConfig config;
  config.set_steps(10);
  config.set_sde_first(1);
  config.set_sde_count(6);
  v1::WindowConfig& window = *config.mutable_window();
  window.set_kind(kind);
  window.set_size(2);
  window.set_stride(3);
  return config;
}

TEST(WindowTest, EverySettingArrives) {
  v1::SamplingConfig config = Config(v1::WINDOW_KIND_DECAY);
  config.mutable_window()->set_hold(12);
  const auto plan = WindowFromConfig(config);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->kind, flow::WindowKind::kDecay);
  EXPECT_EQ(plan->begin, 1);
  EXPECT_EQ(plan->end, 7);
  EXPECT_EQ(plan->size, 2);
  EXPECT_EQ(plan->stride, 3);
  EXPECT_EQ(plan->hold, 12);
}

TEST(WindowTest, HoldsLeftToTheKindAreThePublishedOnes) {
  EXPECT_EQ(WindowFromConfig(Config(v1::WINDOW_KIND_PROGRESSIVE))->hold, 25);
  EXPECT_EQ(WindowFromConfig(Config(v1::WINDOW_KIND_RANDOM))->hold, 1);
  EXPECT_EQ(WindowFromConfig(Config(v1::WINDOW_KIND_SUBSET))->hold, 1);
}

TEST(WindowTest, TheLastStepIsInNoWindow) {
  v1::SamplingConfig config = Config(v1::WINDOW_KIND_ALL);
  config.set_sde_count(UINT32_MAX);
  EXPECT_EQ(WindowFromConfig(config)->end, 9);
  config.set_sde_first(9);
  EXPECT_FALSE(WindowFromConfig(config).ok());
}

TEST(WindowTest, WhatLeavesNothingToTrainIsRefusedWithItsKey) {
  const auto message = [](const v1::SamplingConfig& config) {
    return std::string(WindowFromConfig(config).status().message());
  };
  EXPECT_THAT(message(Config(v1::WINDOW_KIND_UNSPECIFIED)), HasSubstr("window.kind"));
  EXPECT_THAT(message(Config(v1::WINDOW_KIND_FIXED)), HasSubstr("window.steps"));
  v1::SamplingConfig config = Config(v1::WINDOW_KIND_FIXED);
  config.mutable_window()->add_steps(6);
  ASSERT_TRUE(WindowFromConfig(config).ok());
  EXPECT_THAT(WindowFromConfig(config)->steps, ElementsAre(6));
  config.mutable_window()->add_steps(7);
  EXPECT_THAT(message(config), HasSubstr("1 to 6"));
  config = Config(v1::WINDOW_KIND_RANDOM);
  config.mutable_window()->set_size(7);
  EXPECT_THAT(message(config), HasSubstr("window.size must be 1 to 6: 7"));
  config.mutable_window()->set_size(0);
  EXPECT_THAT(message(config), HasSubstr("window.size"));
  config = Config(v1::WINDOW_KIND_PROGRESSIVE);
  config.mutable_window()->set_stride(0);
  EXPECT_THAT(message(config), HasSubstr("window.stride"));
}

}  // namespace
}  // namespace oxbow::run
