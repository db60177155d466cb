// SPDX-License-Identifier: Apache-2.0
#include "cli/simulate/simulation_costs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "config/run_config.h"
#include "io/metrics_file.h"
#include "simulate/simulation.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

// A run directory whose metrics follow from known costs.
class MeasureRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto config = config::LoadRunConfig(
        "", {"batch.groups=6", "batch.group_size=4", "services.groups_in_flight=3", "eval.every=4"},
        {});
    ASSERT_TRUE(config.ok()) << config.status();
    ASSERT_TRUE(config::WriteResolved(*config, directory_ / "config.resolved.yaml").ok());
  }

  void Write(int steps) {
    std::string text;
    for (int step = 1; step <= steps; ++step) {
      const double batches = 2 + step % 3;
      std::map<std::string, double> line{{"rollout/workers", 1},
                                         {"rollout/batches", batches},
                                         {"rollout/sample_s", 0.2 * batches + 0.5 * 6},
                                         {"rollout/reward_s_mean", 0.1},
                                         {"time/wait_s", 0.2 * batches + 3 + 0.1 + 0.25 - 0.06},
                                         {"time/update_s", 1.2},
                                         {"time/publish_s", 0.03},
                                         {"time/offer_s", 0.04},
                                         {"time/plan_s", 0.01},
                                         {"time/log_s", 0.01},
                                         {"time/step_s", 5}};
      if (step % 4 == 0) line["time/eval_s"] = 2;
      text += io::FormatMetricsLine(step, step, line);
    }
    std::ofstream(directory_ / "metrics.jsonl") << text;
  }

  const oxbow::testing::ScopedDirectory scratch_;
  const std::filesystem::path directory_ = scratch_.path();
};

TEST_F(MeasureRunTest, CostsAreReadBackFromTheMetricsTheyMade) {
  Write(40);
  const auto run = MeasureRun(directory_);
  ASSERT_TRUE(run.ok()) << run.status();
  const simulate::Costs& costs = run->model.costs;
  EXPECT_NEAR(costs.batch_s, 0.2, 1e-9);
  EXPECT_NEAR(costs.group_s, 0.5, 1e-9);
  EXPECT_NEAR(costs.spread, 0, 1e-9);
  EXPECT_NEAR(costs.reward_latency_s, 0.1, 1e-9);
  EXPECT_NEAR(costs.update_group_s, 0.2, 1e-9);
  EXPECT_NEAR(costs.apply_s, 0.25, 1e-9);
  EXPECT_NEAR(costs.plan_s, 0.05, 1e-9);
  EXPECT_NEAR(costs.eval_s, 2, 1e-9);
  EXPECT_EQ(run->model.groups_per_step, 6u);
  EXPECT_EQ(run->model.groups_in_flight, 3u);
  EXPECT_EQ(run->model.eval_every, 4u);
  EXPECT_TRUE(simulate::Simulate(run->model).ok());
}

TEST_F(MeasureRunTest, TooFewStepsAreNoMeasurement) {
  Write(7);
  EXPECT_EQ(MeasureRun(directory_).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(SimulationCostsTest, ACostThatIsNotFiniteIsRefused) {
  simulate::Costs costs;
  const double before = costs.group_s;
  for (const char* text : {"group_s=inf", "group_s=nan", "group_s=1e999"}) {
    EXPECT_EQ(SetCost(text, costs).code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(costs.group_s, before);
}

TEST(SimulationCostsTest, APresetHasTheServicesOfTheDefaults) {
  const auto defaults = config::LoadRunConfig("", {}, {});
  ASSERT_TRUE(defaults.ok()) << defaults.status();
  const v1::ServiceConfig& services = defaults->config.services();
  for (const simulate::Preset& preset : simulate::Presets()) {
    const auto model = ModelOfPreset(preset);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->weight_fanout, services.weight_fanout()) << preset.name;
    EXPECT_EQ(model->lease_s, services.lease_seconds()) << preset.name;
    EXPECT_EQ(model->stragglers.quantile, lease::kStragglerQuantile) << preset.name;
    EXPECT_EQ(model->stragglers.factor, services.speculation_factor()) << preset.name;
    EXPECT_EQ(model->costs.group_s, preset.model.costs.group_s) << preset.name;
  }
}

TEST(SimulationCostsTest, ARunIsSimulatedWithItsOwnRuleForStragglers) {
  const auto run = config::LoadRunConfig("", {"services.speculation_factor=3"}, {});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(RunModelOf(run->config).stragglers.factor, 3);
  const auto none = config::LoadRunConfig("", {"services.speculation_factor=0"}, {});
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(RunModelOf(none->config).stragglers.quantile, 0) << "no group is leased twice";
}

TEST(SimulationCostsTest, AFileOfCostsReadsBack) {
  simulate::Costs costs;
  double value = 1;
  for (const simulate::CostField& field : simulate::CostFields()) costs.*field.value = value++;
  simulate::Costs back;
  ASSERT_TRUE(ReadCosts(CostsJson(costs), back).ok());
  for (const simulate::CostField& field : simulate::CostFields()) {
    EXPECT_EQ(back.*field.value, costs.*field.value) << field.name;
  }
  EXPECT_EQ(simulate::CostFields().size() * sizeof(double), sizeof(simulate::Costs));
}

TEST(SimulationCostsTest, AnUnknownCostIsNamedWithItsNeighbour) {
  simulate::Costs costs;
  const absl::Status status = SetCost("grup_s=1", costs);
  EXPECT_NE(status.message().find("group_s"), std::string::npos) << status;
  EXPECT_FALSE(SetCost("group_s", costs).ok());
  EXPECT_FALSE(ReadCosts("{\"costs\": {\"group_s\": \"1\"}}", costs).ok());
  EXPECT_FALSE(ReadCosts("[]", costs).ok());
}

}  // namespace
}  // namespace oxbow::cli
