// SPDX-License-Identifier: Apache-2.0
#include "core/rl/success_record.h"

#include <algorithm>

#include "base/check.h"

namespace oxbow::rl {
namespace {

void AddTo(SuccessRecord::Evidence& known, const GroupOutcome& outcome) {
  SuccessEvidence& evidence = known[outcome.prompt];
  evidence = AgedTo(evidence, outcome.step);
  evidence.step = outcome.step;
  evidence.successes += outcome.successes;
  evidence.failures += outcome.failures;
}

// The first outcome of `step` or later.
auto FirstOf(const std::vector<GroupOutcome>& outcomes, LearnerStep step) {
  return std::lower_bound(
      outcomes.begin(), outcomes.end(), step,
      [](const GroupOutcome& outcome, LearnerStep bound) { return outcome.step < bound; });
}

}  // namespace

GroupOutcome OutcomeOf(LearnerStep step, PromptId prompt, std::span<const double> rewards,
                       double full) {
  const auto count = static_cast<double>(rewards.size());
  const double successes = count * SuccessRate(rewards, full);
  return {.step = step, .prompt = prompt, .successes = successes, .failures = count - successes};
}

void SuccessRecord::Add(const std::vector<GroupOutcome>& outcomes) {
  for (const GroupOutcome& outcome : outcomes) {
    OXBOW_CHECK(recent_.empty() || recent_.back().step <= outcome.step)
        << "outcome of step " << outcome.step << " after " << recent_.back().step;
    recent_.push_back(outcome);
  }
}

void SuccessRecord::Settle(LearnerStep first) {
  const auto end = FirstOf(recent_, first);
  std::for_each(recent_.cbegin(), end,
                [this](const GroupOutcome& outcome) { AddTo(settled_, outcome); });
  recent_.erase(recent_.cbegin(), end);
}

SuccessRecord::Evidence SuccessRecord::KnownBefore(LearnerStep step) const {
  Evidence known = settled_;
  std::for_each(recent_.cbegin(), FirstOf(recent_, step),
                [&known](const GroupOutcome& outcome) { AddTo(known, outcome); });
  return known;
}

}  // namespace oxbow::rl
