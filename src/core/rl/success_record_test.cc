// SPDX-License-Identifier: Apache-2.0
#include "core/rl/success_record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace oxbow::rl {
namespace {

// Random outcomes of some steps, a prompt at most once a step.
std::vector<std::vector<GroupOutcome>> RandomSteps(RandomStream& random, uint64_t steps) {
  std::vector<std::vector<GroupOutcome>> made(steps);
  for (uint64_t step = 0; step < steps; ++step) {
    for (uint64_t prompt = 1; prompt <= 6; ++prompt) {
      if (random.NextBelow(3) > 0) continue;
      made[step].push_back({LearnerStep(step), PromptId(prompt),
                            static_cast<double>(random.NextBelow(9)), random.NextUniform()});
    }
  }
  return made;
}

TEST(SuccessRecordTest, AnOutcomeHasOneCountForEachSample) {
  const std::vector<double> rewards = {0, 1, 1, 0, 1};
  const GroupOutcome outcome = OutcomeOf(LearnerStep(4), PromptId(9), rewards, 1);
  EXPECT_EQ(outcome.step, LearnerStep(4));
  EXPECT_EQ(outcome.prompt, PromptId(9));
  EXPECT_NEAR(outcome.successes, 3, 1e-12);
  EXPECT_NEAR(outcome.failures, 2, 1e-12);
}

// The closed form: each outcome counts with 2^-(age / half-life).
TEST(SuccessRecordTest, EvidenceIsTheSumOfWhatIsLeftOfEachOutcome) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  RandomStream random({.seed = seed});
  const auto steps = RandomSteps(random, 60);
  SuccessRecord record;
  for (uint64_t now = 0; now < steps.size(); ++now) {
    for (const auto& [prompt, evidence] : record.KnownBefore(LearnerStep(now))) {
      double successes = 0, failures = 0;
      for (uint64_t step = 0; step < now; ++step) {
        for (const GroupOutcome& outcome : steps[step]) {
          if (outcome.prompt != prompt) continue;
          const double left = std::pow(0.5, static_cast<double>(now - step) / kEvidenceHalfLife);
          successes += left * outcome.successes;
          failures += left * outcome.failures;
        }
      }
      const SuccessEvidence found = AgedTo(evidence, LearnerStep(now));
      EXPECT_NEAR(found.successes, successes, 1e-9) << "prompt " << prompt << ", step " << now;
      EXPECT_NEAR(found.failures, failures, 1e-9);
    }
    record.Add(steps[now]);
    if (random.NextBelow(2) == 0) record.Settle(LearnerStep(random.NextBelow(now + 2)));
  }
}

// Promise: Chosen prompts follow from the seed.
TEST(SuccessRecordTest, WhatIsKnownOfAStepIsTheSameBitsWheneverItIsAsked) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  RandomStream random({.seed = seed});
  const auto steps = RandomSteps(random, 40);
  SuccessRecord whole;  // Nothing of it is settled.
  for (const auto& outcomes : steps) whole.Add(outcomes);
  SuccessRecord record;
  for (uint64_t now = 0; now < steps.size(); ++now) {
    record.Add(steps[now]);
    const uint64_t settled = now > 2 ? now - 2 : 0;
    record.Settle(LearnerStep(settled));
    record = SuccessRecord(record.settled(), record.recent());  // As a checkpoint does.
    for (uint64_t step = settled; step <= now + 1; ++step) {
      EXPECT_EQ(record.KnownBefore(LearnerStep(step)), whole.KnownBefore(LearnerStep(step)));
    }
    for (const GroupOutcome& one : record.recent()) EXPECT_GE(one.step.value, settled);
  }
}

}  // namespace
}  // namespace oxbow::rl
