// SPDX-License-Identifier: Apache-2.0
#include "services/learner/loop/step_adaptation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "core/parallel/share.h"
#include "metrics/step_metrics.h"
#include "services/learner/loop/experience_builder.h"
#include "services/learner/ranks/step_manifest.h"

namespace oxbow::learner {
StepAdaptation::StepAdaptation(Options options, ReplayLink* buffer, ConditioningCache& conditioning)
    : options_(std::move(options)), buffer_(buffer), conditioning_(conditioning) {}

// Prompts that are planned already stay in the table until their step commits: more are asked for.
absl::Status StepAdaptation::Plan(StepDraft& draft) {
  if (buffer_ == nullptr || !rl::SamplesAgain(options_.rules, draft.step.value)) {
    return absl::OkStatus();
  }
  const size_t room = draft.groups - draft.spread.size();
  const size_t wanted = std::min<size_t>(room, options_.rules.again_max);
  std::vector<v1::ReplayEntry> waiting =
      buffer_->DrawHardPrompts(draft.step, static_cast<uint32_t>(wanted + planned_.size()));
  std::erase_if(waiting, [&](const auto& entry) { return planned_.contains(entry.entry_id()); });
  waiting.resize(std::min(waiting.size(), wanted));
  for (v1::ReplayEntry& entry : waiting) {
    planned_.insert(entry.entry_id());
    draft.next.push_back(
        {std::move(*entry.mutable_prompt()), AgainGroup{EntryId(entry.entry_id())}});
  }
  return absl::OkStatus();
}

StepAdaptation::Sorted StepAdaptation::Sort(const StepGroups& groups) {
  Sorted sorted;
  for (size_t i = 0; i < groups.received.size(); ++i) {
    const std::optional<double> mean = MeanReward(groups.received[i].group);
    if (!mean.has_value()) continue;
    const bool again = groups.planned[i].As<AgainGroup>() != nullptr;
    (again ? sorted.again : sorted.fresh).push_back(i);
    (again ? sorted.again_means : sorted.fresh_means).push_back(*mean);
  }
  return sorted;
}

absl::Status StepAdaptation::Choose(LearnerStep step, StepGroups& groups,
                                    std::vector<rl::Group>& built) {
  std::vector<v1::ReplayEntry> entries;
  if (buffer_ != nullptr && options_.rules.recent_steps > 0) entries = buffer_->RecentGroups();
  std::vector<rl::RecentGroup> recent;
  for (const v1::ReplayEntry& entry : entries) {
    recent.push_back(
        {.id = entry.entry_id(), .step = entry.birth_step(), .mean = entry.raw_reward()});
  }
  const Sorted sorted = Sort(groups);
  const rl::AdaptedBatch batch =
      rl::AdaptBatch(options_.rules, options_.group_size, options_.groups, sorted.fresh_means,
                     sorted.again_means, recent, options_.run_seed, step.value);
  std::vector<bool> kept(groups.planned.size());
  for (const size_t place : batch.fresh) kept[sorted.fresh[place]] = true;
  for (const size_t place : batch.again) kept[sorted.again[place]] = true;
  Measure(sorted, batch);
  std::vector<rl::Group> chosen;
  groups.trained.emplace();
  reused_.clear();
  auto next = batch.reused.begin();
  for (size_t place = 0; place < kept.size(); ++place) {
    const int holder = parallel::OwnerOf(place, kept.size(), options_.ranks);
    if (kept[place]) {
      chosen.push_back(std::move(built[place]));
      chosen.back().holder = holder;
      groups.trained->push_back({.place = place, .stored = {}});
      continue;
    }
    groups.choice.left_out.push_back(groups.planned[place].id);
    std::optional<v1::Group> stored;
    while (!stored.has_value() && next != batch.reused.end()) {
      const v1::ReplayEntry& entry = entries[*next++];
      stored = buffer_->ReadGroup(entry);
      if (stored.has_value()) reused_.emplace_back(entry.entry_id());
    }
    if (!stored.has_value()) continue;
    groups.choice.reused.emplace_back(stored->group_id());
    OXBOW_ASSIGN_OR_RETURN(rl::Group group, BuildStored(*stored, holder));
    chosen.push_back(std::move(group));
    groups.trained->push_back({.place = place, .stored = std::move(stored)});
  }
  built = std::move(chosen);
  numbers_[metric::kAdaptationGroupsReused] = static_cast<double>(reused_.size());
  numbers_[metric::kAdaptationGroupsTrained] = static_cast<double>(built.size());
  return absl::OkStatus();
}

// Only other ranks are sent the latents: they leave `group` where this one has it.
absl::StatusOr<rl::Group> StepAdaptation::BuildStored(v1::Group& group, int holder) {
  rl::Group built;
  if (holder == 0) {
    OXBOW_ASSIGN_OR_RETURN(const ConditioningCache::Entry* entry,
                           conditioning_.Get(group.prompt()));
    OXBOW_ASSIGN_OR_RETURN(built, BuildGroup(group, PlannedGroup(), entry->tensors));
    group = WithoutLatents(group);
  } else {
    OXBOW_ASSIGN_OR_RETURN(built, BuildOutline(group, PlannedGroup()));
  }
  built.from_data_set = false;
  built.holder = holder;
  return built;
}

void StepAdaptation::Measure(const Sorted& sorted, const rl::AdaptedBatch& batch) {
  const auto fresh = static_cast<double>(sorted.fresh.size());
  double sum = 0;
  for (const double mean : sorted.fresh_means) sum += mean;
  numbers_ = {
      {metric::kAdaptationFilteredShare,
       fresh == 0 ? 0 : 1 - static_cast<double>(batch.fresh.size()) / fresh},
      {metric::kAdaptationFreshRewardMean, fresh == 0 ? 0 : sum / fresh},
      {metric::kAdaptationHardAgain, static_cast<double>(sorted.again.size())},
      {metric::kAdaptationHardKept, static_cast<double>(batch.again.size())},
      {metric::kAdaptationReuseMin, batch.reuse_min},
      {metric::kAdaptationReuseMax, batch.reuse_max},
  };
}

void StepAdaptation::Follow(LearnerStep, const StepGroups&, Numbers& numbers) {
  numbers.insert(numbers_.begin(), numbers_.end());
}

// A prompt that waited and fails again waits at the end of the line.
void StepAdaptation::Offer(const StepGroups& groups, StepCommit& commit, Numbers&) {
  commit.used.insert(commit.used.end(), reused_.begin(), reused_.end());
  for (size_t i = 0; i < groups.received.size(); ++i) {
    const PlannedGroup& planned = groups.planned[i];
    if (const auto* again = planned.As<AgainGroup>(); again != nullptr) {
      planned_.erase(again->waited.value);
      commit.evict.push_back(again->waited);
    }
    const v1::Group& group = groups.received[i].group;
    const std::optional<double> mean = MeanReward(group);
    if (!mean.has_value() || planned.head() != nullptr) continue;
    if (rl::IsBad(options_.rules, *mean)) {
      if (options_.rules.again_every == 0) continue;
      commit.offers.push_back(HardPromptEntry(planned, *mean, options_.offers));
    } else if (rl::MayBeReused(options_.rules, *mean)) {
      auto entry = GroupEntry(group, planned, *mean, options_.offers);
      if (entry.has_value()) commit.groups.push_back(*std::move(entry));
    }
  }
}

}  // namespace oxbow::learner
