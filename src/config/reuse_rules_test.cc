// SPDX-License-Identifier: Apache-2.0
// Rules of the forms of reuse (reuse_rules.h).
#include "config/reuse_rules.h"

#include <gtest/gtest.h>

#include "config/rule_case.h"

namespace oxbow::config {
namespace {

class ReuseRuleTest : public ::testing::TestWithParam<RuleCase> {};

TEST_P(ReuseRuleTest, IsTheOnlyProblemReported) { ExpectOnlyProblem(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    ReuseRules, ReuseRuleTest,
    ::testing::Values(RuleCase{"LearnableDrawOfNothing",
                               {"replay.fraction=0", "replay.draw=learnable"},
                               kWarning,
                               "replay.draw",
                               "while replay.fraction is 0"},
                      RuleCase{"BestDrawOfNothing",
                               {"replay.fraction=0", "replay.draw=best"},
                               kWarning,
                               "replay.draw",
                               "while replay.fraction is 0"},
                      RuleCase{"TheVarianceOfOneEntry",
                               {"replay.draw=varied", "batch.groups=8", "replay.fraction=0.125"},
                               kWarning,
                               "replay.draw",
                               "one reward has no variance"},
                      RuleCase{"PassesOverNothing",
                               {"replay.fraction=0", "replay.passes=3"},
                               kWarning,
                               "replay.passes",
                               "nothing is replayed"},
                      RuleCase{"ReincarnationBesideAdaptation",
                               {"adaptation.enabled=true", "replay.reincarnate_after=5"},
                               kError,
                               "replay.reincarnate_after",
                               "adaptation.enabled to false"},
                      RuleCase{"ReincarnationAfterTheEnd",
                               {"run.steps=20", "replay.reincarnate_after=20"},
                               kWarning,
                               "replay.reincarnate_after",
                               "run.steps = 20"},
                      RuleCase{
                          "ReincarnationOfNothing",
                          {"replay.fraction=0", "method.kl_weight=0", "replay.reincarnate_after=5"},
                          kWarning,
                          "replay.reincarnate_after",
                          "no reference"},
                      RuleCase{"LearnableDrawOfImages",
                               {"method.name=awm", "replay.draw=learnable"},
                               kWarning,
                               "replay.draw",
                               "uniform with awm"},
                      RuleCase{"LearnableDrawOfStoredTails",
                               {"sampling.tail=stored", "replay.draw=learnable"},
                               kWarning,
                               "replay.draw",
                               "sampling.tail: stored"},
                      RuleCase{"AnchorOfAddedSuccesses",
                               {"method.anchor.weight=0.1", "replay.fraction=0", "replay.added=8"},
                               kError,
                               "replay.added",
                               "final images"},
                      RuleCase{"AddedBesideAdaptation",
                               {"adaptation.enabled=true", "replay.added=8"},
                               kError,
                               "replay.added",
                               "adaptation.enabled to false"},
                      RuleCase{"LateBindingBesideAdaptation",
                               {"adaptation.enabled=true", "replay.late_binding=true"},
                               kError,
                               "replay.late_binding",
                               "adaptation.enabled to false"},
                      RuleCase{"AddedOfUnequalRanks",
                               {"replay.added=7", "learner.ranks=2"},
                               kError,
                               "replay.added",
                               "multiple of learner.ranks"},
                      RuleCase{"BranchesThatAreAlike",
                               {"replay.branches=4"},
                               kError,
                               "replay.branches",
                               "sampling.tail to sde"},
                      RuleCase{"BranchesOfImages",
                               {"replay.branches=4", "sampling.tail=sde", "method.name=awm"},
                               kError,
                               "replay.branches",
                               "no tail"},
                      RuleCase{"AGroupOfBranchesAlone",
                               {"replay.branches=8", "batch.group_size=8", "sampling.tail=sde"},
                               kError,
                               "replay.branches",
                               "a fresh sample"},
                      RuleCase{"NeedOfNoReplay",
                               {"replay.by_need=true", "replay.fraction=0"},
                               kWarning,
                               "replay.by_need",
                               "no effect"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace oxbow::config
