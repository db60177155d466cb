// SPDX-License-Identifier: Apache-2.0
#include "services/learner/record/facts_of_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/run_config.h"
#include "run/run_record.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::learner {
namespace {

using ::testing::Contains;
using ::testing::Not;
using ::testing::Pair;

constexpr char kSource[] = OXBOW_SOURCE_DIR;

TEST(FactsOfRunTest, TheHeadNamesTheSplitsOfTrees) {
  const testing::ScopedDirectory run;
  const auto resolved = config::LoadRunConfig(
      std::string(kSource) + "/configs/recipes/digits-branch-grpo.yaml", {}, {});
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  ASSERT_TRUE(config::WriteResolved(*resolved, run.path() / "config.resolved.yaml").ok());
  EXPECT_THAT(FactsOfRun(run.path(), /*live=*/true).head,
              Contains(Pair("method", "grpo, trees that split in 2 at step 0, 1, 2")));
}

TEST(FactsOfRunTest, TheHeadSaysWhatRunsAndWhatIsLeftOut) {
  const testing::ScopedDirectory run;
  const auto resolved = config::LoadRunConfig(
      std::string(kSource) + "/configs/digits.yaml",
      {std::string("prompts.train=") + kSource + "/configs/prompts/digits_train.txt"}, {});
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  ASSERT_TRUE(config::WriteResolved(*resolved, run.path() / "config.resolved.yaml").ok());
  ASSERT_TRUE(run::AppendStart(run.path(), {.command = "oxbow train x.yaml", .recipe = "r"}).ok());
  const io::RunFacts facts = FactsOfRun(run.path(), /*live=*/true);
  EXPECT_THAT(facts.head, Contains(Pair("method",
                                        "grpo, replay in 25 % of the groups, weights up "
                                        "to 1 step old")));
  EXPECT_THAT(facts.head, Contains(Pair("recipe", "r")));
  EXPECT_THAT(facts.head, Contains(Pair("reward", "digits_ocr")));
  EXPECT_THAT(facts.head, Contains(Pair("command", "oxbow train x.yaml")));
  EXPECT_TRUE(facts.replays && facts.live);
  EXPECT_EQ(facts.steps_total, 80u);
  EXPECT_FALSE(facts.full_reward) << "no picture says that it can be right";
  EXPECT_THAT(facts.left_out, Contains(Pair("divergence", "method.kl_weight is 0")));
  EXPECT_THAT(facts.left_out, Not(Contains(Pair("replay", ::testing::_))));
}

// Promise: Why a run ended is kept.
// Promise: Evaluations of different settings are not compared.
TEST(FactsOfRunTest, WhyARunEndedComesFirstAndWhatEvaluationsMeasureFromWhereOn) {
  const testing::ScopedDirectory run;
  const auto resolved = config::LoadRunConfig("", {}, {});
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  ASSERT_TRUE(config::WriteResolved(*resolved, run.path() / "config.resolved.yaml").ok());
  ASSERT_TRUE(run::AppendStart(
                  run.path(),
                  {.resumed = true, .step = 20, .changed = {"reward.observed: [] -> [brightness]"}})
                  .ok());
  ASSERT_TRUE(run::WriteEnd(run.path(), {.end = run::RunEnd::kFailed,
                                         .step = 31,
                                         .exit_code = 5,
                                         .reason = "No space left on device"})
                  .ok());
  const io::RunFacts facts = FactsOfRun(run.path(), /*live=*/false);
  EXPECT_EQ(facts.head.front().first, "ended");
  EXPECT_EQ(facts.head.front().second, "failed at step 31: No space left on device (exit code 5)");
  EXPECT_THAT(facts.head, Contains(Pair("from step 20", "reward.observed: [] -> [brightness]")));
  ASSERT_EQ(facts.changes.size(), 1u);
  EXPECT_EQ(facts.changes[0].first, 20u);
  EXPECT_EQ(facts.same_since, 0u) << "the other numbers go on";
  ASSERT_TRUE(run::AppendStart(run.path(),
                               {.resumed = true, .step = 25, .changed = {"prompts.eval: a -> b"}})
                  .ok());
  EXPECT_EQ(FactsOfRun(run.path(), /*live=*/false).same_since, 25u);
  EXPECT_THAT(FactsOfRun(run.path(), /*live=*/true).head,
              Not(Contains(Pair("ended", ::testing::_))));
}

TEST(FactsOfRunTest, ADirectoryWithoutFilesHasAName) {
  const testing::ScopedDirectory run;
  const io::RunFacts facts = FactsOfRun(run.path(), false);
  EXPECT_EQ(facts.name, run.path().filename().string());
  EXPECT_TRUE(facts.head.empty());
}

}  // namespace
}  // namespace oxbow::learner
