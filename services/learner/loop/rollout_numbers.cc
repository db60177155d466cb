// SPDX-License-Identifier: Apache-2.0
#include "services/learner/loop/rollout_numbers.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/statistics.h"
#include "core/flow/compression.h"
#include "core/replay/table_policy.h"
#include "metrics/step_metrics.h"
#include "rpc/convert.h"
#include "run/rewards.h"
#include "services/learner/coordinator/group_check.h"
#include "services/learner/loop/step_sampling.h"

namespace oxbow::learner {

void MeasureProduction(const std::vector<ReceivedGroup>& received,
                       std::map<std::string, double>& numbers) {
  std::set<std::pair<std::string, double>> batches;
  std::set<std::string> workers;
  double reward_seconds = 0;
  double sampled = 0;
  double fresh = 0;
  double in_flight = 0;
  for (const ReceivedGroup& item : received) {
    if (item.group.trajectories().empty()) continue;
    ++sampled;
    batches.emplace(item.group.worker_id(), item.group.sample_seconds());
    workers.insert(item.group.worker_id());
    reward_seconds += item.group.reward_seconds();
    for (const v1::Trajectory& sample : item.group.trajectories()) {
      if (sample.replayed()) continue;
      const auto& versions = sample.behaviour_version();
      ++fresh;
      in_flight += !versions.empty() && versions[0] != versions[versions.size() - 1] ? 1 : 0;
    }
  }
  double sample_seconds = 0;
  for (const auto& [worker, seconds] : batches) sample_seconds += seconds;
  numbers[metric::kRolloutWorkers] = static_cast<double>(workers.size());
  numbers[metric::kRolloutBatches] = static_cast<double>(batches.size());
  numbers[metric::kRolloutInFlightShare] = fresh > 0 ? in_flight / fresh : 0;
  numbers[metric::kRolloutSampleS] = sample_seconds;
  numbers[metric::kRolloutRewardSMean] = reward_seconds / sampled;
}

Sampled& Sampled::operator+=(const Sampled& other) {
  samples += other.samples;
  steps += other.steps;
  latent_bytes += other.latent_bytes;
  return *this;
}

Sampled SampledFor(const v1::Group& group, const SamplingForm& form) {
  Sampled sampled{.samples = static_cast<double>(group.trajectories_size())};
  if (!form.splits.empty() && group.trajectories_size() > 0) {
    sampled.steps = static_cast<double>(flow::NodesOfGroup(
        form.splits, form.group_size, StepsSampled(group.trajectories(0), form.compression)));
  }
  for (const v1::Trajectory& sample : group.trajectories()) {
    if (form.splits.empty()) sampled.steps += StepsSampled(sample, form.compression);
    const auto bytes = rpc::DeclaredBytes(sample.latents(), uint64_t{1} << 40);
    if (bytes.ok()) sampled.latent_bytes += static_cast<double>(*bytes);
  }
  return sampled;
}

int StepsSampled(const v1::Trajectory& sample, double share) {
  const int first = sample.replayed() ? static_cast<int>(sample.kept_steps()) : 0;
  return flow::StepsTaken(share, {sample.sde().begin(), sample.sde().end()}, first);
}

void StepMeasure::Measure(LearnerStep step, const CollectedGroups& groups,
                          const std::vector<int>& window, Numbers& numbers) {
  MeasureGroups(step, groups, numbers);
  MeasureHeads(groups.planned, numbers);
  MeasureProduction(groups.received, numbers);
  std::map<std::string, uint64_t> failures;  // By observed reward.
  for (const ReceivedGroup& item : groups.received) {
    run::CountObservedFailures(options_.reward, item.group, failures);
    for (const std::string& line : parts_.ranges.Look(item.group)) parts_.progress.Notice(line);
  }
  for (const auto& [name, count] : failures) {
    numbers[metric::kTrainRewardNameFailed.Of(name)] = static_cast<double>(count);
  }
  if (!window.empty()) numbers[metric::kTrainWindowFirst] = window.front();
  numbers[metric::kTrainWindowSteps] = static_cast<double>(window.size());
  if (numbers[metric::kTrainSamplesUnscored] > 0) NoteUnscored();
  WarnOfLostSteps(step, numbers);
  numbers[metric::kTrainRefilledGroups] = groups.refills;
  parts_.coordinator.events().AddCounts(numbers);
}

// Samples, how old their weights were, and what they cost. A sample whose head was lost is none
// without a score.
void StepMeasure::MeasureGroups(LearnerStep step, const CollectedGroups& groups,
                                Numbers& numbers) const {
  Sampled sampled = groups.replaced;
  std::vector<double> staleness;
  double samples = 0;
  double unscored = -static_cast<double>(groups.samples_lost());
  for (const ReceivedGroup& item : groups.received) {
    unscored += static_cast<double>(UnscoredIn(item.group));
    sampled += SampledFor(item.group, options_.form);
    for (const v1::Trajectory& trajectory : item.group.trajectories()) {
      ++samples;
      uint64_t stale = 0;
      if (!trajectory.replayed() && trajectory.behaviour_version_size() > 0) {
        const auto made =
            parts_.coordinator.published().StepOf(PolicyVersion(trajectory.behaviour_version(0)));
        if (made.has_value() && made->value < step.value) stale = step.value - made->value;
        staleness.push_back(static_cast<double>(stale));
      }
      parts_.metrics.SampleConsumed(stale, trajectory.replayed());
    }
  }
  for (const PlannedGroup& planned : groups.planned) {
    if (planned.whole() == nullptr) continue;
    samples += planned.As<WholeGroup>() != nullptr ? 1 : 0;  // In no received group.
    parts_.metrics.SampleConsumed(0, /*replayed=*/true);
  }
  if (sampled.samples != samples) numbers[metric::kRolloutSamples] = sampled.samples;
  numbers[metric::kRolloutLatentBytes] = sampled.latent_bytes;
  numbers[metric::kRolloutRowsForward] = sampled.steps * options_.rows_per_step;
  numbers[metric::kTrainSamples] = samples;
  numbers[metric::kTrainSamplesUnscored] = unscored;
  numbers[metric::kRolloutStalenessMean] = Mean(staleness);
  numbers[metric::kRolloutStalenessMax] =
      staleness.empty() ? 0 : *std::max_element(staleness.begin(), staleness.end());
  for (const auto& [one, other] :
       {std::pair(metric::kTrainStalenessMean, metric::kRolloutStalenessMean),
        std::pair(metric::kTrainStalenessMax, metric::kRolloutStalenessMax)}) {
    if (numbers[one] == numbers[other]) numbers.erase(one);  // One name.
  }
}

void StepMeasure::MeasureHeads(const std::vector<PlannedGroup>& planned, Numbers& numbers) const {
  std::vector<double> ages;
  std::vector<double> uses;
  double other_windows = 0;
  double added = 0;
  for (const PlannedGroup& group : planned) {
    const ReplayedHead* head = group.head();
    if (head == nullptr) continue;
    ages.push_back(static_cast<double>(head->age));
    uses.push_back(static_cast<double>(head->uses + 1));
    other_windows += head->other_window ? 1 : 0;
    added += group.As<AddedGroup>() != nullptr ? 1 : 0;
  }
  numbers[metric::kTrainGroupsReplayed] = static_cast<double>(ages.size()) - added;
  if (parts_.buffer != nullptr) {
    numbers[metric::kBufferHeadsRefused] = static_cast<double>(parts_.buffer->heads_refused());
  }
  if (ages.empty()) return;
  numbers[metric::kBufferHeadsOtherWindow] = other_windows;
  numbers[metric::kBufferStalenessMean] = Mean(ages);
  numbers[metric::kBufferStalenessP95] = Quantile(ages, 0.95);
  numbers[metric::kBufferReuseMean] = Mean(uses);
}

void StepMeasure::MeasureBuffer(Numbers& numbers) const {
  numbers[metric::kBufferAttached] = parts_.buffer->attached() ? 1 : 0;
  const std::optional<v1::InfoResponse> info = parts_.buffer->Info();
  if (!info.has_value()) return;
  for (const v1::TableInfo& table : info->tables()) {
    if (table.name() == replay::kBestTable) continue;
    numbers[metric::kBufferTable.Of(table.name())] = static_cast<double>(table.entries());
  }
  numbers[metric::kBufferSize] = static_cast<double>(info->entries());
  numbers[metric::kBufferRawRewardMean] = info->raw_reward_mean();
  numbers[metric::kBufferPriorityMean] = info->priority_mean();
  numbers[metric::kBufferAgeMean] = info->age_mean_steps();
  for (const v1::NamedValue& offers : info->offers()) {
    numbers[metric::kBufferOffersOutcome.Of(offers.name())] = offers.value();
  }
}

// For people who look at the run, also once it has ended.
void StepMeasure::NoteUnscored() {
  const std::string reason = parts_.coordinator.events().unscored_reason();
  if (reason.empty() || reason == unscored_reason_) return;
  if (unscored_reason_.empty()) {
    parts_.progress.Notice(
        absl::StrCat("some samples have no score and train nothing, for example: ", reason));
  }
  unscored_reason_ = reason;
  if (const absl::Status noted = parts_.log.Unscored(reason); !noted.ok()) {
    OXBOW_LOG(Warning) << "the reason was not written" << Field("error", noted.message());
  }
}

// A step may commit without having moved the weights as it should. Nothing else would say so.
void StepMeasure::WarnOfLostSteps(LearnerStep step, const Numbers& numbers) {
  const auto trained = numbers.find(metric::kTrainSamplesTrained);
  if (trained == numbers.end() || trained->second == 0) {
    const auto equal = numbers.find(metric::kTrainRewardZeroStdRatio);
    const bool signal = equal != numbers.end() && equal->second < 1;
    parts_.metrics.StepTrainedNothing(signal ? "no_rows" : "no_signal");
    OXBOW_LOG(Warning) << "step trained no sample" << Field("step", step)
                       << Field("reason",
                                signal ? "every sample is older than method.kept_steps allows, has "
                                         "weight 0 or is left out by method.branch"
                                       : "in every group the rewards that are there are equal");
  }
  const auto rms = numbers.find(metric::kTrainGradRms);
  if (epsilon_warned_ || rms == numbers.end() || rms->second >= options_.adamw_epsilon) return;
  epsilon_warned_ = true;
  OXBOW_LOG(Warning) << "optimizer.epsilon exceeds the gradients: AdamW's steps shrink with them"
                     << Field("step", step) << Field("epsilon", options_.adamw_epsilon)
                     << Field("gradient_rms", rms->second);
}

}  // namespace oxbow::learner
