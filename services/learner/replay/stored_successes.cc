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

// A group for which nothing was sampled.
ReceivedGroup Unsampled(const PlannedGroup& planned) {
  ReceivedGroup received;
  received.group.set_group_id(planned.id.value);
  received.group.set_learner_step(planned.step.value);
  *received.group.mutable_prompt() = planned.prompt;
  return received;
}

}  // namespace

void StoredSuccesses::Join(LearnerStep step, const std::vector<bool>& signal,
                           std::vector<ReceivedGroup>& received,
                           std::vector<PlannedGroup>& planned) {
  if (buffer_ == nullptr || (!options_.late_binding && options_.added == 0)) return;
  Stored stored{.entries = buffer_->Stored(), .rules = {}, .taken = {}};
  for (const v1::ReplayEntry& entry : stored.entries) {
    stored.rules.push_back(
        {.id = EntryId(entry.entry_id()),
         .prompt = PromptId(entry.prompt().id()),
         .birth = LearnerStep(entry.birth_step()),
         .uses = entry.uses(),
         // The reward of the picture that is stored, not of one made again since.
         .reward = entry.trajectory().reward()});
  }
  for (const PlannedGroup& group : planned) {
    if (group.head.has_value()) stored.taken.push_back(group.head->entry);
  }
  if (options_.late_binding) BindLate(step, signal, stored, received, planned);
  if (options_.added > 0) Add(step, stored, received, planned);
}

void StoredSuccesses::BindLate(LearnerStep step, const std::vector<bool>& signal, Stored& stored,
                               const std::vector<ReceivedGroup>& received,
                               std::vector<PlannedGroup>& planned) {
  std::vector<v1::ReplayEntry> wanted;
  std::map<EntryId, size_t> groups;
  for (size_t i = 0; i < planned.size(); ++i) {
    const std::optional<double> best = BestReward(received[i].group);
    if (planned[i].head.has_value() || signal[i] || !best.has_value()) continue;
    const auto found = replay::EntryForFailure(stored.rules, PromptId(planned[i].prompt.id()),
                                               *best, step, options_.limits, stored.taken);
    if (!found.has_value()) continue;
    stored.taken.push_back(stored.rules[*found].id);
    groups[stored.rules[*found].id] = i;
    wanted.push_back(stored.entries[*found]);
  }
  for (ReplayedHead& head : buffer_->ReadWholeHeads(step, wanted)) {
    PlannedGroup& group = planned[groups.at(head.entry)];
    group.late = true;
    group.head = std::move(head);
  }
}

void StoredSuccesses::Add(LearnerStep step, Stored& stored, std::vector<ReceivedGroup>& received,
                          std::vector<PlannedGroup>& planned) {
  std::vector<v1::ReplayEntry> wanted;
  std::map<EntryId, double> rates;
  for (const size_t place :
       replay::NewestEntries(stored.rules, options_.added, step, options_.limits, stored.taken)) {
    const v1::ReplayEntry& entry = stored.entries[place];
    // The policy has got better since the prompt was sampled.
    rates[EntryId(entry.entry_id())] = std::max(entry.group_mean(), state_.success_rate);
    wanted.push_back(entry);
  }
  std::vector<ReplayedHead> heads = buffer_->ReadWholeHeads(step, wanted);
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

void StoredSuccesses::Follow(const std::vector<ReceivedGroup>& received,
                             const std::vector<PlannedGroup>& planned) {
  double groups = 0;
  double without = 0;
  double sum = 0;
  double samples = 0;
  for (size_t i = 0; i < received.size(); ++i) {
    const std::optional<double> best = BestReward(received[i].group);
    if (!IsFresh(planned[i]) || !best.has_value()) continue;
    ++groups;
    without += RewardsDiffer(received[i].group, *best) ? 0 : 1;
    for (const v1::Trajectory& sample : received[i].group.trajectories()) {
      if (sample.reward_failed()) continue;
      sum += sample.reward();
      ++samples;
    }
  }
  if (groups > 0) state_ = replay::Followed(state_, without / groups, sum / samples);
}

}  // namespace oxbow::learner
