// SPDX-License-Identifier: Apache-2.0
// The recipe of every method, over real services: held-out reward rises.
//
// Each margin is half of the smallest rise over three seeds (0, 1, 2) with these settings.
#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

struct Case {
  const char* recipe;
  int steps;
  double rise;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.recipe; }

class MethodsTest : public ::testing::TestWithParam<Case> {};

// Promise: The FLUX demo learns its task. The recipe `digits-flux` trains the embedded FLUX from
// its exported graph through all services: the held-out reward rises by .1 within five steps.
TEST_P(MethodsTest, HeldOutRewardRises) {
  const std::string steps = std::to_string(GetParam().steps);
  const std::vector<std::string> set = {"run.steps=" + steps, "eval.every=" + steps,
                                        "eval.images=128", "eval.use_ema=false"};
  TrainingRun run(set, {}, GetParam().recipe);
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const auto rows = run.metrics();
  ASSERT_FALSE(rows.empty());
  const double before = rows.front()["eval/reward_mean"], after = rows.back()["eval/reward_mean"];
  EXPECT_GT(after, before + GetParam().rise);
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, MethodsTest,
    ::testing::Values(Case{"digits-dance", 10, 0.01}, Case{"digits-mixgrpo", 5, 0.028},
                      Case{"digits-mixgrpo-flash", 5, 0.02}, Case{"digits-remix", 5, 0.03},
                      Case{"digits-guard", 5, 0.025}, Case{"digits-gspo", 5, 0.025},
                      Case{"digits-tempflow", 5, 0.025}, Case{"digits-tempflow-branch", 5, 0.02},
                      Case{"digits-branch-grpo", 5, 0.026}, Case{"digits-mroueh", 6, 0.035},
                      Case{"digits-nft", 5, 0.055}, Case{"digits-awm", 5, 0.065},
                      Case{"digits-v-grpo", 5, 0.065}, Case{"digits-bapo", 6, 0.039},
                      Case{"digits-high-noise", 4, 0.14}, Case{"digits-diverse", 6, 0.088},
                      Case{"digits-op-grpo-diverse", 8, 0.1}, Case{"digits-flux", 5, 0.1}),
    [](const auto& info) {
      std::string name = info.param.recipe;
      std::erase(name, '-');
      return name;
    });

// configs/digits-mixed.yaml: new groups for those without a signal, and stored heads out of the
// mean.
TEST(MixedPromptsTest, HeldOutRewardRises) {
  const std::string source = OXBOW_SOURCE_DIR;
  const std::string prompts = source + "/configs/prompts/digits_mixed_";
  TrainingRun run(
      {"run.steps=8", "eval.every=8", "eval.images=128", "eval.use_ema=false",
       "model.path=" + source + "/models/digits_sparse", "prompts.train=" + prompts + "train.jsonl",
       "prompts.eval=" + prompts + "eval.jsonl"},
      {}, "digits-mixed");
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const auto rows = run.metrics();
  ASSERT_FALSE(rows.empty());
  const double before = rows.front()["eval/reward_mean"], after = rows.back()["eval/reward_mean"];
  EXPECT_GT(after, before + 0.047);
  const auto sum = [&](const char* metric) {
    double all = 0;
    for (const double value : run.Series(metric)) all += value;
    return all;
  };
  EXPECT_GT(sum("train/refilled_groups"), 0);
  EXPECT_GT(sum("train/groups_replayed"), 0);
}

// configs/digits-op-grpo-paper.yaml.
// Promise: One shipped run has every part of OP-GRPO at work. The lowest entries of a full buffer
// leave, heads are cut at i_off, weights W differ from 1, and samples are two steps old.
TEST(OpGrpoPaperTest, EveryPartActs) {
  constexpr size_t kSteps = 18, kFull = 15, kKept = 6;
  TrainingRun run({"run.steps=18", "batch.groups=8", "eval.every=18", "eval.images=16"}, {},
                  "digits-op-grpo-paper");
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  const auto rows = run.metrics();
  ASSERT_GT(rows.size(), kSteps);
  const auto at = [&](size_t step, const std::string& key) { return rows[step].value(key, 0.0); };
  // A step's two replayed samples may displace their own entries; all others displace the lowest.
  const std::string replaced = "buffer/offers_OFFER_OUTCOME_REPLACED";
  EXPECT_EQ(at(kFull, "buffer/size"), 64);
  EXPECT_GT(at(kSteps, replaced), at(kFull, replaced) + 2 * (kSteps - kFull));
  const auto largest = [&](const std::string& key) {
    double most = 0;
    for (const double value : run.Series(key)) most = std::max(most, value);
    return most;
  };
  EXPECT_EQ(largest("rollout/staleness_max"), 2);
  EXPECT_GT(largest("train/iw_max"), 1.003);
  EXPECT_GT(largest("train/clip_frac_total"), 0);
  EXPECT_FALSE(run.Series("train/log_prob_replay_step_" + std::to_string(kKept - 1)).empty());
  EXPECT_TRUE(run.Series("train/log_prob_replay_step_" + std::to_string(kKept)).empty());
}

}  // namespace
}  // namespace oxbow::testing
