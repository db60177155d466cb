#include "core/rl/step_metrics.h"

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
  metrics["train/ratio_mean"] = 1 + mean;
  metrics["train/ratio_std"] = std::sqrt(std::max(0., excess_squares_ / rows - mean * mean));
  metrics["train/ratio_min"] = ratio_min_;
  metrics["train/ratio_max"] = ratio_max_;
  metrics["train/approx_kl"] = 0.5 * log_squares_ / rows;
  metrics["train/clip_frac_total"] = static_cast<double>(high_ + low_) / rows;
  metrics["train/clip_frac_high"] = static_cast<double>(high_) / rows;
  metrics["train/clip_frac_low"] = static_cast<double>(low_) / rows;
  metrics["train/clip_frac_zero_grad"] = static_cast<double>(silenced_) / rows;
  const std::array<const char*, 3> names = {"fresh", "stale", "replay"};
  for (size_t o = 0; o < names.size(); ++o) {
    if (by_origin_[o].rows == 0) continue;
    metrics[std::string("train/clip_frac_") + names[o]] = Share(by_origin_[o]);
  }
  for (const auto& [step, count] : by_step_) {
    metrics["train/clip_frac_step_" + std::to_string(step)] = Share(count);
  }
}

double StepTotals::Count(size_t update, const std::vector<RowRef>& refs,
                         const std::vector<RowOutcome>& outcomes,
                         const LossDenominators& denominators) {
  double policy_loss = 0;
  double kl = 0;
  double old_kl = 0;
  double anchor = 0;
  for (size_t r = 0; r < refs.size(); ++r) {
    const RowRef& ref = refs[r];
    policy_loss += outcomes[r].policy_loss;
    kl += outcomes[r].kl;
    old_kl += outcomes[r].old_kl;
    anchor += outcomes[r].anchor;
    if (!has_ratio_) continue;
    const double log_ratio = outcomes[r].log_ratio;
    ratios_.Add(ref.sample->origin, ref.row->step, log_ratio, ref.sample->advantage,
                options_.clip());
    if (update == 0 && ref.sample->origin == Origin::kFresh && ref.row->on_policy) {
      const double error = std::abs(std::expm1(log_ratio));
      onpolicy_error_ = std::max(onpolicy_error_.value_or(0), error);
    }
  }
  policy_loss /= denominators.policy;
  kl /= denominators.kl;
  old_kl /= denominators.policy;
  anchor /= denominators.samples;
  policy_loss_ += policy_loss;
  kl_ += kl;
  old_kl_ += old_kl;
  anchor_ += anchor;
  return policy_loss + options_.kl.weight * kl + options_.old_kl_weight * old_kl +
         options_.anchor.weight * anchor;
}

void StepTotals::Moved(double grad_norm) {
  grad_norm_ += grad_norm;
  ++updates_;
}

void StepTotals::AppendMetrics(std::map<std::string, double>& metrics) const {
  const double updates = std::max(1, updates_);
  const double pull = options_.kl.weight * kl_ + options_.old_kl_weight * old_kl_ +
                      options_.anchor.weight * anchor_;
  metrics["train/loss"] = (policy_loss_ + pull) / updates;
  metrics["train/policy_loss"] = policy_loss_ / updates;
  metrics["train/kl_div"] = kl_ / updates;
  metrics["train/kl_loss"] = options_.kl.weight * kl_ / updates;
  if (options_.old_kl_weight > 0) metrics["train/old_kl_div"] = old_kl_ / updates;
  if (options_.anchor.weight > 0) metrics["train/anchor_div"] = anchor_ / updates;
  metrics["train/grad_norm"] = grad_norm_ / updates;
  ratios_.AppendMetrics(metrics);
  if (onpolicy_error_) metrics["train/onpolicy_ratio_err"] = *onpolicy_error_;
}

}  // namespace oxbow::rl
