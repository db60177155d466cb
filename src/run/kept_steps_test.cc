// SPDX-License-Identifier: Apache-2.0
// Findings about a run whose off-policy samples would train nothing, or less.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "config/run_config.h"
#include "run/sampling_spec.h"
#include "run/trainer_options.h"

namespace oxbow::run {
namespace {

using ::testing::HasSubstr;

// Problems of the Dance-SDE on a grid without shift, whose first step already has kc .556, with
// `more` settings.
std::vector<config::Problem> ProblemsOf(std::vector<std::string> more) {
  std::vector<std::string> settings = {"sampling.dynamics=dance_sde", "sampling.eta=0.3",
                                       "sampling.shift=1", "replay.fraction=0"};
  settings.insert(settings.end(), more.begin(), more.end());
  const auto resolved = config::LoadRunConfig({}, settings, {});
  OXBOW_CHECK(resolved.ok()) << resolved.status();
  const auto spec = SamplingSpecFromConfig(resolved->config.sampling());
  OXBOW_CHECK(spec.ok()) << spec.status();
  return CheckKeptSteps(resolved->config, *spec);
}

// Promise: No step is lost in silence. A run whose off-policy samples would train nothing is
// refused, and one where they lose steps is warned of. A stale sample that loses steps counts as a
// whole one. A step that trains no sample is on the progress line, in a metric and in an alert.
TEST(KeptStepsTest, ARunThatReusesSamplesAndKeepsNoStepIsRefused) {
  EXPECT_TRUE(ProblemsOf({}).empty()) << "on-policy, all steps are trained";
  for (const char* reuse : {"replay.fraction=0.25", "off_policy.staleness_max=4"}) {
    const auto problems = ProblemsOf({reuse});
    ASSERT_EQ(problems.size(), 1u) << reuse;
    EXPECT_EQ(problems[0].severity, config::Severity::kError);
    EXPECT_EQ(problems[0].key, "method.kept_kc_max");
    EXPECT_THAT(problems[0].message, HasSubstr("i_off = 0"));
  }
  EXPECT_TRUE(ProblemsOf({"off_policy.staleness_max=4", "method.correction=bypass"}).empty())
      << "bypass cuts nothing";
  EXPECT_TRUE(ProblemsOf({"replay.fraction=0.25", "method.name=awm"}).empty())
      << "a finished picture has no steps";
}

// Promise: No step is lost in silence.
TEST(KeptStepsTest, WhereSamplesLoseStepsAWarningSaysHowMany) {
  const auto problems = ProblemsOf({"off_policy.staleness_max=1", "sampling.shift=3",
                                    "sampling.dynamics=flow_sde", "sampling.eta=0.7"});
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].severity, config::Severity::kWarning);
  EXPECT_THAT(problems[0].message, HasSubstr("7 of 9 steps"));
  EXPECT_TRUE(ProblemsOf({"off_policy.staleness_max=1", "method.kept_kc_max=1e9"}).empty());
}

TEST(KeptStepsTest, BranchesThatHaveNoStochasticTailAreRefused) {
  std::vector<std::string> run = {"replay.fraction=0.25",       "sampling.shift=3",
                                  "sampling.dynamics=flow_sde", "sampling.eta=0.7",
                                  "sampling.tail=sde",          "replay.branches=4"};
  EXPECT_TRUE(ProblemsOf(run).empty()) << "i_off = 7 of 9 steps";
  for (const char* all : {"method.kept_kc_max=1e9", "method.kept_steps=9"}) {
    run.emplace_back(all);
    const auto problems = ProblemsOf(run);
    ASSERT_EQ(problems.size(), 1u) << all;
    EXPECT_EQ(problems[0].severity, config::Severity::kError);
    EXPECT_EQ(problems[0].key, "replay.branches");
    EXPECT_THAT(problems[0].message, HasSubstr("set method.kept_steps below that"));
    run.pop_back();
  }
}

TEST(KeptStepsTest, AStoredTailThatNoHeadCanHaveIsNamed) {
  std::vector<std::string> run = {"replay.fraction=0.25", "sampling.shift=3",
                                  "sampling.dynamics=flow_sde", "sampling.eta=0.7",
                                  "sampling.tail=stored"};
  ASSERT_EQ(ProblemsOf(run).size(), 1u);
  EXPECT_EQ(ProblemsOf(run)[0].key, "sampling.tail");
  run.push_back("sampling.sde_count=7");
  EXPECT_TRUE(ProblemsOf(run).empty());
}

TEST(KeptStepsTest, WindowsPastTheDerivedHeadAreNamed) {
  const auto problems =
      ProblemsOf({"replay.fraction=0.25", "sampling.shift=3", "sampling.dynamics=flow_sde",
                  "sampling.eta=0.7", "sampling.window.kind=random", "sampling.window.size=2"});
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(problems[0].message, HasSubstr("begin at step i_off = 7"));
}

}  // namespace
}  // namespace oxbow::run
