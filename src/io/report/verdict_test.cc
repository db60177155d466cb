// SPDX-License-Identifier: Apache-2.0
// Eight staged runs, written as a learner writes them, and what must be said of each.
#include "io/report/verdict.h"

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "metrics/alert_limits.h"
#include "metrics/step_metrics.h"
#include "tests/testing/staged_run.h"

namespace oxbow::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(VerdictTest, AGoodRunIsGood) {
  const Verdict verdict = Judge([](int, Numbers&) {});
  EXPECT_EQ(Levels(verdict), "ggggg") << VerdictText(verdict);
  EXPECT_THAT(verdict[0].says, HasSubstr("0.57 -> 0.963"));
  EXPECT_THAT(verdict[4].says, HasSubstr("learner update"));
}

// A chart, a card and a table show the last evaluation; three of them are judged.
// Promise: Evaluations of different settings are not compared.
TEST(VerdictTest, NumbersAreThoseOfEvaluationsAndAreJudgedByTheMeanOfThree) {
  const auto last_is = [](double reward) {
    return Judge([=](int step, Numbers& line) {
      if (step == kSteps) Held(line, reward);
    });
  };
  EXPECT_THAT(last_is(0.99)[0].says, HasSubstr("0.57 -> 0.99 of 1.00"));
  const Verdict low = last_is(0.6);
  EXPECT_EQ(low[0].level, Level::kWatch) << low[0].says << "; one low evaluation is no collapse";
  EXPECT_THAT(low[0].says, HasSubstr("0.57 -> 0.6 of 1.00, best 0.958 at step 70"));
  EXPECT_THAT(last_is(0.5)[0].says, HasSubstr("0.57 -> 0.5 (0.803 in the mean of three) of 1.00"));
}

// Before the change the same numbers are a collapse, and dust.
// Promise: Evaluations of different settings are not compared. After a resume with other held-out
// prompts, or another size or sampler of evaluations, cards, verdict, `oxbow runs`, `status` and
// `compare` take the evaluations behind it alone, and no picture of other weights than step 0 is
// called *before*. Cards, tables and the verdict name the same evaluations. A chart's axis shows
// what is flat as flat.
TEST(VerdictTest, EvaluationsOfOtherHeldOutPromptsAreNotCompared) {
  const auto change = [](int step, Numbers& line) {
    if (step <= 20) return;
    if (line.contains("eval/speckle_mean")) line["eval/speckle_mean"] = 0.2;
    Held(line, 0.1 + 0.001 * step);
  };
  RunFacts facts{.steps_total = kSteps, .full_reward = 1, .replays = true};
  EXPECT_EQ(Levels(Judge(change, kSteps, facts)).substr(0, 2), "bb");
  facts.same_since = 20;
  const Verdict verdict = Judge(change, kSteps, facts);
  EXPECT_EQ(Levels(verdict).substr(1, 1), "g") << VerdictText(verdict);
  EXPECT_THAT(verdict[0].says, HasSubstr("0.13 -> 0.18"));
  EXPECT_THAT(verdict[1].says, HasSubstr("speckle 0.2 -> 0.2"));
}

TEST(VerdictTest, TextIsBrokenBetweenWordsToFitATerminal) {
  Verdict verdict;
  verdict[0] = {"learning", Level::kWatch, "one two three four five six seven", "eight nine ten"};
  const std::string text = VerdictText(verdict, 44);
  EXPECT_THAT(text, ::testing::StartsWith("learning    watch      one two three four\n"
                                          "                       five six seven\n"
                                          "                       -> eight nine ten\n"));
  EXPECT_THAT(VerdictText(verdict), HasSubstr("four five six seven\n"));
}

TEST(VerdictTest, ACollapsedRunNamesItsBestStep) {
  const Verdict verdict = Judge([](int step, Numbers& line) {
    if (step < 40) return;
    Held(line, 0.01);
    line["train/reward_mean"] = 0.01;
    line["train/reward_zero_std_ratio"] = 1;
    line["train/grad_norm"] = line["train/samples_trained"] = 0;
  });
  EXPECT_EQ(verdict[0].level, Level::kBad) << VerdictText(verdict);
  EXPECT_THAT(verdict[0].says, HasSubstr("collapsed: held-out reward"));
  EXPECT_THAT(verdict[0].says, HasSubstr("now 0.01"));
}

TEST(VerdictTest, DustThatIsPaidForIsDishonest) {
  const Verdict verdict = Judge([](int step, Numbers& line) {
    if (line.contains("eval/speckle_mean")) line["eval/speckle_mean"] = 0.015 + 0.001 * step;
  });
  EXPECT_EQ(Levels(verdict), "gbggg") << VerdictText(verdict);
  EXPECT_THAT(verdict[1].says, HasSubstr("speckle 0.015 -> "));
}

TEST(VerdictTest, OneLayoutLeftIsModeCollapse) {
  const Verdict verdict = Judge([](int step, Numbers& line) {
    const double left = std::exp(-step / 12.0);
    if (line.contains("eval/minority_share")) line["eval/minority_share"] = 0.45 * left;
    if (step > 0) line["train/group_distance_mean"] = 0.05 + 0.25 * left;
  });
  EXPECT_EQ(Levels(verdict), "ggbgg") << VerdictText(verdict);
  EXPECT_THAT(verdict[2].says, HasSubstr("mode collapse: the rarer layout's share 0.45 -> 0.00"));
}

TEST(VerdictTest, EqualRewardsAreNoSignal) {
  const Verdict verdict = Judge([](int step, Numbers& line) {
    Held(line, 0.02);
    if (step == 0) return;
    line["train/reward_mean"] = 0.02;
    line["train/reward_std"] = 0.1;
    line["train/reward_zero_std_ratio"] = 0.95;
  });
  EXPECT_EQ(verdict[0].level, Level::kBad) << VerdictText(verdict);
  EXPECT_THAT(verdict[0].says, HasSubstr("no signal: in 95 % of the groups"));
  EXPECT_THAT(verdict[0].advice, HasSubstr("batch.group_size"));
}

TEST(VerdictTest, AShortRunWithAConstantRewardIsToldThatNoGroupHadASignal) {
  const auto constant = [](int step, Numbers& line) {
    Held(line, 0.5);
    if (step == 0) return;
    line["train/reward_mean"] = 0.5;
    line["train/reward_zero_std_ratio"] = 1;
    line["train/samples_trained"] = 0;
  };
  const Verdict verdict = Judge(constant, /*steps=*/4);
  EXPECT_EQ(verdict[0].level, Level::kBad) << VerdictText(verdict);
  EXPECT_THAT(verdict[0].says, HasSubstr("no signal: in 100 % of the groups"));
}

TEST(VerdictTest, ARunThatDoesNotMoveIsStuckAndTheClipIsNamed) {
  const auto flat = [](int step, Numbers& line) {
    Held(line, 0.57 + 0.004 * std::sin(step));
    if (step > 0) line["train/reward_mean"] = 0.55;
    if (step > 0) line["train/reward_zero_std_ratio"] = 0.05;
  };
  const Verdict verdict = Judge(flat);
  EXPECT_EQ(Levels(verdict), "bgggg") << VerdictText(verdict);
  EXPECT_THAT(verdict[0].says, HasSubstr("stuck: held-out reward"));
  const Verdict clipped = Judge([&](int step, Numbers& line) {
    flat(step, line);
    if (step > 0) line["train/clip_frac_zero_grad"] = 0.9;
  });
  EXPECT_THAT(clipped[0].says, HasSubstr("stuck: the clip silences 90 %"));
  const Verdict idle = Judge([&](int step, Numbers& line) {
    flat(step, line);
    if (step > 0) line["train/samples_trained"] = step % 3 == 0 ? 128 : 0;
  });
  EXPECT_THAT(idle[0].says, HasSubstr("of the last steps trained no sample"));
}

TEST(VerdictTest, SwingsAndSpikesAreUnstable) {
  const Verdict verdict = Judge([](int step, Numbers& line) {
    Held(line, step / 10 % 2 == 0 ? 0.6 + 0.003 * step : 0.35);
    if (step % 20 == 11) line["train/grad_norm"] = 4;
  });
  EXPECT_EQ(verdict[3].level, Level::kBad) << VerdictText(verdict);
  EXPECT_THAT(verdict[3].says, HasSubstr("the held-out reward swings"));
  const Verdict spikes = Judge([](int step, Numbers& line) {
    if (step == 41) line["train/grad_norm"] = 4;
  });
  EXPECT_EQ(Levels(spikes), "gggwg") << VerdictText(spikes);
  const Verdict broken = Judge([](int step, Numbers& line) {
    if (step == 41) line["train/grad_norm"] = std::nan("");
  });
  EXPECT_THAT(broken[3].says, HasSubstr("not a finite number at step 41"));
}

TEST(VerdictTest, ALearnerThatWaitsIsStarved) {
  const Verdict verdict = Judge([](int step, Numbers& line) {
    if (step > 0) line["time/wait_s"] = 4;
  });
  EXPECT_EQ(Levels(verdict), "ggggb") << VerdictText(verdict);
  EXPECT_THAT(verdict[4].says, HasSubstr("starved: rollouts"));
  EXPECT_THAT(verdict[4].advice, HasSubstr("rollout workers"));
  const Verdict slow = Judge([](int step, Numbers& line) {
    if (step > 0) line["time/wait_s"] = 4, line["rollout/reward_s_mean"] = 3.5;
  });
  EXPECT_THAT(slow[4].says, HasSubstr("starved: rollouts"));
  EXPECT_THAT(slow[4].advice, AllOf(HasSubstr("rewards take 3.5 s"), Not(HasSubstr("workers"))));
  const Verdict no_replay = Judge([](int, Numbers& line) { line["train/groups_replayed"] = 0; });
  EXPECT_EQ(Levels(no_replay), "ggggw") << VerdictText(no_replay);
  EXPECT_THAT(no_replay[4].says, HasSubstr("got a replayed head"));
}

TEST(VerdictTest, ItSaysHowMuchOfTheRewardsTimeHoldsAStepUp) {
  const auto says = [](double wait, double scores) {
    return Judge([=](int step, Numbers& line) {
             if (step == 0) return;
             line["time/wait_s"] = wait;
             line["rollout/reward_s_mean"] = scores;
           })[4]
        .says;
  };
  EXPECT_THAT(says(0.0001, 0.07),
              HasSubstr("; all scoring overlaps with other work, faster rewards save nothing"));
  EXPECT_THAT(says(0.03, 0.06), HasSubstr("; at least 50 % of scoring overlaps with other work, "
                                          "faster rewards save the rest at most"));
  EXPECT_THAT(says(0.3, 0.06), Not(HasSubstr("rewards")));
  EXPECT_THAT(says(0.3, 0.002), Not(HasSubstr("rewards")));  // An embedded task's own.
}

// The time since the last step of a stopped run counts: it may be all there is.
TEST(VerdictTest, WhatAStoppedRunWaitedForLimitsIt) {
  const auto before = [](const Numbers& unfinished, RunFacts facts = {}) {
    Numbers line = {{"time/plan_s", 0.4}, {"time/eval_s", 2}};
    line.insert(unfinished.begin(), unfinished.end());
    return VerdictOf(History({*ParseMetricsLine(FormatMetricsLine(0, 3, line))}), facts)[4];
  };
  EXPECT_EQ(before({}).level, Level::kUnknown);
  EXPECT_EQ(before({}).says, "no step has been timed yet");
  EXPECT_EQ(before({{"time/rewards_s", 1}}).says, "no step has been timed yet");
  EXPECT_EQ(before({{"time/rewards_s", 60}}).says,
            "before the first step: starved: reward servers: waiting for rewards 96 % of the time");
  const VerdictLine rewards = before({{"time/unfinished_rewards_s", 60}});
  EXPECT_EQ(rewards.level, Level::kBad);
  EXPECT_EQ(rewards.says,
            "before the first step: starved: reward servers: waiting for rewards 96 % of the time");
  EXPECT_THAT(rewards.advice, AllOf(HasSubstr("oxbow doctor"), HasSubstr("slow")));
  const VerdictLine plan = before({{"time/unfinished_plan_s", 60}});
  EXPECT_THAT(plan.says, Not(HasSubstr("buffer")));
  EXPECT_THAT(plan.advice, Not(HasSubstr("buffer")));
  EXPECT_THAT(before({{"time/unfinished_plan_s", 60}}, {.replays = true}).advice,
              HasSubstr("look at the replay buffer"));
  const Verdict later = Judge([](int step, Numbers& line) {
    if (step == kSteps) line["time/unfinished_wait_s"] = 600;
    if (step == 40) line["time/unfinished_rewards_s"] = 1e6;  // An earlier stop.
  });
  EXPECT_THAT(later[4].says, HasSubstr("starved: rollouts: waiting for rollouts 98 %"));
}

TEST(VerdictTest, NothingIsSaidOfWhatIsNotThere) {
  const Verdict empty = VerdictOf(History(), {});
  EXPECT_EQ(Levels(empty), "nnnnn") << VerdictText(empty);
  const Verdict begun = Judge([](int, Numbers&) {}, 4);
  EXPECT_EQ(Levels(begun).substr(0, 3), "nnn") << VerdictText(begun);
}

TEST(VerdictTest, ANegativeRewardIsJudgedLikeAnyOther) {
  const auto shifted = [](double to, double from) {
    return [=](int step, Numbers& line) {
      const double t = static_cast<double>(step) / kSteps;
      Held(line, from + (to - from) * t);
      line.erase("eval/speckle_mean");
      line.erase("eval/reward_digits_strict_mean");
    };
  };
  const auto judge = [&](const StepChange& change) {
    return Judge(change, kSteps, {.steps_total = kSteps})[0];
  };
  EXPECT_EQ(judge(shifted(-1, -3)).level, Level::kGood);
  EXPECT_EQ(judge(shifted(-5, -3)).level, Level::kBad);
}

TEST(AlertLimitsTest, AlertsSpellTheLimitsOfTheVerdict) {
  const auto rules = ReadFile(OXBOW_SOURCE_DIR "/deploy/prometheus/rules/oxbow.rules.yml");
  ASSERT_TRUE(rules.ok()) << rules.status();
  for (const metric::AlertLimit& limit :
       {metric::kZeroStdRatioMax, metric::kClipZeroGradMax, metric::kGradNormMediansMax,
        metric::kIdleStepsMax, metric::kRewardsApartMin}) {
    const size_t begin = rules->find(absl::StrCat("alert: ", limit.alert, "\n"));
    ASSERT_NE(begin, std::string::npos) << limit.alert;
    const std::string rule = rules->substr(begin, rules->find("- alert:", begin) - begin);
    EXPECT_THAT(rule, HasSubstr(limit.written)) << limit.alert;
    EXPECT_THAT(limit.written, HasSubstr(absl::StrCat(limit.value))) << limit.alert;
  }
}

}  // namespace
}  // namespace oxbow::io
