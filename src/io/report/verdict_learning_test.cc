// SPDX-License-Identifier: Apache-2.0
// Why a reward does not rise, and what a rising sum hides.
#include "absl/strings/str_cat.h"
#include "io/report/svg_chart.h"
#include "tests/testing/staged_run.h"

namespace oxbow::io {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

RunFacts Facts() { return {.steps_total = kSteps, .full_reward = 1, .replays = true}; }

TEST(VerdictLearningTest, UnderTwentyStepsOrFiveEvaluationsItIsTooEarly) {
  const auto run = [](int steps, double from, double to) {
    const auto change = [=](int step, Numbers& line) {
      Held(line, from + (to - from) * step / steps);
    };
    return Judge(change, steps, {.steps_total = static_cast<uint64_t>(steps)});
  };
  for (const int steps : {4, 19, 39}) {
    for (const double to : {0.5, 0.45, 0.9}) {
      const Verdict verdict = run(steps, 0.5, to);
      EXPECT_EQ(Levels(verdict).substr(0, 3), "nnn") << VerdictText(verdict);
      // It says how much is missing; the lines have one wording.
      const std::string early = absl::StrCat(
          "too early to say (", steps < 20 ? absl::StrCat(steps, " of 20 steps, ") : "",
          steps / 10 + 1, " of 5 evaluations)");
      EXPECT_THAT(verdict[0].says, StartsWith(early + ": held-out reward 0.5"));
      for (const VerdictLine& line : {verdict[1], verdict[2]}) {
        EXPECT_THAT(line.says, StartsWith(early));
      }
      EXPECT_EQ(verdict[0].advice, "");
    }
  }
  EXPECT_EQ(run(40, 0.5, 0.5)[0].level, Level::kBad);
  EXPECT_EQ(run(40, 0.5, 0.9)[0].level, Level::kGood);
  // Three evaluations show a collapse, once there are steps that can have made it.
  EXPECT_THAT(run(20, 0.9, 0.1)[0].says, StartsWith("collapsed"));
  EXPECT_THAT(run(19, 0.9, 0.1)[0].says, StartsWith("too early"));
}

TEST(VerdictLearningTest, AShortRunOfASolvedTaskIsNotCalledBroken) {
  const auto solved = [](int step, Numbers& line) {
    Held(line, 1);
    if (step == 0) return;
    line["train/reward_mean"] = line["train/reward_zero_std_ratio"] = 1;
    line["train/reward_std"] = line["train/samples_trained"] = 0;
  };
  EXPECT_EQ(Judge(solved, 8)[0].level, Level::kUnknown);
  EXPECT_EQ(Judge(solved)[0].level, Level::kGood);
}

// Promise: A reward that says nothing trains nothing.
TEST(VerdictLearningTest, ARewardThatGivesEveryPictureTheSameNumberIsNamed) {
  for (const double number : {0.5, 0.125, 0.0, -3.5}) {
    const auto constant = [=](int step, Numbers& line) {
      Held(line, number);
      if (step == 0) return;
      line["train/reward_mean"] = number;
      line["train/reward_std"] = number == 0 ? 0 : 1e-10;  // Rounding.
      line["train/reward_zero_std_ratio"] = 1;
    };
    for (const int steps : {12, kSteps}) {
      const VerdictLine line = Judge(constant, steps)[0];
      EXPECT_EQ(line.level, Level::kBad);
      EXPECT_THAT(line.says, StartsWith(absl::StrCat(
                                 "the reward gives every picture the same number (", Number(number),
                                 "): look at it with oxbow score; held-out reward")));
      EXPECT_THAT(line.advice, Not(HasSubstr("learning_rate")));
    }
  }
}

// A model cannot be at fault where its prompts teach it nothing.
TEST(VerdictLearningTest, PromptsThatAreTooEasyOrTooHardAreNamed) {
  const auto judge = [](double trained, RunFacts facts) {
    const auto flat = [=](int step, Numbers& line) {
      Held(line, 0.5);
      if (step == 0) return;
      line["train/reward_mean"] = trained;
      line["train/reward_zero_std_ratio"] = 0.9;
    };
    return Judge(flat, kSteps, facts)[0];
  };
  EXPECT_THAT(
      judge(0.98, Facts()).says,
      HasSubstr("no signal: in 90 % of the groups all rewards are equal, at 0.98 of 1.00: the "
                "prompts (prompts.train) are too easy for this model"));
  EXPECT_THAT(judge(0.98, Facts()).advice, StartsWith("harder prompts"));
  EXPECT_THAT(judge(0.01, Facts()).says, HasSubstr("too hard for this model"));
  EXPECT_THAT(judge(0.5, Facts()).says, Not(HasSubstr("prompts")));
  RunFacts unbounded = Facts();
  unbounded.full_reward = std::nullopt;
  EXPECT_THAT(judge(0.01, unbounded).says, Not(HasSubstr("prompts")));
}

TEST(VerdictLearningTest, PicturesWithoutAScoreAreTheFirstCause) {
  const auto judge = [](double share, int steps = kSteps) {
    RunFacts facts = Facts();
    facts.unscored_reason = "no";
    return Judge(
        [=](int step, Numbers& line) {
          if (step > 0) line["train/samples_unscored"] = 128 * share;
          if (share > 0.5 && step > 0) line["train/reward_zero_std_ratio"] = 1;
        },
        steps, facts)[0];
  };
  for (const int steps : {10, kSteps}) {
    EXPECT_EQ(judge(0.75, steps).level, Level::kBad);
    EXPECT_EQ(judge(0.75, steps).says, "75 % of the pictures have no score: \"no\"");
  }
  EXPECT_EQ(judge(0.125).level, Level::kWatch);
  EXPECT_THAT(judge(0.125).says, HasSubstr("; 12 % of the pictures have no score: \"no\""));
  EXPECT_EQ(judge(0.02).level, Level::kGood);
  EXPECT_THAT(judge(0.02).says, HasSubstr("; 2 % of the pictures have no score"));
  EXPECT_THAT(judge(0).says, Not(HasSubstr("no score")));
}

TEST(VerdictLearningTest, FailedEvaluationsAreCountedAndQuoted) {
  const auto judge = [](int good_from) {
    RunFacts facts = Facts();
    facts.evaluation_failure = "no face";
    return Judge(
        [=](int step, Numbers& line) {
          if (!line.contains("eval/reward_mean") || step >= good_from) return;
          std::erase_if(line, [](const auto& item) { return item.first.starts_with("eval/"); });
          line["eval/failed"] = 1;
        },
        kSteps, facts)[0];
  };
  const VerdictLine all = judge(kSteps + 1);
  EXPECT_EQ(all.level, Level::kBad);
  EXPECT_THAT(all.says, StartsWith("9 of 9 evaluations failed: no face; training reward"));
  const VerdictLine some = judge(15);
  EXPECT_EQ(some.level, Level::kWatch);
  EXPECT_THAT(some.says, HasSubstr("; 2 of 9 evaluations failed: no face"));
}

// The sum rises by the first of two rewards.
TEST(VerdictLearningTest, EachOfSeveralRewardsIsLookedAt) {
  const auto judge = [](double from, double to, double spread) {
    RunFacts facts = Facts();
    facts.terms = {"digits_ocr", "brightness"};
    return Judge(
        [=](int step, Numbers& line) {
          const double value = from + (to - from) * step / kSteps;
          if (step % 10 == 0) line["eval/reward_brightness_mean"] = value;
          if (step == 0) return;
          line["train/reward_brightness_mean"] = value;
          line["train/reward_brightness_std"] = spread;
          line["train/reward_digits_ocr_std"] = 0.28;
        },
        kSteps, facts);
  };
  const Verdict flat = judge(0.264, 0.269, 0.05);
  EXPECT_EQ(flat[0].level, Level::kWatch) << VerdictText(flat);
  EXPECT_THAT(flat[0].says, HasSubstr("; brightness does not move: 0.264 -> 0.26"));
  EXPECT_THAT(judge(0.5, 0.3, 0.05)[0].says, HasSubstr("; brightness falls: 0.5 -> 0.3"));
  EXPECT_THAT(judge(0.4, 0.4, 0)[0].says,
              HasSubstr("; brightness gives every picture the same number (0.4)"));
  EXPECT_EQ(judge(0.2, 0.6, 0.05)[0].level, Level::kGood);
  EXPECT_EQ(judge(0.98, 0.99, 0.05)[0].level, Level::kGood) << "nothing is left to rise";
  EXPECT_EQ(judge(0.5, 0.3, 0.05)[1].level, Level::kGood) << "no witness: it is trained on";
}

}  // namespace
}  // namespace oxbow::io
