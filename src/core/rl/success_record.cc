// SPDX-License-Identifier: Apache-2.0
#include "core/rl/success_record.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.h"

namespace oxbow::rl {
namespace {

constexpr uint32_t kPlanned = 2;  // StreamKey::sample; the shuffled order has 0 and 1.
constexpr uint32_t kExtraDraw = 3;

// A draw from Gamma(shape, 1) for a shape of at least 1.
double DrawGamma(RandomStream& random, double shape) {
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = random.NextNormal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    const double u = 1 - random.NextUniform();  // In (0, 1].
    if (std::log(u) < x * x / 2 + d * (1 - v + std::log(v))) return d * v;
  }
}

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

SuccessEvidence AgedTo(const SuccessEvidence& evidence, LearnerStep step) {
  if (step <= evidence.step) return evidence;
  const auto steps = static_cast<double>(step.value - evidence.step.value);
  const double kept = std::exp2(-steps / kEvidenceHalfLife);
  return {
      .successes = kept * evidence.successes, .failures = kept * evidence.failures, .step = step};
}

double SuccessRate(std::span<const double> rewards, double full) {
  OXBOW_CHECK(full > 0) << "full reward " << full;
  if (rewards.empty()) return 0;
  const auto share = [full](double reward) { return std::clamp(reward / full, 0.0, 1.0); };
  const auto count = static_cast<double>(rewards.size());
  double mean = 0;
  for (const double reward : rewards) mean += share(reward) / count;
  double variance = 0;
  for (const double reward : rewards) variance += std::pow(share(reward) - mean, 2) / count;
  const double apart = std::sqrt(std::max(0.0, 1 - 4 * variance));
  return mean < 0.5 ? (1 - apart) / 2 : (1 + apart) / 2;
}

double DrawBeta(RandomStream& random, double a, double b) {
  OXBOW_CHECK(a >= 1 && b >= 1) << "Beta(" << a << ", " << b << ")";
  const double x = DrawGamma(random, a);
  const double y = DrawGamma(random, b);
  return x / (x + y);
}

std::vector<uint32_t> RankByLearnability(std::span<const PromptEvidence> prompts, uint64_t seed,
                                         LearnerStep step, bool extra) {
  std::vector<std::tuple<double, PromptId, uint32_t>> order;
  order.reserve(prompts.size());
  for (const PromptEvidence& one : prompts) {
    RandomStream random({.seed = Mix64(seed ^ Mix64(one.prompt.value)),
                         .group = step.value,
                         .sample = extra ? kExtraDraw : kPlanned,
                         .step = kPromptOrder});
    const SuccessEvidence now = AgedTo(one.evidence, step);
    const double p = DrawBeta(random, 1 + now.successes, 1 + now.failures);
    order.emplace_back(std::abs(p - 0.5), one.prompt, static_cast<uint32_t>(order.size()));
  }
  std::sort(order.begin(), order.end());
  std::vector<uint32_t> places;
  places.reserve(order.size());
  for (const auto& ranked : order) places.push_back(std::get<uint32_t>(ranked));
  return places;
}

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
