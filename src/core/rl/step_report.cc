#include "core/rl/step_report.h"

#include <algorithm>
#include <cmath>

namespace oxbow::rl {
namespace {

struct Summary {
  int64_t count = 0;
  double sum = 0;
  double squares = 0;
  double smallest = 0;
  double largest = 0;

  void Add(double value) {
    smallest = count == 0 ? value : std::min(smallest, value);
    largest = count == 0 ? value : std::max(largest, value);
    ++count;
    sum += value;
    squares += value * value;
  }
  double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
  double std() const {
    return count == 0
               ? 0
               : std::sqrt(std::max(0., squares / static_cast<double>(count) - mean() * mean()));
  }
};

void AppendRewards(const std::vector<Group>& groups, const StepPlan& plan,
                   std::map<std::string, double>& metrics) {
  Summary reward;
  Summary change;
  Summary distance;
  Summary niche;
  std::map<std::string, Summary> by_name;
  for (const Group& group : groups) {
    for (const Sample& sample : group.samples) {
      if (sample.reward_failed) continue;
      reward.Add(sample.reward);
      distance.Add(sample.group_distance);
      niche.Add(sample.niche_share);
      for (const auto& [name, value] : sample.rewards) by_name[name].Add(value);
      if (sample.replayed) change.Add(sample.reward - sample.stored_reward);
    }
  }
  Summary group_std;
  Summary without_variance;
  for (const GroupAdvantages& group : plan.groups) {
    group_std.Add(group.std);
    without_variance.Add(group.has_variance ? 0 : 1);
  }
  metrics["train/reward_mean"] = reward.mean();
  metrics["train/reward_std"] = reward.std();
  for (const auto& [name, summary] : by_name) {
    metrics["train/reward_" + name + "_mean"] = summary.mean();
  }
  metrics["train/group_distance_mean"] = distance.mean();
  metrics["train/niche_share_mean"] = niche.mean();
  metrics["train/reward_zero_std_ratio"] = without_variance.mean();
  metrics["train/reward_group_std_mean"] = group_std.mean();
  if (change.count > 0) metrics["train/replay_reward_change"] = change.mean();
}

}  // namespace

void AppendPlanMetrics(const TrainerOptions& options, PolicyVersion version,
                       const std::vector<Group>& groups, const StepPlan& plan,
                       std::map<std::string, double>& metrics) {
  AppendRewards(groups, plan, metrics);
  Summary advantage;
  Summary size;
  Summary staleness;
  int64_t trained = 0;
  for (const PlannedSample& planned : plan.samples) {
    advantage.Add(planned.advantage);
    size.Add(std::abs(planned.advantage));
    trained += planned.weight > 0;
    const Sample& sample = groups[planned.group].samples[planned.sample];
    if (sample.replayed) continue;
    staleness.Add((static_cast<double>(version.value) - static_cast<double>(planned.drawn)) /
                  options.UpdatesPerStep());
  }
  metrics["train/adv_min"] = advantage.smallest;
  metrics["train/adv_max"] = advantage.largest;
  metrics["train/adv_abs_mean"] = size.mean();
  metrics["train/staleness_mean"] = staleness.mean();
  metrics["train/staleness_max"] = staleness.largest;
  metrics["train/samples_trained"] = static_cast<double>(trained);
}

void AppendWeightMetrics(const std::vector<SequenceWeight>& weights,
                         std::map<std::string, double>& metrics) {
  if (weights.empty()) return;
  Summary summary;
  Summary truncated;
  std::vector<double> values;
  for (const SequenceWeight& weight : weights) {
    summary.Add(weight.weight);
    truncated.Add(weight.truncated ? 1 : 0);
    values.push_back(weight.weight);
  }
  metrics["train/iw_mean"] = summary.mean();
  metrics["train/iw_min"] = summary.smallest;
  metrics["train/iw_max"] = summary.largest;
  metrics["train/iw_ess"] = EffectiveSampleSize(values);
  metrics["train/iw_trunc_frac"] = truncated.mean();
}

}  // namespace oxbow::rl
