// SPDX-License-Identifier: Apache-2.0
// Rules of groups that are trees.
#include <gtest/gtest.h>

#include "config/rules.h"
#include "tests/testing/rule_case.h"

namespace oxbow::config {
namespace {

class BranchRuleTest : public ::testing::TestWithParam<RuleCase> {};

// The smallest valid trees on the base of the cases, and what a case changes.
std::vector<std::string> WithTrees(const std::vector<std::string>& change) {
  std::vector<std::string> set = {"sampling.split_steps=[0,2]", "replay.fraction=0",
                                  "off_policy.staleness_max=0", "method.kl_all_steps=true"};
  set.insert(set.end(), change.begin(), change.end());
  return set;
}

// Promise: Trees share steps and change no bit.

TEST(BranchRuleTest, ASmallForestIsValid) {
  for (const char* method : {"grpo", "guard", "dppo"}) {
    const std::string name = std::string("method.name=") + method;
    const ResolvedConfig run = ValidRun(WithTrees({name, "method.clip_range=1e-5"}));
    for (const Problem& problem : Validate(run.config)) {
      ADD_FAILURE() << method << ": " << ProblemLine(problem, run.provenance);
    }
  }
}

TEST_P(BranchRuleTest, IsTheOnlyProblemReported) {
  RuleCase rule = GetParam();
  if (rule.set.front() != "no trees") rule.set = WithTrees(rule.set);
  if (rule.set.front() == "no trees") rule.set.erase(rule.set.begin());
  ExpectOnlyProblem(rule);
}

INSTANTIATE_TEST_SUITE_P(
    BranchRules, BranchRuleTest,
    ::testing::Values(
        RuleCase{"ASplitOutsideTheWindow",
                 {"sampling.split_steps=[0,7]"},
                 kError,
                 "sampling.split_steps",
                 "rising steps of the stochastic ones"},
        RuleCase{"SplitsThatFall",
                 {"sampling.split_steps=[2,0]"},
                 kError,
                 "sampling.split_steps",
                 "rising steps"},
        RuleCase{"AWindowThatMoves",
                 {"sampling.window.kind=random"},
                 kError,
                 "sampling.split_steps",
                 "window.kind to all or fixed"},
        RuleCase{"AGroupThatIsNoRowOfTrees",
                 {"batch.group_size=6"},
                 kError,
                 "batch.group_size",
                 "2^2, got 6"},
        RuleCase{
            "OneChild", {"sampling.split_width=1"}, kError, "sampling.split_width", "at least 2"},
        RuleCase{"OneRatioPerSample",
                 {"method.name=gspo"},
                 kError,
                 "sampling.split_steps",
                 "grpo, guard or dppo"},
        RuleCase{"FinalImages",
                 {"method.name=awm", "method.kl_all_steps=false"},
                 kError,
                 "sampling.split_steps",
                 "final images"},
        RuleCase{"ReplayedHeads",
                 {"replay.fraction=0.25"},
                 kError,
                 "sampling.split_steps",
                 "replay.fraction and"},
        RuleCase{"ChosenGroups",
                 {"adaptation.enabled=true"},
                 kError,
                 "sampling.split_steps",
                 "adaptation.enabled to"},
        RuleCase{"StaleGroups",
                 {"off_policy.staleness_max=1"},
                 kError,
                 "sampling.split_steps",
                 "staleness_max to 0"},
        RuleCase{"AShareOfSteps",
                 {"method.step_fraction=0.6"},
                 kError,
                 "method.step_fraction",
                 "method.branch.pruned_steps"},
        RuleCase{"AKlOfOneStep",
                 {"method.kl_all_steps=false", "method.kl_weight=0.1"},
                 kError,
                 "method.kl_all_steps",
                 "must be true"},
        RuleCase{"NothingLeftToTrain",
                 {"method.branch.pruned_steps=[0,1,2,3,4]"},
                 kError,
                 "method.branch.pruned_steps",
                 "leave one to train"},
        RuleCase{"OnlyStepsOfOneNodeLeftToTrain",
                 {"sampling.split_steps=[3]", "sampling.split_width=4", "batch.group_size=4",
                  "method.branch.pruned_steps=[3,4]"},
                 kError,
                 "method.branch.pruned_steps",
                 "more than one node: 3, 4; got 3, 4"},
        RuleCase{"NoLeafKept", {"method.branch.kept=0"}, kError, "method.branch.kept", "(0, 1]"},
        RuleCase{"PruningWithoutTrees",
                 {"no trees", "method.branch.pruning=best"},
                 kWarning,
                 "method.branch",
                 "sampling.split_steps"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace oxbow::config
