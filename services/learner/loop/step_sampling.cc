// SPDX-License-Identifier: Apache-2.0
#include "services/learner/loop/step_sampling.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "base/trace.h"
#include "core/parallel/share.h"
#include "services/learner/loop/experience_builder.h"

namespace oxbow::learner {
namespace {

constexpr absl::Duration kWaitSlice = absl::Milliseconds(500);  // Between checks for a drain.

}  // namespace

uint64_t CollectedGroups::samples_lost() const {
  uint64_t samples = 0;
  for (const auto& [group, lost_of_group] : lost) samples += lost_of_group;
  return samples;
}

absl::Status StepSampling::PlanAhead(uint64_t committed) {
  parts_.progress.Enter("plan");
  positions_.erase(positions_.begin(), positions_.lower_bound(committed));
  while (planned_ < options_.steps && planned_ <= committed + options_.staleness_max) {
    OXBOW_RETURN_IF_ERROR(PlanOne(LearnerStep(planned_), committed));
    ++planned_;
  }
  return absl::OkStatus();
}

std::vector<int> StepSampling::WindowOf(LearnerStep step) const {
  if (!options_.window.has_value()) return {};
  return flow::WindowAt(*options_.window, options_.run_seed, step.value);
}

PromptPosition StepSampling::PositionAt(uint64_t committed) const {
  const auto planned = positions_.find(committed);
  return planned != positions_.end() ? planned->second : parts_.prompts.position();
}

absl::Status StepSampling::PlanOne(LearnerStep step, uint64_t committed) {
  const TraceScope scope(TraceOfStep(options_.run_id, step));
  StepDraft draft{.step = step,
                  .committed = committed,
                  .groups = options_.groups,
                  .dynamic_sampling_max = options_.dynamic_sampling_max,
                  .sde = flow::StepFlags(WindowOf(step), options_.sampling_steps),
                  .spread = {},
                  .next = {}};
  for (const auto& rule : rules_) OXBOW_RETURN_IF_ERROR(rule->Plan(draft));
  StepPlan plan = PlanStep(std::move(draft), parts_.prompts);
  positions_[step.value] = plan.before;
  OXBOW_RETURN_IF_ERROR(Encode(plan.groups));
  parts_.coordinator.Plan(std::move(plan));
  return absl::OkStatus();
}

absl::Status StepSampling::Encode(std::vector<PlannedGroup>& groups) {
  for (PlannedGroup& group : groups) {
    if (disk_.drain().asked()) return absl::CancelledError("drained");
    OXBOW_RETURN_IF_ERROR(disk_.PersistUnlessDrained("prompts", [&]() -> absl::Status {
      OXBOW_ASSIGN_OR_RETURN(const ConditioningCache::Entry* entry,
                             parts_.conditioning.Get(group.prompt));
      group.conditioning = entry->sent;
      return absl::OkStatus();
    }));
  }
  return absl::OkStatus();
}

absl::Status StepSampling::EncodeAhead() {
  parts_.progress.Enter("plan");
  const absl::Status status = disk_.PersistUnlessDrained("prompts", [this] {
    return parts_.conditioning.Ahead(size_t{2} * options_.groups,
                                     [this] { return disk_.drain().asked(); });
  });
  return disk_.drain().asked() && absl::IsCancelled(status) ? absl::OkStatus() : status;
}

absl::StatusOr<std::vector<ReceivedGroup>> StepSampling::Await(LearnerStep step, size_t count) {
  parts_.progress.Enter("wait");
  while (true) {
    auto groups = parts_.assembler.Take(step, count, kWaitSlice);
    if (!absl::IsDeadlineExceeded(groups.status())) return groups;
    if (disk_.drain().asked()) return absl::CancelledError("drained");
    parts_.progress.Enter(parts_.coordinator.awaits_rewards() ? "rewards" : "wait");
  }
}

absl::StatusOr<CollectedGroups> StepSampling::Collect(LearnerStep step) {
  CollectedGroups groups;
  OXBOW_ASSIGN_OR_RETURN(groups.received, Await(step, options_.groups));
  groups.planned = parts_.coordinator.TakePlanned(step);
  TakeLatentsOfHeads(step, groups);
  std::set<uint64_t> taken;
  for (const PlannedGroup& group : groups.planned) taken.insert(group.prompt.id());
  for (bool more = groups.refills < options_.dynamic_sampling_max; more;) {
    OXBOW_ASSIGN_OR_RETURN(more, RefillOnce(step, groups, taken));
  }
  return groups;
}

// Samples that go on from a head which cannot be read any more train nothing.
void StepSampling::TakeLatentsOfHeads(LearnerStep step, CollectedGroups& groups) {
  if (parts_.buffer == nullptr) return;
  for (const size_t lost : parts_.buffer->TakeLatents(step, groups.planned)) {
    for (v1::Trajectory& sample : *groups.received[lost].group.mutable_trajectories()) {
      if (!sample.replayed() || sample.reward_failed()) continue;
      sample.set_reward_failed(true);
      ++groups.lost[lost];
    }
  }
}

absl::StatusOr<std::vector<bool>> StepSampling::SignalOf(const StepGroups& groups) const {
  std::vector<rl::Group> outlines;
  for (size_t i = 0; i < groups.received.size(); ++i) {
    OXBOW_ASSIGN_OR_RETURN(rl::Group outline,
                           BuildOutline(groups.received[i].group, groups.planned[i]));
    outlines.push_back(std::move(outline));
  }
  return parts_.trainer.HaveSignal(outlines);
}

// A round waits for all groups that it asked for, so that the replacements do not depend on timing.
// False: every group has a signal, or no more groups are allowed.
absl::StatusOr<bool> StepSampling::RefillOnce(LearnerStep step, CollectedGroups& groups,
                                              std::set<uint64_t>& taken) {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<bool> signal, SignalOf(groups));
  std::vector<size_t> wanted;
  for (size_t i = 0; i < signal.size(); ++i) {
    if (!signal[i]) wanted.push_back(i);
  }
  for (const auto& rule : rules_) {
    if (!wanted.empty()) rule->PlanExtra(step);
  }
  std::vector<PlannedGroup> refills = PlanRefill(
      groups.planned, wanted, groups.refills, options_.dynamic_sampling_max, parts_.prompts, taken);
  if (refills.empty()) return false;
  OXBOW_RETURN_IF_ERROR(Encode(refills));
  const size_t count = refills.size();
  parts_.coordinator.Refill(std::move(refills));
  OXBOW_ASSIGN_OR_RETURN(std::vector<ReceivedGroup> received, Await(step, count));
  std::vector<PlannedGroup> planned = parts_.coordinator.TakePlanned(step);
  for (size_t i = 0; i < count; ++i) {
    const size_t place = planned[i].place;
    for (const auto& rule : rules_) {
      rule->See(step, groups.received[place], groups.planned[place]);
    }
    groups.replaced += SampledFor(groups.received[place].group, options_.form);
    groups.lost.erase(place);
    groups.received[place] = std::move(received[i]);
    groups.planned[place] = std::move(planned[i]);
  }
  groups.refills += static_cast<uint32_t>(count);
  return groups.refills < options_.dynamic_sampling_max;
}

absl::StatusOr<std::vector<rl::Group>> StepSampling::Build(LearnerStep step,
                                                           CollectedGroups& collected) {
  for (const auto& rule : rules_) {
    OXBOW_RETURN_IF_ERROR(rule->Join(
        step, [&] { return SignalOf(collected); }, collected));
  }
  parts_.progress.Enter("update");
  const parallel::Share own = parallel::ShareOf(collected.received.size(), 0, options_.ranks);
  std::vector<rl::Group> built;
  for (size_t i = 0; i < collected.received.size(); ++i) {
    const ReceivedGroup& received = collected.received[i];
    const PlannedGroup& planned = collected.planned[i];
    OXBOW_ASSIGN_OR_RETURN(rl::Group group, own.Has(i) ? BuildOne(received, planned)
                                                       : BuildOutline(received.group, planned));
    built.push_back(std::move(group));
  }
  for (const auto& rule : rules_) OXBOW_RETURN_IF_ERROR(rule->Choose(step, collected, built));
  return built;
}

absl::StatusOr<rl::Group> StepSampling::BuildOne(const ReceivedGroup& received,
                                                 const PlannedGroup& planned) {
  OXBOW_ASSIGN_OR_RETURN(const ConditioningCache::Entry* entry,
                         parts_.conditioning.Get(planned.prompt));
  return BuildGroup(received.group, planned, entry->tensors);
}

}  // namespace oxbow::learner
