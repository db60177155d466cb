#include "core/rl/step_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "base/philox.h"
#include "core/flow/truncation.h"

namespace oxbow::rl {
namespace {

std::vector<int> StochasticSteps(const flow::SamplingSpec& spec) {
  std::vector<int> steps;
  for (int i = 0; i < spec.steps(); ++i) {
    if (flow::KernelAt(spec, i).scale > 0) steps.push_back(i);
  }
  return steps;
}

// T_train of the denominator: fresh samples of this learner step have so many stochastic steps. A
// replayed head has those of the window it was drawn with.
int TrainedSteps(const TrainerOptions& options, LearnerStep step, const std::vector<int>& steps) {
  if (!options.window.has_value()) return static_cast<int>(steps.size());
  return static_cast<int>(flow::WindowAt(*options.window, options.run_seed, step.value).size());
}

int StaleSteps(const TrainerOptions& options) {
  return options.kept_steps > 0 ? options.kept_steps
                                : flow::KeptSteps(options.sampling, options.kept_kc_max);
}

// Dies where a sample does not fit the spec: whoever received it has validated it.
void CheckShape(const Sample& sample, size_t steps) {
  OXBOW_CHECK(sample.sde.size() == steps && sample.log_prob.size() == steps &&
              sample.behaviour_version.size() == steps)
      << "sample " << sample.index << " does not have " << steps << " steps";
}

bool HasTransition(const Sample& sample, int step) {
  return step >= sample.first_latent && step + 1 - sample.first_latent < sample.latents.size(0);
}

Origin OriginOf(const Sample& sample, const std::vector<int>& steps, PolicyVersion version) {
  if (sample.replayed) return Origin::kReplay;
  const bool stale = std::any_of(steps.begin(), steps.end(), [&](int i) {
    return sample.behaviour_version[static_cast<size_t>(i)] != version.value;
  });
  return stale ? Origin::kStale : Origin::kFresh;
}

PlannedSample PlanSample(const TrainerOptions& options, const Sample& sample,
                         const std::vector<int>& steps, PolicyVersion version) {
  CheckShape(sample, static_cast<size_t>(options.sampling.steps()));
  PlannedSample planned{.origin = OriginOf(sample, steps, version)};
  const bool bypass = options.correction == Correction::kBypass && planned.origin == Origin::kStale;
  const bool recompute = options.correction != Correction::kNaive && !bypass;
  const int head = sample.replayed ? sample.kept_steps : StaleSteps(options);
  planned.weighted =
      planned.origin != Origin::kFresh && !bypass &&
      (options.correction == Correction::kSequence || options.correction == Correction::kBypass);
  for (const int i : steps) {
    const auto at_step = static_cast<size_t>(i);
    if (!sample.sde[at_step] || !HasTransition(sample, i)) continue;
    if (planned.origin == Origin::kStale && !bypass && i >= head) continue;
    const bool on_policy = sample.behaviour_version[at_step] == version.value;
    planned.rows.push_back({.step = i,
                            .on_policy = on_policy,
                            .in_weight = planned.weighted && i < head,
                            .needs_old = recompute && !on_policy,
                            .log_prob_behaviour = sample.log_prob[at_step],
                            .log_prob_old = sample.log_prob[at_step]});
  }
  return planned;
}

std::vector<std::vector<std::optional<double>>> RewardsOf(const std::vector<Group>& groups) {
  std::vector<std::vector<std::optional<double>>> rewards;
  for (const Group& group : groups) {
    auto& row = rewards.emplace_back();
    for (const Sample& sample : group.samples) {
      row.push_back(sample.reward_failed ? std::nullopt : std::optional<double>(sample.reward));
    }
  }
  return rewards;
}

// Fisher-Yates, then equal slices: update u gets samples [u n / U, (u + 1) n / U).
std::vector<std::vector<size_t>> SplitIntoUpdates(size_t count, int updates, uint64_t seed,
                                                  LearnerStep step) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  RandomStream stream({.seed = seed, .group = step.value, .step = kShuffle});
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[stream.NextBelow(i)]);
  std::vector<std::vector<size_t>> split;
  const auto parts = static_cast<size_t>(updates);
  for (size_t u = 0; u < parts; ++u) {
    split.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(u * count / parts),
                       order.begin() + static_cast<std::ptrdiff_t>((u + 1) * count / parts));
  }
  return split;
}

}  // namespace

StepPlan PlanStep(const TrainerOptions& options, LearnerStep step, PolicyVersion version,
                  const std::vector<Group>& groups) {
  const std::vector<int> steps = StochasticSteps(options.sampling);
  StepPlan plan{.groups = ComputeAdvantages(RewardsOf(groups), {.std = options.advantage_std,
                                                                .clip = options.advantage_clip}),
                .trained_steps = TrainedSteps(options, step, steps)};
  for (size_t g = 0; g < groups.size(); ++g) {
    const bool signal = plan.groups[g].has_variance;
    for (size_t s = 0; s < groups[g].samples.size(); ++s) {
      const Sample& sample = groups[g].samples[s];
      if (sample.reward_failed) continue;
      plan.samples_counted += signal || options.zero_variance == ZeroVariance::kMeanOverAll;
      if (!signal) continue;
      PlannedSample planned = PlanSample(options, sample, steps, version);
      if (planned.rows.empty()) continue;
      planned.group = g;
      planned.sample = s;
      planned.advantage = plan.groups[g].advantages[s];
      plan.samples.push_back(std::move(planned));
    }
  }
  plan.updates = SplitIntoUpdates(plan.samples.size(), options.updates, options.run_seed, step);
  return plan;
}

}  // namespace oxbow::rl
