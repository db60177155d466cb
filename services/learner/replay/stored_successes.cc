// SPDX-License-Identifier: Apache-2.0
#include "services/learner/replay/stored_successes.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/status_macros.h"
#include "metrics/step_metrics.h"
#include "services/learner/checkpoint/checkpoint_manifest.h"

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

// Entries that are in the step, or were to be.
std::vector<EntryId> EntriesOf(const StepGroups& groups) {
  std::vector<EntryId> entries = groups.joining;
  for (const PlannedGroup& group : groups.planned) {
    if (const ReplayedHead* head = group.head(); head != nullptr) entries.push_back(head->entry);
  }
  return entries;
}

// Whether a head has every stochastic step of its trajectory: what follows has no density.
bool IsComplete(const ReplayedHead& head) {
  const auto& sde = head.trajectory.sde();
  return std::find(sde.begin() + std::min<int>(sde.size(), static_cast<int>(head.kept_steps)),
                   sde.end(), true) == sde.end();
}

}  // namespace

absl::Status StoredSuccesses::Plan(StepDraft& draft) {
  if (options_.buffer == nullptr) return absl::OkStatus();
  const uint32_t wanted = heads_wanted(draft.step, draft.committed);
  for (ReplayedHead& head : options_.buffer->Draw(draft.step, wanted, draft.sde)) {
    const bool whole = options_.stored_tail && IsComplete(head);
    v1::Prompt prompt = head.prompt;
    GroupKind kind =
        whole ? GroupKind(WholeGroup{std::move(head)}) : GroupKind(MixedGroup{std::move(head)});
    draft.spread.push_back({std::move(prompt), std::move(kind)});
  }
  return options_.buffer->ended();
}

uint32_t StoredSuccesses::heads_wanted(LearnerStep step, uint64_t committed) const {
  if (!options_.at(step)) return 0;
  if (!options_.by_need) return options_.heads_max;
  return replay::HeadsByNeed(options_.heads_max,
                             replay::NeedFor(state_, step, committed, options_.staleness_max));
}

absl::Status StoredSuccesses::Join(LearnerStep, const Signal&, StepGroups& groups) {
  for (const PlannedGroup& group : groups.planned) {
    if (const auto* drawn = group.As<WholeGroup>(); drawn != nullptr) {
      groups.choice.whole[group.id] = drawn->head.entry;
    }
  }
  return absl::OkStatus();
}

void StoredSuccesses::See(LearnerStep, const ReceivedGroup& received, const PlannedGroup& planned) {
  const auto again = RegenerationOf(received.group);
  if (again.has_value()) rescored_.push_back(*again);
  const std::optional<double> best = BestReward(received.group);
  if (!planned.fresh() || !best.has_value()) return;
  ++seen_.groups;
  seen_.without_signal += RewardsDiffer(received.group, *best) ? 0 : 1;
  for (const v1::Trajectory& sample : received.group.trajectories()) {
    if (sample.reward_failed()) continue;
    seen_.rewards += sample.reward();
    ++seen_.samples;
  }
}

void StoredSuccesses::Follow(LearnerStep, const StepGroups&, Numbers& numbers) {
  const FreshSums sums = std::exchange(seen_, {});
  const replay::ReuseState after = sums.groups == 0
                                       ? state_
                                       : replay::Followed(state_, sums.without_signal / sums.groups,
                                                          sums.rewards / sums.samples);
  state_ = replay::Committed(state_, after, options_.staleness_max);
  if (options_.buffer != nullptr) numbers[metric::kBufferNeed] = state_.need;
}

void StoredSuccesses::Offer(const StepGroups& groups, StepCommit& commit, Numbers& numbers) {
  commit.failures_max = options_.failures_max;
  commit.rescored = std::exchange(rescored_, {});
  double offers = 0;
  for (size_t i = 0; options_.offers.has_value() && i < groups.received.size(); ++i) {
    auto offer = MakeOffer(groups.received[i].group, groups.planned[i], *options_.offers);
    if (!offer.has_value()) continue;
    commit.offers.push_back(*std::move(offer));
    ++offers;
  }
  numbers[metric::kBufferOffers] = offers;
  numbers[metric::kBufferHeadsFailed] =
      static_cast<double>(std::count_if(commit.rescored.begin(), commit.rescored.end(),
                                        [](const buffer::Rescored& one) { return one.failed; }));
}

void StoredSuccesses::Save(RunState& state) const { state.reuse = state_; }

absl::Status LateBinding::Join(LearnerStep step, const Signal& signal, StepGroups& groups) {
  if (!options_.at(step)) return absl::OkStatus();
  OXBOW_ASSIGN_OR_RETURN(const std::vector<bool> lives, signal());
  std::vector<size_t> failed;
  std::vector<PromptId> prompts;
  for (size_t i = 0; i < groups.planned.size(); ++i) {
    if (groups.planned[i].head() != nullptr || lives[i]) continue;
    if (!BestReward(groups.received[i].group).has_value()) continue;
    failed.push_back(i);
    prompts.push_back(PromptId(groups.planned[i].prompt.id()));
  }
  if (failed.empty()) return absl::OkStatus();
  const std::vector<v1::ReplayEntry> entries = options_.buffer->StoredOf(prompts);
  const std::vector<replay::StoredEntry> rules = SuccessRulesOf(entries);
  std::vector<EntryId> taken = EntriesOf(groups);
  std::vector<v1::ReplayEntry> wanted;
  std::map<EntryId, size_t> places;
  for (size_t k = 0; k < failed.size(); ++k) {
    const auto found =
        replay::EntryForFailure(rules, prompts[k], *BestReward(groups.received[failed[k]].group),
                                step, options_.limits, taken);
    if (!found.has_value()) continue;
    taken.push_back(rules[*found].id);
    places[rules[*found].id] = failed[k];
    wanted.push_back(entries[*found]);
  }
  groups.joining = std::move(taken);
  for (ReplayedHead& head : options_.buffer->ReadHeads(step, wanted, groups.planned[0].sde)) {
    PlannedGroup& group = groups.planned[places.at(head.entry)];
    groups.choice.late[group.id] = head.entry;
    group.kind = LateGroup{std::move(head)};
  }
  return absl::OkStatus();
}

void LateBinding::Follow(LearnerStep, const StepGroups& groups, Numbers& numbers) {
  numbers[metric::kTrainGroupsBoundLate] = static_cast<double>(groups.choice.late.size());
}

absl::Status AddedSuccesses::Join(LearnerStep step, const Signal&, StepGroups& groups) {
  if (!options_.at(step)) return absl::OkStatus();
  const std::vector<EntryId> taken = EntriesOf(groups);
  const std::vector<v1::ReplayEntry> entries =
      options_.buffer->NewestStored(step, options_.limits, options_.added, taken);
  std::vector<v1::ReplayEntry> wanted;
  std::map<EntryId, double> rates;
  for (const size_t place : replay::NewestEntries(SuccessRulesOf(entries), options_.added, step,
                                                  options_.limits, taken)) {
    // The policy has got better since the prompt was sampled.
    rates[EntryId(entries[place].entry_id())] =
        std::max(entries[place].group_mean(), known_.state().success_rate) / options_.full_reward;
    wanted.push_back(entries[place]);
  }
  std::vector<ReplayedHead> heads = options_.buffer->ReadHeads(step, wanted, groups.planned[0].sde);
  std::vector<ReceivedGroup> received;
  std::vector<PlannedGroup> planned;
  size_t next = 0;
  const size_t count = groups.planned.size();
  for (size_t i = 0; i < count; ++i) {
    const v1::Prompt prompt = groups.planned[i].prompt;
    received.push_back(std::move(groups.received[i]));
    planned.push_back(std::move(groups.planned[i]));
    // Behind i + 1 of U groups there are (i + 1) K / U added ones.
    for (; next < (i + 1) * options_.added / count; ++next) {
      PlannedGroup added{.id = GroupId(kAddedGroups + step.value * options_.added + next),
                         .step = step,
                         .prompt = prompt};
      AddedGroup success;  // Nothing is judged where the buffer has no more.
      if (next < heads.size()) {
        added.prompt = heads[next].prompt;
        groups.choice.added.push_back(heads[next].entry);
        success = {rates.at(heads[next].entry), std::move(heads[next])};
      }
      added.kind = std::move(success);
      received.push_back(Unsampled(added));
      planned.push_back(std::move(added));
    }
  }
  groups.received = std::move(received);
  groups.planned = std::move(planned);
  return absl::OkStatus();
}

}  // namespace oxbow::learner
