// SPDX-License-Identifier: Apache-2.0
// Every row of the facts has a class, and the two agree.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/parallel/ranks.h"
#include "core/rl/method.h"
#include "core/rl/policy_gradient.h"
#include "tests/testing/toy_policy.h"

namespace oxbow::rl {
namespace {

TrainerOptions OptionsOf(size_t place) {
  TrainerOptions options;
  options.sampling = {.sigmas = flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, 4, 3),
                      .sde = {true, true, false, false}};
  options.method = static_cast<MethodKind>(place);
  return options;
}

TEST(MethodTableTest, EveryMethodHasAClassOfItsFamily) {
  const auto ranks = parallel::MakeSingleRank();
  const ToyPolicy policy;
  for (size_t i = 0; i < AllMethods().size(); ++i) {
    const MethodFacts& facts = AllMethods()[i];
    const TrainerOptions options = OptionsOf(i);
    const auto method = MakeMethod(options, policy, *ranks);
    EXPECT_EQ(&FactsOf(options.method), &facts);
    EXPECT_EQ(method->has_ratio(), facts.ratio != RatioUse::kNone) << facts.name;
    EXPECT_EQ(dynamic_cast<PolicyGradient*>(method.get()) != nullptr, facts.needs_density())
        << facts.name;
  }
}

TEST(MethodTableTest, NamesDiffer) {
  std::set<std::string> names;
  for (const MethodFacts& facts : AllMethods()) names.insert(facts.name);
  EXPECT_EQ(names.size(), AllMethods().size());
}

TEST(MethodTableTest, AMethodWhoseRatioIsLimitedSaysHow) {
  for (const MethodFacts& facts : AllMethods()) {
    EXPECT_EQ(facts.clip.max > 0, facts.ratio != RatioUse::kNone) << facts.name;
    EXPECT_EQ(std::string(facts.clip.rule).empty(), facts.ratio == RatioUse::kNone) << facts.name;
  }
}

TEST(MethodSettingsTest, AGivenSectionHasEveryKey) {
  const MethodSettings none;
  EXPECT_EQ(none.Get("beta", 2.5), 2.5);
  const MethodSettings given{{{"beta", 0.5}, {"flag", 1}, {"kind", 1}}};
  EXPECT_EQ(given.Get("beta", 2.5), 0.5);
  EXPECT_TRUE(given.Get("flag", false));
  EXPECT_EQ(given.Get("kind", KlSpace::kVelocity), KlSpace::kMean);
  EXPECT_DEATH((void)given.Get("gamma", 1.), "no setting gamma");
}

}  // namespace
}  // namespace oxbow::rl
