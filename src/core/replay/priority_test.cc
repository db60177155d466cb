// SPDX-License-Identifier: Apache-2.0
// The static key must sort as the decayed priority does, at every step, for ever.
#include "core/replay/priority.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/philox.h"
#include "nlohmann/json.hpp"

namespace oxbow::replay {
namespace {

TEST(PriorityTest, MatchesGoldenDecay) {
  const char* given = std::getenv("OXBOW_GOLDEN");
  std::ifstream file(given != nullptr ? given : OXBOW_SOURCE_DIR "/tests/golden/golden.json");
  if (given == nullptr && !file) GTEST_SKIP() << "tests/golden/golden.json is not there";
  ASSERT_TRUE(file) << given;
  const nlohmann::json records = nlohmann::json::parse(file).at("decay");
  ASSERT_FALSE(records.empty());
  for (const nlohmann::json& record : records) {
    const double reward = record.at("reward");
    const uint64_t age = record.at("age").get<uint64_t>();
    EXPECT_NEAR(PriorityAt({DecayForm::kMultiplicative, record.at("gamma"), record.at("floor")},
                           reward, age),
                record.at("multiplicative").get<double>(), 1e-12);
    EXPECT_NEAR(PriorityAt({DecayForm::kSubtractive, 0.01, 0}, reward, age),
                record.at("subtractive").get<double>(), 1e-12);
  }
}

// Rewards around the floor, exact ties included; births over a long run.
struct Sample {
  double reward;
  LearnerStep birth;
};

Sample RandomSample(RandomStream& random, double floor) {
  const uint64_t kind = random.NextBelow(4);
  double reward = floor + 4 * random.NextUniform() - 1;
  if (kind == 0) reward = floor + static_cast<double>(random.NextBelow(5)) / 3;  // As rewards tie.
  if (kind == 1) reward = floor;
  return {reward, LearnerStep(random.NextBelow(2000))};
}

// The exact difference of two decayed priorities may be below what float64 resolves; only then may
// the evaluated order disagree with the key.
double Resolution(double a, double b) { return 1e-10 * (1 + std::abs(a) + std::abs(b)); }

class KeyOrderTest : public ::testing::TestWithParam<Decay> {};

TEST_P(KeyOrderTest, IsTheOrderOfDecayedPriorityAtEveryStep) {
  const uint64_t seed = 20260707;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  RandomStream random({.seed = seed});
  const Decay decay = GetParam();
  int decided = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    const Sample a = RandomSample(random, decay.floor);
    const Sample b = RandomSample(random, decay.floor);
    const PriorityKey key_a = KeyOf(decay, a.reward, a.birth, EntryId(1));
    const PriorityKey key_b = KeyOf(decay, b.reward, b.birth, EntryId(2));
    const LearnerStep later(std::max(a.birth, b.birth).value + random.NextBelow(300));
    const double p_a = PriorityAt(decay, a.reward, AgeAt(later, a.birth));
    const double p_b = PriorityAt(decay, b.reward, AgeAt(later, b.birth));
    if (std::abs(p_a - p_b) <= Resolution(p_a, p_b)) continue;
    ++decided;
    ASSERT_EQ(p_a < p_b, key_a < key_b)
        << a.reward << "@" << a.birth << " " << b.reward << "@" << b.birth << " at " << later;
  }
  EXPECT_GT(decided, 10'000);
}

TEST_P(KeyOrderTest, PriorityNeverRisesWithAge) {
  const Decay decay = GetParam();
  for (const double distance : {-1.5, -0.1, 0.0, 0.1, 2.5}) {
    double before = decay.floor + distance;
    for (uint64_t age = 0; age < 3000; ++age) {
      const double now = PriorityAt(decay, decay.floor + distance, age);
      ASSERT_LE(now, before) << distance << " at age " << age;
      before = now;
    }
  }
}

TEST_P(KeyOrderTest, FreshPriorityIsTheRewardToTheLastBit) {
  RandomStream random({.seed = 8});
  for (int trial = 0; trial < 10'000; ++trial) {
    const double reward = random.NextNormal();
    ASSERT_EQ(PriorityAt(GetParam(), reward, 0), reward);
  }
}

TEST_P(KeyOrderTest, EqualEntriesSortById) {
  const Decay decay = GetParam();
  const LearnerStep birth(7);
  for (const double reward : {decay.floor - 1, decay.floor, decay.floor + 1}) {
    EXPECT_LT(KeyOf(decay, reward, birth, EntryId(1)), KeyOf(decay, reward, birth, EntryId(2)));
  }
}

INSTANTIATE_TEST_SUITE_P(Decays, KeyOrderTest,
                         ::testing::Values(Decay{DecayForm::kMultiplicative, 0.98, 0},
                                           Decay{DecayForm::kMultiplicative, 0.999, -2.5},
                                           Decay{DecayForm::kMultiplicative, 1.0, 0.5},
                                           Decay{DecayForm::kSubtractive, 0.01, 0},
                                           Decay{DecayForm::kSubtractive, 0.0, 0}));

TEST(PriorityTest, BelowTheFloorStaysBelowEverythingAboveIt) {
  const Decay decay{DecayForm::kMultiplicative, 0.5, 0};
  const PriorityKey ancient = KeyOf(decay, 1e-300, LearnerStep(0), EntryId(9));
  EXPECT_LT(KeyOf(decay, 0, LearnerStep(1'000'000), EntryId(1)), ancient);
  EXPECT_LT(KeyOf(decay, -3, LearnerStep(0), EntryId(1)),
            KeyOf(decay, -2, LearnerStep(0), EntryId(2)));
}

// Promise: A failure never replaces a success.
TEST(PriorityTest, RewardsBelowTheFloorAgeToo) {
  const Decay decay{DecayForm::kMultiplicative, 0.5, 0};
  EXPECT_EQ(PriorityAt(decay, -1, 2), -4);
  EXPECT_EQ(PriorityAt(decay, 0, 2), 0) << "the floor itself has no distance to grow";
  EXPECT_LT(KeyOf(decay, -1, LearnerStep(0), EntryId(1)),
            KeyOf(decay, -1, LearnerStep(9), EntryId(2)))
      << "the newer of two equal rewards stays";
}

TEST(PriorityTest, RefusesRatesThatWouldRaiseOrLoseRewards) {
  EXPECT_FALSE(Validate({DecayForm::kMultiplicative, 1.01, 0}).ok());
  EXPECT_FALSE(Validate({DecayForm::kMultiplicative, 0, 0}).ok());
  EXPECT_FALSE(Validate({DecayForm::kSubtractive, -0.1, 0}).ok());
  EXPECT_FALSE(Validate({DecayForm::kMultiplicative, 0.9, std::nan("")}).ok());
  EXPECT_TRUE(Validate({DecayForm::kSubtractive, 0.1, 0}).ok());
}

}  // namespace
}  // namespace oxbow::replay
