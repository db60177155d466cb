// SPDX-License-Identifier: Apache-2.0
#include "services/learner/replay/stored_successes.h"

#include <algorithm>
#include <map>
#include <utility>

namespace oxbow::learner {
namespace {

// The best reward among the samples of a group that have one.
std::optional<double> BestReward(const v1::Group& group) {
  std::optional<double> best;
  for (const v1::Trajectory& sample : group.trajectories()) {
    if (sample.reward_failed()) continue;
    best = std::max(best.value_or(sample.reward()), sample.reward());
  }
  return best;
}

bool RewardsDiffer(const v1::Group& group, double best) {
  return std::any_of(
      group.trajectories().begin(), group.trajectories().end(),
      [&](const v1::Trajectory& s) { return !s.reward_failed() && s.reward() != best; });
}

bool IsFresh(const PlannedGroup& planned) {
  return !planned.success_rate.has_value() && (!planned.head.has_value() || planned.late);
}

// The part of each entry that the rules look at.
std::vector<replay::StoredEntry> SuccessRulesOf(const std::vector<v1::ReplayEntry>& entries) {
  std::vector<replay::StoredEntry> rules;
  for (const v1::ReplayEntry& entry : entries) {
    rules.push_back({.id = EntryId(entry.entry_id()),
                     .prompt = PromptId(entry.prompt().id()),
                     .birth = LearnerStep(entry.birth_step()),
                     .uses = entry.uses(),
                     // The reward of the picture that is stored, not of one made again since.
                     .reward = entry.trajectory().reward()});
  }
  return rules;
}

// A group for which nothing was sampled.
ReceivedGroup Unsampled(const PlannedGroup& planned) {
  ReceivedGroup received;
  received.group.set_group_id(planned.id.value);
  received.group.set_learner_step(planned.step.value);
  *received.group.mutable_prompt() = planned.prompt;
  return received;
}

}  // namespace

uint32_t StoredSuccesses::heads_wanted(LearnerStep step, uint64_t committed) const {
  if (!reuses(step)) return 0;
  if (!options_.by_need) return options_.heads_max;
  return replay::HeadsByNeed(options_.heads_max,
                             replay::NeedFor(state_, step, committed, options_.staleness_max));
}

void StoredSuccesses::Join(LearnerStep step, const std::vector<bool>& signal,
                           std::vector<ReceivedGroup>& received,
                           std::vector<PlannedGroup>& planned) {
  if (!reuses(step) || (!options_.late_binding && options_.added == 0)) return;
  std::vector<EntryId> taken;  // In the step already.
  for (const PlannedGroup& group : planned) {
    if (group.head.has_value()) taken.push_back(group.head->entry);
  }
  if (options_.late_binding) BindLate(step, signal, taken, received, planned);
  if (options_.added > 0) Add(step, taken, received, planned);
}

void StoredSuccesses::BindLate(LearnerStep step, const std::vector<bool>& signal,
                               std::vector<EntryId>& taken,
                               const std::vector<ReceivedGroup>& received,
                               std::vector<PlannedGroup>& planned) {
  std::vector<size_t> failed;
  std::vector<PromptId> prompts;
  for (size_t i = 0; i < planned.size(); ++i) {
    if (planned[i].head.has_value() || signal[i]) continue;
    if (!BestReward(received[i].group).has_value()) continue;
    failed.push_back(i);
    prompts.push_back(PromptId(planned[i].prompt.id()));
  }
  if (failed.empty()) return;
  const std::vector<v1::ReplayEntry> entries = buffer_->StoredOf(prompts);
  const std::vector<replay::StoredEntry> rules = SuccessRulesOf(entries);
  std::vector<v1::ReplayEntry> wanted;
  std::map<EntryId, size_t> groups;
  for (size_t k = 0; k < failed.size(); ++k) {
    const auto found = replay::EntryForFailure(
        rules, prompts[k], *BestReward(received[failed[k]].group), step, options_.limits, taken);
    if (!found.has_value()) continue;
    taken.push_back(rules[*found].id);
    groups[rules[*found].id] = failed[k];
    wanted.push_back(entries[*found]);
  }
  for (ReplayedHead& head : buffer_->ReadWholeHeads(step, wanted, planned[0].sde)) {
    PlannedGroup& group = planned[groups.at(head.entry)];
    group.late = true;
    group.head = std::move(head);
  }
}

void StoredSuccesses::Add(LearnerStep step, const std::vector<EntryId>& taken,
                          std::vector<ReceivedGroup>& received,
                          std::vector<PlannedGroup>& planned) {
  const std::vector<v1::ReplayEntry> entries =
      buffer_->NewestStored(step, options_.limits, options_.added, taken);
  std::vector<v1::ReplayEntry> wanted;
  std::map<EntryId, double> rates;
  for (const size_t place : replay::NewestEntries(SuccessRulesOf(entries), options_.added, step,
                                                  options_.limits, taken)) {
    // The policy has got better since the prompt was sampled.
    rates[EntryId(entries[place].entry_id())] =
        std::max(entries[place].group_mean(), state_.success_rate) / options_.full_reward;
    wanted.push_back(entries[place]);
  }
  std::vector<ReplayedHead> heads = buffer_->ReadWholeHeads(step, wanted, planned[0].sde);
  std::vector<ReceivedGroup> all;
  std::vector<PlannedGroup> all_planned;
  size_t next = 0;
  const size_t groups = planned.size();
  for (size_t i = 0; i < groups; ++i) {
    const PlannedGroup pattern{.id = {}, .step = step, .prompt = planned[i].prompt};
    all.push_back(std::move(received[i]));
    all_planned.push_back(std::move(planned[i]));
    // Behind i + 1 of U groups there are (i + 1) K / U added ones.
    for (; next < (i + 1) * options_.added / groups; ++next) {
      PlannedGroup added = pattern;
      added.id = GroupId(kAddedGroups + step.value * options_.added + next);
      added.success_rate = 1;  // Nothing is judged where the buffer has no more.
      if (next < heads.size()) {
        added.success_rate = rates.at(heads[next].entry);
        added.prompt = heads[next].prompt;
        added.head = std::move(heads[next]);
      }
      all.push_back(Unsampled(added));
      all_planned.push_back(std::move(added));
    }
  }
  received = std::move(all);
  planned = std::move(all_planned);
}

void StoredSuccesses::Count(const ReceivedGroup& received, const PlannedGroup& planned,
                            FreshSums& sums) {
  const std::optional<double> best = BestReward(received.group);
  if (!IsFresh(planned) || !best.has_value()) return;
  ++sums.groups;
  sums.without_signal += RewardsDiffer(received.group, *best) ? 0 : 1;
  for (const v1::Trajectory& sample : received.group.trajectories()) {
    if (sample.reward_failed()) continue;
    sums.rewards += sample.reward();
    ++sums.samples;
  }
}

void StoredSuccesses::Follow(const std::vector<ReceivedGroup>& received,
                             const std::vector<PlannedGroup>& planned, FreshSums replaced) {
  FreshSums& sums = replaced;
  for (size_t i = 0; i < received.size(); ++i) Count(received[i], planned[i], sums);
  const replay::ReuseState after = sums.groups == 0
                                       ? state_
                                       : replay::Followed(state_, sums.without_signal / sums.groups,
                                                          sums.rewards / sums.samples);
  state_ = replay::Committed(state_, after, options_.staleness_max);
}

}  // namespace oxbow::learner
