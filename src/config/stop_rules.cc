// SPDX-License-Identifier: Apache-2.0
#include "config/stop_rules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "config/rules.h"
#include "core/reward/synthetic_task.h"
#include "metrics/step_metrics.h"

namespace oxbow::config {

namespace {

// "eval/reward_mean is 0.08 at step 60".
std::string Newest(const v1::StopRule& rule, const MetricValue& newest) {
  return absl::StrFormat("%s is %.4g at step %d", rule.metric(), newest.value, newest.step);
}

// The finding of `rule` in the values of its metric; nothing if it is not met. A value that is not
// finite is neither below nor above a number, and no rise.
std::optional<std::string> Met(const v1::StopRule& rule, const std::vector<MetricValue>& values) {
  if (values.empty() || values.back().step <= rule.after_step()) return std::nullopt;
  const MetricValue& newest = values.back();
  if (rule.has_below() && newest.value < rule.below()) {
    return absl::StrCat(Newest(rule, newest), ", below ", rule.below());
  }
  if (rule.has_above() && newest.value > rule.above()) {
    return absl::StrCat(Newest(rule, newest), ", above ", rule.above());
  }
  const size_t last = rule.no_rise_for();
  if (last == 0 || values.size() <= last) return std::nullopt;
  const auto middle = values.end() - static_cast<std::ptrdiff_t>(last);
  const auto less = [](const MetricValue& a, const MetricValue& b) { return a.value < b.value; };
  const MetricValue best = *std::max_element(values.begin(), middle, less);
  if (std::any_of(middle, values.end(),
                  [&](const MetricValue& one) { return one.value > best.value; })) {
    return std::nullopt;
  }
  return absl::StrCat(Newest(rule, newest), ", no rise in ", last, " values over ",
                      absl::StrFormat("%.4g at step %d", best.value, best.step));
}

}  // namespace

void AddValues(const StopRuleList& rules, uint64_t step,
               const std::map<std::string, double>& numbers, MetricSeries& series) {
  for (const v1::StopRule& rule : rules) {
    const auto found = numbers.find(rule.metric());
    if (found == numbers.end()) continue;
    std::vector<MetricValue>& values = series[rule.metric()];
    // Two rules may name one metric.
    if (values.empty() || values.back().step < step) values.push_back({step, found->second});
  }
}

std::optional<std::string> StopReason(const StopRuleList& rules, const MetricSeries& series) {
  for (int i = 0; i < rules.size(); ++i) {
    const auto values = series.find(rules[i].metric());
    if (values == series.end()) continue;
    const auto met = Met(rules[i], values->second);
    if (met.has_value()) return absl::StrCat(*met, " (run.stop_if[", i, "])");
  }
  return std::nullopt;
}

std::vector<std::string> MetricsForRules(const v1::RunConfig& config) {
  std::vector<std::string> names;
  std::vector<std::string> rewards(config.reward().observed().begin(),
                                   config.reward().observed().end());
  for (const v1::RewardTerm& term : config.reward().terms()) rewards.push_back(term.name());
  if (config.eval().every() > 0) {
    names = {metric::kEvalRewardMean, metric::kEvalBaseDistance};
    for (const std::string& reward : rewards) {
      names.push_back(metric::kEvalRewardNameMean.Of(reward));
      if (reward::SaysLayout(reward)) names.push_back(metric::kEvalMinorityShare);
    }
    const reward::SyntheticTask* const task = reward::TaskOfRewards(rewards);
    if (task != nullptr && task->grey_is_dust()) {
      names.push_back(metric::kEvalSpeckleMean);
    } else {
      names.insert(names.end(),
                   {metric::kEvalSaturatedShare, metric::kEvalFineDetail, metric::kEvalSharpness});
    }
  }
  for (const metric::StepMetric& one :
       {metric::kTrainRewardMean, metric::kTrainRewardStd, metric::kTrainRewardGroupStdMean,
        metric::kTrainRewardZeroStdRatio, metric::kTrainGroupDistanceMean,
        metric::kTrainDuplicateShareMean, metric::kTrainLoss, metric::kTrainKlDiv,
        metric::kTrainAnchorDiv, metric::kTrainGradNorm, metric::kTrainUpdateNorm,
        metric::kTrainApproxKl, metric::kTrainClipFracTotal, metric::kTrainIwEss,
        metric::kTrainSamplesUnscored, metric::kTimeStepS, metric::kTimeWallS,
        metric::kThroughputSamplesPerS, metric::kBufferSize}) {
    names.push_back(one);
  }
  for (const std::string& reward : rewards)
    names.push_back(metric::kTrainRewardNameMean.Of(reward));
  return names;
}

std::string MetricProblem(const std::string& name, const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return "";
  const std::string nearest = NearestName(name, known);
  return absl::StrCat("no such metric: ", name.empty() ? "\"\"" : name,
                      nearest.empty() ? absl::StrCat("; there are ", absl::StrJoin(known, ", "))
                                      : absl::StrCat("; did you mean ", nearest, "?"));
}

std::vector<std::string> KeysThatAwaitEvaluations(const v1::RunConfig& config) {
  std::vector<std::string> keys;
  const auto& rules = config.run().stop_if();
  if (std::any_of(rules.begin(), rules.end(),
                  [](const v1::StopRule& rule) { return metric::IsOfEvaluation(rule.metric()); })) {
    keys.emplace_back("run.stop_if");
  }
  if (!config.checkpoint().best().empty()) keys.emplace_back("checkpoint.best");
  if (config.publish().reward_floor() > 0) keys.emplace_back("publish.reward_floor");
  return keys;
}

}  // namespace oxbow::config
