// SPDX-License-Identifier: Apache-2.0
// Rules of options of single methods: compressed steps, the pull towards the policy before the
// step, V-GRPO's ablations.
#include <gtest/gtest.h>

#include "tests/testing/rule_case.h"

namespace oxbow::config {
namespace {

class OptionRuleTest : public ::testing::TestWithParam<RuleCase> {};

TEST_P(OptionRuleTest, IsTheOnlyProblemReported) { ExpectOnlyProblem(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    OptionRules, OptionRuleTest,
    ::testing::Values(
        RuleCase{"SamplesOfNoOldPolicy",
                 {"method.sample_from=old"},
                 kError,
                 "method.sample_from",
                 "grpo keeps no running old policy"},
        RuleCase{"NftSamplesOfTheOldPolicy",
                 {"method.name=nft", "replay.fraction=0", "method.sample_from=current"},
                 kError,
                 "method.sample_from",
                 "must be auto or old: nft"},
        RuleCase{"CompressionOfNothing",
                 {"sampling.compression.share=0"},
                 kError,
                 "sampling.compression.share",
                 "must be in (0, 1]"},
        RuleCase{"CompressionWithoutAWindow",
                 {"method.name=awm", "replay.fraction=0", "sampling.dynamics=ode",
                  "sampling.compression.share=0.5"},
                 kError,
                 "sampling.compression.share",
                 "ode has none"},
        RuleCase{
            "CompressionOfAStretchedGrid",
            {"sampling.compression.share=0.5", "sampling.shift=3", "sampling.shift_terminal=0.1"},
            kError,
            "sampling.compression.share",
            "stretched grid"},
        RuleCase{"CompressionUnderAnAnchor",
                 {"sampling.compression.share=0.5", "method.anchor.weight=0.1"},
                 kError,
                 "sampling.compression.share",
                 "from the window to the picture"},
        RuleCase{"CompressionOfTheLastStep",
                 {"sampling.compression.share=0.5", "sampling.sde_first=0", "sampling.sde_count=9"},
                 kWarning,
                 "sampling.compression.share",
                 "end the window before"},
        RuleCase{"CarryOfNoStep",
                 {"sampling.compression.carry=true"},
                 kWarning,
                 "sampling.compression.carry",
                 "without compressed steps"},
        RuleCase{"APrecedentOfNothing",
                 {"method.kl_precedent=0.5", "method.kl_weight=0"},
                 kWarning,
                 "method.kl_precedent",
                 "method.kl_weight is 0"},
        RuleCase{"APrecedentThatNeverPulls",
                 {"method.kl_precedent=0.5", "method.kl_weight=0.1", "batch.updates=1"},
                 kWarning,
                 "method.kl_precedent",
                 "pulls at no update"},
        RuleCase{"MoreThanAPrecedent",
                 {"method.kl_precedent=1.5", "method.kl_weight=0.1"},
                 kError,
                 "method.kl_precedent",
                 "share of method.kl_weight"},
        RuleCase{"APredictionUnderTheBound",
                 {"recipe=digits-v-grpo", "method.v_grpo.weight=bound",
                  "method.v_grpo.prediction=noise"},
                 kWarning,
                 "method.v_grpo.prediction",
                 "all are the same"}),
    [](const auto& info) { return info.param.name; });

TEST(UpdatesPerStepTest, AStepHasTheUpdatesOfItsPassesAndOneForEachFurtherPassOverWhatIsReplayed) {
  const auto updates = [](std::vector<std::string> set) {
    set.insert(set.end(), {"batch.updates=2", "batch.passes=3"});
    return UpdatesPerStep(ValidRun(set).config);
  };
  EXPECT_EQ(updates({}), 6u);
  EXPECT_EQ(updates({"replay.passes=2"}), 6u);
  EXPECT_EQ(updates({"replay.passes=5"}), 8u);
  EXPECT_EQ(updates({"replay.passes=5", "replay.fraction=0"}), 6u) << "nothing is replayed";
}

}  // namespace
}  // namespace oxbow::config
