#include "core/rl/step_report.h"
#include "metrics/step_metrics.h"

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
  metrics[metric::kTrainRewardMean] = reward.mean();
  metrics[metric::kTrainRewardStd] = reward.std();
  for (const auto& [name, summary] : by_name) {
    metrics[metric::kTrainRewardNameMean.Of(name)] = summary.mean();
  }
  metrics[metric::kTrainGroupDistanceMean] = distance.mean();
  metrics[metric::kTrainNicheShareMean] = niche.mean();
  metrics[metric::kTrainRewardZeroStdRatio] = without_variance.mean();
  metrics[metric::kTrainRewardGroupStdMean] = group_std.mean();
  if (change.count > 0) metrics[metric::kTrainReplayRewardChange] = change.mean();
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
  metrics[metric::kTrainAdvMin] = advantage.smallest;
  metrics[metric::kTrainAdvMax] = advantage.largest;
  metrics[metric::kTrainAdvAbsMean] = size.mean();
  metrics[metric::kTrainStalenessMean] = staleness.mean();
  metrics[metric::kTrainStalenessMax] = staleness.largest;
  metrics[metric::kTrainSamplesTrained] = static_cast<double>(trained);
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
  metrics[metric::kTrainIwMean] = summary.mean();
  metrics[metric::kTrainIwMin] = summary.smallest;
  metrics[metric::kTrainIwMax] = summary.largest;
  metrics[metric::kTrainIwEss] = EffectiveSampleSize(values);
  metrics[metric::kTrainIwTruncFrac] = truncated.mean();
}

}  // namespace oxbow::rl
