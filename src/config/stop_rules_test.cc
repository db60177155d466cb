// SPDX-License-Identifier: Apache-2.0
// When rules end a run: each condition at its edge.
#include "config/stop_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "config/run_config.h"

namespace oxbow::config {
namespace {

using ::testing::Contains;
using ::testing::Not;
using ::testing::Optional;
using testing::StrEq;

constexpr char kMetric[] = "eval/reward_mean";

StopRuleList RulesOf(const std::string& list) {
  return LoadRunConfig({}, {"recipe=digits-diverse", "run.stop_if=" + list}, {})
      .value()
      .config.run()
      .stop_if();
}

// The values of an evaluation every ten steps, the first of the untrained model.
MetricSeries SeriesOf(const StopRuleList& rules, const std::vector<double>& values) {
  MetricSeries series;
  for (size_t i = 0; i < values.size(); ++i) {
    AddValues(rules, 10 * i, {{kMetric, values[i]}, {"train/loss", 1}}, series);
  }
  return series;
}

std::optional<std::string> After(const std::string& list, const std::vector<double>& values) {
  const StopRuleList rules = RulesOf(list);
  return StopReason(rules, SeriesOf(rules, values));
}

// Promise: A rule ends a run as its last step would. A condition of `run.stop_if` that is met ends
// the run with a checkpoint, final weights, one line and exit code 8, of `oxbow train` and of
// `learner` alone. A rule that is still met ends a resumed run before it trains.
TEST(StopRulesTest, BelowEndsARunThatHasCollapsed) {
  const std::string rule = "[{metric: eval/reward_mean, below: 0.1}]";
  EXPECT_EQ(After(rule, {0.5, 0.1}), std::nullopt);
  EXPECT_THAT(After(rule, {0.5, 0.0999}),
              Optional(StrEq("eval/reward_mean is 0.0999 at step 10, below 0.1 (run.stop_if[0])")));
  EXPECT_EQ(After(rule, {0.5, 0.05, 0.3}), std::nullopt) << "the newest value counts";
}

TEST(StopRulesTest, ABoundOfZeroIsABound) {
  EXPECT_EQ(After("[{metric: eval/reward_mean, below: 0}]", {0.5, 0.1}), std::nullopt);
  EXPECT_NE(After("[{metric: eval/reward_mean, below: 0}]", {0.5, -0.1}), std::nullopt);
  EXPECT_NE(After("[{metric: eval/reward_mean, above: 0}]", {-0.5, 0.1}), std::nullopt);
}

TEST(StopRulesTest, AboveEndsARunAtItsGoal) {
  const std::string rule = "[{metric: eval/reward_mean, above: 0.9}]";
  EXPECT_EQ(After(rule, {0.5, 0.9}), std::nullopt);
  EXPECT_THAT(After(rule, {0.5, 0.95}),
              Optional(StrEq("eval/reward_mean is 0.95 at step 10, above 0.9 (run.stop_if[0])")));
}

// Promise: A rule ends a run as its last step would.
TEST(StopRulesTest, NothingEndsARunBeforeItsStep) {
  const std::string rule = "[{metric: eval/reward_mean, below: 0.1, after_step: 20}]";
  EXPECT_EQ(After(rule, {0, 0, 0}), std::nullopt);  // At step 20.
  EXPECT_NE(After(rule, {0, 0, 0, 0}), std::nullopt);
  EXPECT_EQ(After("[{metric: eval/reward_mean, below: 0.1}]", {0}), std::nullopt)
      << "the untrained model ends no run";
}

// Promise: A rule ends a run as its last step would.
TEST(StopRulesTest, NoRiseCountsValuesThatAreNotAboveTheBestBefore) {
  const std::string rule = "[{metric: eval/reward_mean, no_rise_for: 3}]";
  EXPECT_EQ(After(rule, {0.5, 0.6, 0.6}), std::nullopt);
  EXPECT_THAT(
      After(rule, {0.5, 0.6, 0.5, 0.6, 0.55}),
      Optional(StrEq("eval/reward_mean is 0.55 at step 40, no rise in 3 values over 0.6 at step 10 "
                     "(run.stop_if[0])")));
  EXPECT_EQ(After(rule, {0.5, 0.6, 0.5, 0.61, 0.55}), std::nullopt);
  EXPECT_EQ(After(rule, {0.6, 0.5, 0.5}), std::nullopt) << "too few values";
}

// Promise: A rule ends a run as its last step would.
TEST(StopRulesTest, AValueThatIsNotFiniteIsNoRiseAndMeetsNoBound) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(After("[{metric: eval/reward_mean, below: 0.1}]", {0.5, nan}), std::nullopt);
  EXPECT_EQ(After("[{metric: eval/reward_mean, above: 0.1}]", {0.5, nan}), std::nullopt);
  EXPECT_NE(After("[{metric: eval/reward_mean, no_rise_for: 2}]", {0.5, nan, nan}), std::nullopt);
}

TEST(StopRulesTest, TheFirstRuleThatIsMetIsNamed) {
  EXPECT_THAT(After("[{metric: eval/reward_mean, below: 0.1}, {metric: train/loss, above: 0.5},"
                    " {metric: train/loss, above: 0.1}]",
                    {0.5, 0.6}),
              Optional(StrEq("train/loss is 1 at step 10, above 0.5 (run.stop_if[1])")));
  EXPECT_EQ(After("[]", {0, 0}), std::nullopt);
}

TEST(StopRulesTest, ARunKnowsTheMetricsItMeasures) {
  const auto known =
      MetricsForRules(LoadRunConfig({}, {"recipe=digits-diverse"}, {}).value().config);
  EXPECT_THAT(known, Contains("eval/reward_mean"));
  EXPECT_THAT(known, Contains("eval/reward_digits_strict_mean"));
  EXPECT_THAT(known, Contains("train/reward_digits_ocr_mean"));
  EXPECT_THAT(known, Not(Contains("eval/reward_pickscore_mean")));
  EXPECT_EQ(MetricProblem("train/loss", known), "");
  EXPECT_EQ(MetricProblem("train"
                          "/los",
                          known),
            "no such metric: train"
            "/los; did you mean train/loss?");
}

}  // namespace
}  // namespace oxbow::config
