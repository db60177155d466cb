// SPDX-License-Identifier: Apache-2.0
#include "core/rl/step_metrics.h"

#include <algorithm>
#include <cmath>

#include "metrics/step_metrics.h"

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

void AppendRewards(const std::vector<Group>& groups, const TrainingPlan& plan,
                   std::map<std::string, double>& metrics) {
  Summary reward;
  Summary of_chosen;
  Summary change;
  Summary distance;
  Summary duplicates;
  std::map<std::string, Summary> by_name;
  std::vector<int64_t> scored(groups.size(), 0);
  // A step may have none, where the groups that it chose displace all others.
  const bool any = std::any_of(groups.begin(), groups.end(),
                               [](const Group& group) { return group.from_data_set; });
  for (size_t g = 0; g < groups.size(); ++g) {
    const Group& group = groups[g];
    for (const Trajectory& trajectory : group.trajectories) {
      if (trajectory.reward_failed) continue;
      if (group.success_rate.has_value()) continue;
      ++scored[g];
      distance.Add(trajectory.group_distance);
      duplicates.Add(trajectory.duplicate_share);
      if (trajectory.replayed) change.Add(trajectory.reward - trajectory.stored_reward);
      const bool chosen = !group.from_data_set || trajectory.replayed;
      if (chosen) of_chosen.Add(trajectory.reward);
      if (any && chosen) continue;
      reward.Add(trajectory.reward);
      for (const auto& [name, value] : trajectory.rewards) by_name[name].Add(value);
    }
  }
  Summary group_std;
  Summary without_variance;
  size_t added = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].success_rate.has_value()) {
      added += groups[g].trajectories.size();
      continue;
    }
    group_std.Add(plan.groups[g].std);
    if (scored[g] > 1) without_variance.Add(plan.groups[g].has_variance ? 0 : 1);
  }
  if (added > 0) {
    metrics[metric::kTrainAddedSamples] = static_cast<double>(added);
    metrics[metric::kTrainAddedScale] = plan.added_scale;
  }
  metrics[metric::kTrainRewardMean] = reward.mean();
  metrics[metric::kTrainRewardStd] = reward.std();
  for (const auto& [name, summary] : by_name) {
    metrics[metric::kTrainRewardNameMean.Of(name)] = summary.mean();
    metrics[metric::kTrainRewardNameStd.Of(name)] = summary.std();
  }
  metrics[metric::kTrainGroupDistanceMean] = distance.mean();
  metrics[metric::kTrainDuplicateShareMean] = duplicates.mean();
  if (without_variance.count > 0) {
    metrics[metric::kTrainRewardZeroStdRatio] = without_variance.mean();
  }
  metrics[metric::kTrainRewardGroupStdMean] = group_std.mean();
  if (of_chosen.count > 0) metrics[metric::kTrainChosenRewardMean] = of_chosen.mean();
  if (change.count > 0) metrics[metric::kTrainReplayRewardChange] = change.mean();
}

// The advantages of a sample: in trees each of its rows has one of its own.
std::vector<double> AdvantagesOf(const TrainingPlan& plan, const PlannedTrajectory& planned) {
  if (!plan.edges_counted.has_value()) return {planned.advantage};
  std::vector<double> advantages;
  for (const PlannedRow& row : planned.rows) {
    if (row.trained) advantages.push_back(planned.advantage - row.baseline);
  }
  return advantages;
}

// The KL-convex constraint: a weighted mean of both divergences.
double KlLoss(const KlOptions& options, double reference, double precedent) {
  return options.weight * ((1 - options.precedent) * reference + options.precedent * precedent);
}

}  // namespace

void AppendPlanMetrics(const TrainerOptions& options, PolicyVersion version,
                       const std::vector<Group>& groups, const TrainingPlan& plan,
                       std::map<std::string, double>& metrics) {
  AppendRewards(groups, plan, metrics);
  Summary advantage;
  Summary size;
  Summary staleness;
  double oldest = 0;
  int64_t trained = 0;
  for (const PlannedTrajectory& planned : plan.trajectories) {
    for (const double value : AdvantagesOf(plan, planned)) {
      advantage.Add(value);
      size.Add(std::abs(value));
    }
    trained += planned.weight > 0;
    const Trajectory& trajectory = groups[planned.group].trajectories[planned.trajectory];
    if (trajectory.replayed) continue;
    const auto age = [&](double drawn) {
      return (static_cast<double>(version.value) - drawn) / options.UpdatesPerStep();
    };
    staleness.Add(age(planned.drawn));
    oldest = std::max(oldest, age(planned.oldest));
  }
  metrics[metric::kTrainAdvMin] = advantage.smallest;
  metrics[metric::kTrainAdvMax] = advantage.largest;
  metrics[metric::kTrainAdvAbsMean] = size.mean();
  metrics[metric::kTrainStalenessMean] = staleness.mean();
  metrics[metric::kTrainStalenessMax] = oldest;
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

void RatioStatistics::Add(Origin origin, int step, double log_ratio, double advantage,
                          ClipRange clip) {
  const double excess = std::expm1(log_ratio);
  const bool high = excess > clip.high;
  const bool low = excess < -clip.low;
  for (Count* count : {&by_origin_[static_cast<size_t>(origin)], &by_step_[step]}) {
    ++count->rows;
    count->clipped += high || low;
  }
  high_ += high;
  low_ += low;
  silenced_ += (high && advantage > 0) || (low && advantage < 0);
  ratio_min_ = rows_ == 0 ? 1 + excess : std::min(ratio_min_, 1 + excess);
  ratio_max_ = rows_ == 0 ? 1 + excess : std::max(ratio_max_, 1 + excess);
  ++rows_;
  excess_sum_ += excess;
  excess_squares_ += excess * excess;
  log_squares_ += log_ratio * log_ratio;
}

double RatioStatistics::Share(const Count& count) {
  return static_cast<double>(count.clipped) / static_cast<double>(count.rows);
}

void RatioStatistics::AppendMetrics(std::map<std::string, double>& metrics) const {
  if (rows_ == 0) return;
  const auto rows = static_cast<double>(rows_);
  const double mean = excess_sum_ / rows;
  metrics[metric::kTrainRatioMean] = 1 + mean;
  metrics[metric::kTrainRatioStd] = std::sqrt(std::max(0., excess_squares_ / rows - mean * mean));
  metrics[metric::kTrainRatioMin] = ratio_min_;
  metrics[metric::kTrainRatioMax] = ratio_max_;
  metrics[metric::kTrainApproxKl] = 0.5 * log_squares_ / rows;
  metrics[metric::kTrainClipFracTotal] = static_cast<double>(high_ + low_) / rows;
  metrics[metric::kTrainClipFracHigh] = static_cast<double>(high_) / rows;
  metrics[metric::kTrainClipFracLow] = static_cast<double>(low_) / rows;
  metrics[metric::kTrainClipFracZeroGrad] = static_cast<double>(silenced_) / rows;
  const std::array<metric::StepMetric, 3> clipped = {
      metric::kTrainClipFracFresh, metric::kTrainClipFracStale, metric::kTrainClipFracReplay};
  for (size_t o = 0; o < clipped.size(); ++o) {
    if (by_origin_[o].rows > 0) metrics[clipped[o]] = Share(by_origin_[o]);
  }
  for (const auto& [step, count] : by_step_) {
    metrics[metric::kTrainClipFracStepN.Of(std::to_string(step))] = Share(count);
  }
}

void LogProbsByStep::Add(const RowRef& ref, double centre_error) {
  const bool replayed = ref.trajectory->origin == Origin::kReplay;
  if (replayed && ref.row->on_policy) return;
  Sum& sum = (replayed ? replayed_ : drawn_)[ref.row->step];
  ++sum.rows;
  sum.log_probs += ref.row->log_prob_behaviour + centre_error;
}

void LogProbsByStep::AppendMetrics(std::map<std::string, double>& metrics) const {
  const auto append = [&](const metric::StepMetricFamily& family, const std::map<int, Sum>& sums) {
    for (const auto& [step, sum] : sums) {
      metrics[family.Of(std::to_string(step))] = sum.log_probs / static_cast<double>(sum.rows);
    }
  };
  append(metric::kTrainLogProbDrawnStepN, drawn_);
  append(metric::kTrainLogProbReplayStepN, replayed_);
}

void SurrogateSpread::Add(const RowRef& ref, double surrogate) {
  auto& [sum, rows] = samples_[ref.address.group][ref.address.trajectory];
  sum += surrogate;
  ++rows;
}

void SurrogateSpread::AppendMetrics(std::map<std::string, double>& metrics) const {
  Summary spreads;
  for (const auto& [group, samples] : samples_) {
    Summary means;
    for (const auto& [sample, of] : samples) means.Add(of.first / static_cast<double>(of.second));
    if (means.count > 1) spreads.Add(means.std() / means.mean());
  }
  if (spreads.count > 0) metrics[metric::kTrainSurrogateCv] = spreads.mean();
}

double StepTotals::Count(size_t update, const std::vector<RowRef>& refs,
                         const std::vector<RowOutcome>& outcomes,
                         const LossDenominators& denominators) {
  RowOutcome sum;
  for (size_t r = 0; r < refs.size(); ++r) {
    const RowRef& ref = refs[r];
    sum.policy_loss += outcomes[r].policy_loss;
    sum.kl += outcomes[r].kl;
    sum.kl_precedent += outcomes[r].kl_precedent;
    sum.old_kl += outcomes[r].old_kl;
    sum.anchor += outcomes[r].anchor;
    if (update == 0 && outcomes[r].surrogate > 0) surrogates_.Add(ref, outcomes[r].surrogate);
    if (!has_ratio_) continue;
    const double log_ratio = outcomes[r].log_ratio;
    ratios_.Add(ref.trajectory->origin, ref.row->step, log_ratio,
                ref.trajectory->advantage - ref.row->baseline, options_.clip());
    log_probs_.Add(ref, outcomes[r].centre_error);
    if (update == 0 && ref.row->on_policy) {
      const double error = std::abs(std::expm1(log_ratio + outcomes[r].centre_error));
      onpolicy_error_ = std::max(onpolicy_error_.value_or(0), error);
    }
  }
  sum.policy_loss /= denominators.policy;
  sum.kl /= denominators.kl;
  sum.kl_precedent /= denominators.kl;
  sum.old_kl /= denominators.policy;
  sum.anchor /= denominators.trajectories;
  sums_.policy_loss += sum.policy_loss;
  sums_.kl += sum.kl;
  sums_.kl_precedent += sum.kl_precedent;
  sums_.old_kl += sum.old_kl;
  sums_.anchor += sum.anchor;
  return sum.policy_loss + KlLoss(pull_, sum.kl, sum.kl_precedent) +
         options_.old_kl_weight * sum.old_kl + options_.anchor.weight * sum.anchor;
}

void StepTotals::Moved(double grad_norm, double grad_rms) {
  grad_norm_ += grad_norm;
  grad_rms_ += grad_rms;
  ++updates_;
}

void StepTotals::AppendMetrics(std::map<std::string, double>& metrics) const {
  const double updates = std::max(1, updates_);
  const double kl_loss = KlLoss(pull_, sums_.kl, sums_.kl_precedent);
  const double pull =
      kl_loss + options_.old_kl_weight * sums_.old_kl + options_.anchor.weight * sums_.anchor;
  metrics[metric::kTrainLoss] = (sums_.policy_loss + pull) / updates;
  metrics[metric::kTrainPolicyLoss] = sums_.policy_loss / updates;
  // A value that was not computed is left out: 0 would say that nothing moved.
  if (pull_.pulls_to_reference()) metrics[metric::kTrainKlDiv] = sums_.kl / updates;
  if (pull_.pulls_to_precedent()) {
    metrics[metric::kTrainKlPrecedentDiv] = sums_.kl_precedent / updates;
  }
  if (pull_.weight > 0) metrics[metric::kTrainKlLoss] = kl_loss / updates;
  if (options_.old_kl_weight > 0) metrics[metric::kTrainOldKlDiv] = sums_.old_kl / updates;
  if (options_.anchor.weight > 0) metrics[metric::kTrainAnchorDiv] = sums_.anchor / updates;
  metrics[metric::kTrainGradNorm] = grad_norm_ / updates;
  if (updates_ > 0) metrics[metric::kTrainGradRms] = grad_rms_ / updates;
  ratios_.AppendMetrics(metrics);
  log_probs_.AppendMetrics(metrics);
  surrogates_.AppendMetrics(metrics);
  if (!onpolicy_error_) return;
  metrics[metric::kTrainOnpolicyRatioErr] = *onpolicy_error_;
  metrics[metric::kTrainOnpolicyRatioLimit] = options_.onpolicy_ratio_limit;
}

}  // namespace oxbow::rl
