// SPDX-License-Identifier: Apache-2.0
#include "services/learner/learner_loop.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/statistics.h"
#include "base/status_macros.h"
#include "base/trace.h"
#include "core/parallel/share.h"
#include "core/replay/table_policy.h"
#include "metrics/step_metrics.h"
#include "services/learner/coordinator/group_check.h"
#include "services/learner/experience_builder.h"
#include "services/learner/replay/regenerations.h"

namespace oxbow::learner {
namespace {

constexpr absl::Duration kWaitSlice = absl::Milliseconds(500);  // Between checks for a drain.

}  // namespace

LearnerLoop::LearnerLoop(Options options, Parts parts)
    : options_(std::move(options)),
      parts_(std::move(parts)),
      reuse_(options_.reuse, parts_.buffer, options_.reused),
      choice_(options_.choice, parts_.prompts, options_.known),
      base_(options_.directory),
      committed_(options_.first_step.value),
      planned_(committed_),
      checkpointed_(committed_),
      patience_(Clock::Steady(), options_.patience),
      owed_(options_.owed),
      best_(options_.best_before),
      best_begun_(options_.best_before),
      best_whole_(options_.best_before),
      stop_values_(options_.stop_values),
      stop_reason_(config::StopReason(options_.stop_if, stop_values_)) {
  if (!options_.adaptation.has_value()) return;
  adaptation_.emplace(
      StepAdaptation::Options{.rules = *options_.adaptation,
                              .group_size = static_cast<int>(options_.form.group_size),
                              .groups = options_.groups,
                              .run_seed = options_.run_seed,
                              .offers = options_.offers},
      parts_.buffer, parts_.conditioning);
}

void LearnerLoop::RequestDrain() {
  if (!drain_.exchange(true)) {
    drain_end_ns_ = absl::ToInt64Nanoseconds(Clock::Steady().Now() + options_.drain_grace);
  }
  parts_.cancel_scoring();
  parts_.coordinator.Drain();
}

bool LearnerLoop::DrainOverdue(absl::Duration longer) const {
  return absl::ToInt64Nanoseconds(Clock::Steady().Now() - longer) >= drain_end_ns_;
}

absl::Status LearnerLoop::Run() {
  parts_.metrics.PolicyVersionIs(parts_.trainer.version().value);
  // Never withheld: workers have no other weights.
  OXBOW_RETURN_IF_ERROR(parts_.publish(parts_.trainer.version(), LearnerStep(committed_)).status());
  OXBOW_RETURN_IF_ERROR(DrawOwed());
  bool fresh_start = committed_ == 0;
  while (true) {
    if (!last()) {
      const absl::Status planned = PlanAhead();
      if (!drain_ || !absl::IsCancelled(planned)) OXBOW_RETURN_IF_ERROR(planned);
    }
    if (fresh_start || committed_ > options_.first_step.value) OXBOW_RETURN_IF_ERROR(FinishStep());
    fresh_start = false;
    if (last()) break;
    const absl::Status status = TrainOne(LearnerStep(committed_));
    if (absl::IsCancelled(status) && drain_) {
      break;  // The resumed run leases the groups of this step again.
    }
    if (unscored_.tripped()) OXBOW_RETURN_IF_ERROR(WriteLastCheckpoint());
    OXBOW_RETURN_IF_ERROR(status);
  }
  if (drain_ && committed_ < options_.steps) LogUnfinished();
  return WriteLastCheckpoint();
}

absl::Status LearnerLoop::PlanAhead() {
  parts_.progress.Enter("plan");
  while (planned_ < options_.steps && planned_ <= committed_ + options_.staleness_max) {
    OXBOW_RETURN_IF_ERROR(PlanOne(LearnerStep(planned_)));
    ++planned_;
  }
  return absl::OkStatus();
}

std::vector<int> LearnerLoop::WindowOf(LearnerStep step) const {
  if (!options_.window.has_value()) return {};
  return flow::WindowAt(*options_.window, options_.run_seed, step.value);
}

absl::Status LearnerLoop::PlanOne(LearnerStep step) {
  const TraceScope scope(TraceOfStep(options_.run_id, step));
  const std::vector<bool> sde =
      flow::StepFlags(WindowOf(step), static_cast<int>(options_.offers.sigmas.size()) - 1);
  std::vector<ReplayedHead> heads;
  if (parts_.buffer != nullptr) {
    heads = parts_.buffer->Draw(step, reuse_.heads_wanted(step, committed_), sde);
    OXBOW_RETURN_IF_ERROR(parts_.buffer->ended());
  }
  std::vector<WaitingPrompt> waiting;
  if (adaptation_.has_value()) {
    waiting = adaptation_->Waiting(step, options_.groups - static_cast<uint32_t>(heads.size()));
  }
  choice_.BeforePlan(step);
  StepPlan plan = PlanStep(step, options_.groups, std::move(heads), parts_.prompts, sde,
                           options_.dynamic_sampling_max, std::move(waiting));
  positions_[step.value] = plan.before;
  OXBOW_RETURN_IF_ERROR(Encode(plan.groups));
  parts_.coordinator.Plan(std::move(plan));
  return absl::OkStatus();
}

absl::Status LearnerLoop::Encode(std::vector<PlannedGroup>& groups) {
  for (PlannedGroup& group : groups) {
    if (drain_) return absl::CancelledError("drained");
    OXBOW_RETURN_IF_ERROR(PersistUnlessDrained("prompts", [&]() -> absl::Status {
      OXBOW_ASSIGN_OR_RETURN(const ConditioningCache::Entry* entry,
                             parts_.conditioning.Get(group.prompt));
      group.conditioning = entry->sent;
      return absl::OkStatus();
    }));
  }
  return absl::OkStatus();
}

// Twice what a step takes, so that prompts which were left stay ahead of those that are planned.
absl::Status LearnerLoop::EncodeAhead() {
  parts_.progress.Enter("plan");
  const absl::Status status = PersistUnlessDrained("prompts", [this] {
    return parts_.conditioning.Ahead(size_t{2} * options_.groups, [this] { return drain_.load(); });
  });
  return drain_ && absl::IsCancelled(status) ? absl::OkStatus() : status;
}

// The work after a commit for which workers need not wait.
absl::Status LearnerLoop::FinishStep() {
  const LearnerStep finished(committed_ > 0 ? committed_ - 1 : 0);
  const TraceScope scope(TraceOfStep(options_.run_id, finished));
  const bool end = last();
  OXBOW_RETURN_IF_ERROR(LookAtCheckpoint());
  const bool due = CheckpointDue();
  OXBOW_RETURN_IF_ERROR(FinishBeside());
  if (EvaluationDue()) {
    // A checkpoint has the numbers of all evaluations before it.
    if (options_.eval_beside && !due && !end) {
      if (BeginEvaluation(committed_, std::nullopt, numbers_)) {
        beside_.emplace(WaitingLine{.committed = committed_});
      }
    } else {
      OXBOW_RETURN_IF_ERROR(Evaluate());
    }
  } else if (EvaluationWanted()) {
    Owe(committed_);
  }
  const bool best = EvaluatedBest();
  if ((committed_ > 0 && (due || best)) || end) OXBOW_RETURN_IF_ERROR(WriteCheckpoint());
  parts_.progress.Enter("log");
  const std::map<std::string, double> seconds = parts_.progress.TakeSeconds();
  double total = 0;
  for (const auto& [phase, value] : seconds) {
    numbers_[metric::kTimePhaseS.Of(phase)] = value;
    total += value;
  }
  numbers_[metric::kTimeStepS] = total;
  if (const auto samples = numbers_.find(metric::kTrainSamples);
      samples != numbers_.end() && total > 0) {
    numbers_[metric::kThroughputSamplesPerS] = samples->second / total;
  }
  if (parts_.copies_failed) {
    numbers_[metric::kCheckpointCopiesFailed] = static_cast<double>(parts_.copies_failed());
  }
  const double wall = options_.wall_seconds_before + parts_.progress.wall_seconds();
  if (beside_.has_value()) {
    beside_->wall_seconds = wall;
    beside_->numbers = numbers_;
  } else {
    OXBOW_RETURN_IF_ERROR(LogStep(committed_, wall, numbers_));
  }
  numbers_[metric::kTimeWallS] = wall;
  ApplyStopRules();
  numbers_.erase(metric::kTimeWallS);
  std::map<std::string, double> told = numbers_;
  told.merge(std::exchange(untold_, {}));
  parts_.progress.StepCommitted(committed_, parts_.trainer.version().value, told);
  if (!beside_.has_value() && (!std::exchange(logged_, true) || evaluated_ == committed_)) {
    parts_.evaluated();
  }
  if (committed_ > 0) {
    parts_.metrics.StepCommitted(total, told);
    OXBOW_LOG(Info) << "step committed" << Field("step", finished)
                    << Field("policy_version", parts_.trainer.version())
                    << Field("reward", numbers_[metric::kTrainRewardMean])
                    << Field("seconds", total);
  }
  numbers_.clear();
  return last() ? absl::OkStatus() : EncodeAhead();
}

// Says what a run that is stopped was doing since its last step. A step whose evaluation is cut off
// has no line yet.
void LearnerLoop::LogUnfinished() {
  if (beside_.has_value()) return;
  std::map<std::string, double> numbers;
  for (const auto& [phase, seconds] : parts_.progress.TakeSeconds()) {
    numbers[metric::kTimeUnfinishedPhaseS.Of(phase)] = seconds;
  }
  const absl::Status logged = parts_.log.AddToStep(static_cast<int64_t>(committed_), numbers);
  if (logged.ok()) return;
  OXBOW_LOG(Warning) << "no time of the last phases" << Field("error", logged.message());
}

void LearnerLoop::ApplyStopRules() {
  config::AddValues(options_.stop_if, committed_, numbers_, stop_values_);
  if (committed_ >= options_.steps) return;
  stop_reason_ = config::StopReason(options_.stop_if, stop_values_);
  if (!stop_reason_.has_value()) return;
  parts_.metrics.RunComplete();
  OXBOW_LOG(Info) << "run is stopped by its rule" << Field("step", committed_)
                  << Field("reason", *stop_reason_);
}

// Tries withheld weights again after every step: a new evaluation may admit them.
absl::Status LearnerLoop::PublishIfDue() {
  if (drain_) return absl::OkStatus();  // Nobody samples with them, and the checkpoint is due.
  if (committed_ % options_.publish_every != 0 && !publication_owed_) return absl::OkStatus();
  if (options_.eval_before_publish && EvaluationDue()) OXBOW_RETURN_IF_ERROR(Evaluate());
  parts_.progress.Enter("publish");
  const absl::StatusOr<bool> out =
      parts_.publish(parts_.trainer.version(), LearnerStep(committed_));
  publication_owed_ = out.ok() && !*out;
  // A finished run needs no more groups.
  if (absl::IsFailedPrecondition(out.status()) && last()) return absl::OkStatus();
  return out.status();
}

absl::StatusOr<std::vector<ReceivedGroup>> LearnerLoop::Await(LearnerStep step, size_t count) {
  parts_.progress.Enter("wait");
  while (true) {
    auto groups = parts_.assembler.Take(step, count, kWaitSlice);
    if (!absl::IsDeadlineExceeded(groups.status())) return groups;
    if (drain_) return absl::CancelledError("drained");
    parts_.progress.Enter(parts_.coordinator.awaits_rewards() ? "rewards" : "wait");
  }
}

absl::StatusOr<LearnerLoop::StepGroups> LearnerLoop::Collect(LearnerStep step) {
  StepGroups groups;
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
void LearnerLoop::TakeLatentsOfHeads(LearnerStep step, StepGroups& groups) {
  if (parts_.buffer == nullptr) return;
  for (const size_t lost : parts_.buffer->TakeLatents(step, groups.planned)) {
    for (v1::Trajectory& sample : *groups.received[lost].group.mutable_trajectories()) {
      if (!sample.replayed() || sample.reward_failed()) continue;
      sample.set_reward_failed(true);
      ++groups.lost[lost];
    }
  }
}

uint64_t LearnerLoop::StepGroups::samples_lost() const {
  uint64_t samples = 0;
  for (const auto& [group, lost] : lost) samples += lost;
  return samples;
}

// The groups that would train anything as they are.
absl::StatusOr<std::vector<bool>> LearnerLoop::SignalOf(const StepGroups& groups) {
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
absl::StatusOr<bool> LearnerLoop::RefillOnce(LearnerStep step, StepGroups& groups,
                                             std::set<uint64_t>& taken) {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<bool> signal, SignalOf(groups));
  std::vector<size_t> wanted;
  for (size_t i = 0; i < signal.size(); ++i) {
    if (!signal[i]) wanted.push_back(i);
  }
  if (!wanted.empty()) choice_.BeforeExtra(step);
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
    // Afterwards nothing tells of the head of a dead group.
    const auto again = RegenerationOf(groups.received[place].group);
    if (again.has_value()) groups.rescored.push_back(*again);
    const auto outcome = choice_.OutcomeOf(step, groups.received[place].group);
    if (outcome.has_value()) groups.outcomes.push_back(*outcome);
    StoredSuccesses::Count(groups.received[place], groups.planned[place], groups.replaced_fresh);
    groups.replaced += SampledFor(groups.received[place].group, options_.form);
    groups.lost.erase(place);
    groups.received[place] = std::move(received[i]);
    groups.planned[place] = std::move(planned[i]);
  }
  groups.refills += static_cast<uint32_t>(count);
  return groups.refills < options_.dynamic_sampling_max;
}

absl::StatusOr<std::vector<rl::Group>> LearnerLoop::Build(
    const std::vector<ReceivedGroup>& received, const std::vector<PlannedGroup>& planned) {
  const parallel::Share own =
      parallel::ShareOf(received.size(), 0, static_cast<int>(options_.ranks));
  std::vector<rl::Group> groups;
  for (size_t i = 0; i < received.size(); ++i) {
    if (!own.Has(i)) {
      OXBOW_ASSIGN_OR_RETURN(rl::Group outline, BuildOutline(received[i].group, planned[i]));
      groups.push_back(std::move(outline));
      continue;
    }
    OXBOW_ASSIGN_OR_RETURN(const ConditioningCache::Entry* entry,
                           parts_.conditioning.Get(planned[i].prompt));
    OXBOW_ASSIGN_OR_RETURN(rl::Group group,
                           BuildGroup(received[i].group, planned[i], entry->tensors));
    groups.push_back(std::move(group));
  }
  return groups;
}

absl::Status LearnerLoop::TrainOne(LearnerStep step) {
  const TraceScope scope(TraceOfStep(options_.run_id, step));
  OXBOW_ASSIGN_OR_RETURN(StepGroups collected, Collect(step));
  OXBOW_RETURN_IF_ERROR(unscored_.Check(
      step, collected.received, parts_.coordinator.unscored_reason(), collected.samples_lost()));
  std::vector<bool> signal;
  if (reuse_.binds_late(step)) {
    OXBOW_ASSIGN_OR_RETURN(signal, SignalOf(collected));
  }
  reuse_.Join(step, signal, collected.received, collected.planned);
  const std::vector<ReceivedGroup>& received = collected.received;
  const std::vector<PlannedGroup>& planned = collected.planned;
  parts_.progress.Enter("update");
  OXBOW_ASSIGN_OR_RETURN(std::vector<rl::Group> groups, Build(received, planned));
  if (adaptation_.has_value()) {
    OXBOW_RETURN_IF_ERROR(adaptation_->Choose(step, received, planned, groups));
  }
  StepChoice choice = adaptation_.has_value() ? adaptation_->choice() : StepChoice();
  for (const PlannedGroup& group : planned) {
    if (!group.head.has_value() || !group.head->whole) continue;
    if (group.success_rate.has_value()) {
      choice.added.push_back(group.head->entry);
    } else {
      (group.late ? choice.late : choice.whole)[group.id] = group.head->entry;
    }
  }
  OXBOW_RETURN_IF_ERROR(PersistUnlessDrained("steps", [&] {
    return parts_.step_log.Freeze(options_.epoch, step, parts_.trainer.version(), received, choice);
  }));
  parts_.announce(step, received, planned);
  OXBOW_ASSIGN_OR_RETURN(rl::StepResult result,
                         parts_.trainer.Step(step, groups, [this] { return DrainOverdue(); }));
  parts_.metrics.PolicyVersionIs(parts_.trainer.version().value);
  numbers_ = std::move(result.metrics);
  if (adaptation_.has_value()) {
    numbers_.insert(adaptation_->numbers().begin(), adaptation_->numbers().end());
  }
  reuse_.Follow(received, planned, collected.replaced_fresh);
  CommitToChoice(step, collected);
  Measure(step, collected);
  numbers_[metric::kTrainSamplesUnscored] -= static_cast<double>(collected.samples_lost());
  if (numbers_[metric::kTrainSamplesUnscored] > 0) NoteUnscored();
  WarnOfLostSteps(step);
  numbers_[metric::kTrainRefilledGroups] = collected.refills;
  parts_.coordinator.AddCounts(numbers_);
  committed_ = step.value + 1;
  if (committed_ == options_.steps) parts_.metrics.RunComplete();
  parts_.coordinator.Commit(step);
  positions_.erase(positions_.begin(), positions_.lower_bound(committed_));
  OXBOW_RETURN_IF_ERROR(PublishIfDue());
  CommitToBuffer(step, collected, result);
  return parts_.buffer == nullptr ? absl::OkStatus() : parts_.buffer->ended();
}

// For people who look at the run, also once it has ended.
void LearnerLoop::NoteUnscored() {
  const std::string reason = parts_.coordinator.unscored_reason();
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

void LearnerLoop::CommitToChoice(LearnerStep step, StepGroups& groups) {
  for (const ReceivedGroup& item : groups.received) {
    const auto outcome = choice_.OutcomeOf(step, item.group);
    if (outcome.has_value()) groups.outcomes.push_back(*outcome);
  }
  choice_.Commit(step, groups.outcomes);
}

// A step may commit without having moved the weights as it should. Nothing else would say so.
void LearnerLoop::WarnOfLostSteps(LearnerStep step) {
  if (numbers_[metric::kTrainSamplesTrained] == 0) {
    const auto equal = numbers_.find(metric::kTrainRewardZeroStdRatio);
    const bool signal = equal != numbers_.end() && equal->second < 1;
    parts_.metrics.StepTrainedNothing(signal ? "no_rows" : "no_signal");
    OXBOW_LOG(Warning) << "step trained no sample" << Field("step", step)
                       << Field("reason",
                                signal ? "every sample is older than method.kept_steps allows, has "
                                         "weight 0 or is left out by method.branch"
                                       : "in every group the rewards that are there are equal");
  }
  const auto rms = numbers_.find(metric::kTrainGradRms);
  if (epsilon_warned_ || rms == numbers_.end() || rms->second >= options_.adamw_epsilon) return;
  epsilon_warned_ = true;
  OXBOW_LOG(Warning) << "optimizer.epsilon exceeds the gradients: AdamW's steps shrink with them"
                     << Field("step", step) << Field("epsilon", options_.adamw_epsilon)
                     << Field("gradient_rms", rms->second);
}

void LearnerLoop::CommitToBuffer(LearnerStep step, const StepGroups& groups,
                                 const rl::StepResult& result) {
  const std::vector<ReceivedGroup>& received = groups.received;
  const std::vector<PlannedGroup>& planned = groups.planned;
  if (parts_.buffer == nullptr) return;
  parts_.progress.Enter("offer");
  ReplayLink::StepCommit commit{.step = step,
                                .offers = {},
                                .groups = {},
                                .used = {},
                                .evict = result.evict,
                                .rescored = groups.rescored,
                                .failures_max = options_.failures_max};
  // Branches of one head are one use.
  const std::set<EntryId> used(result.used.begin(), result.used.end());
  commit.used.assign(used.begin(), used.end());
  for (const ReceivedGroup& item : received) {
    const auto again = RegenerationOf(item.group);
    if (again.has_value()) commit.rescored.push_back(*again);
  }
  for (size_t i = 0; options_.replays && i < received.size(); ++i) {
    auto offer = MakeOffer(received[i].group, planned[i], options_.offers);
    if (offer.has_value()) commit.offers.push_back(*std::move(offer));
  }
  numbers_[metric::kBufferOffers] = static_cast<double>(commit.offers.size());
  numbers_[metric::kBufferHeadsFailed] =
      static_cast<double>(std::count_if(commit.rescored.begin(), commit.rescored.end(),
                                        [](const buffer::Rescored& one) { return one.failed; }));
  if (adaptation_.has_value()) adaptation_->AddTo(commit, received, planned);
  parts_.buffer->Commit(std::move(commit));
  numbers_[metric::kBufferAttached] = parts_.buffer->attached() ? 1 : 0;
  const std::optional<v1::InfoResponse> info = parts_.buffer->Info();
  if (!info.has_value()) return;
  for (const v1::TableInfo& table : info->tables()) {
    if (table.name() == replay::kBestTable) continue;
    numbers_[metric::kBufferTable.Of(table.name())] = static_cast<double>(table.entries());
  }
  numbers_[metric::kBufferSize] = static_cast<double>(info->entries());
  numbers_[metric::kBufferRawRewardMean] = info->raw_reward_mean();
  numbers_[metric::kBufferPriorityMean] = info->priority_mean();
  numbers_[metric::kBufferAgeMean] = info->age_mean_steps();
  for (const v1::NamedValue& offers : info->offers()) {
    numbers_[metric::kBufferOffersOutcome.Of(offers.name())] = offers.value();
  }
}

void LearnerLoop::Measure(LearnerStep step, const StepGroups& groups) {
  const std::vector<ReceivedGroup>& received = groups.received;
  const std::vector<PlannedGroup>& planned = groups.planned;
  Sampled sampled = groups.replaced;
  std::vector<double> staleness;
  std::vector<double> ages;
  std::vector<double> uses;
  double other_windows = 0;
  double added = 0;
  double late = 0;
  double samples = 0;
  double unscored = 0;
  for (size_t i = 0; i < received.size(); ++i) {
    unscored += static_cast<double>(UnscoredIn(received[i].group));
    sampled += SampledFor(received[i].group, options_.form);
    for (const v1::Trajectory& trajectory : received[i].group.trajectories()) {
      ++samples;
      uint64_t stale = 0;
      if (!trajectory.replayed() && trajectory.behaviour_version_size() > 0) {
        const auto made =
            parts_.coordinator.StepOfVersion(PolicyVersion(trajectory.behaviour_version(0)));
        if (made.has_value() && made->value < step.value) stale = step.value - made->value;
        staleness.push_back(static_cast<double>(stale));
      }
      parts_.metrics.SampleConsumed(stale, trajectory.replayed());
    }
    if (planned[i].head.has_value()) {
      ages.push_back(static_cast<double>(planned[i].head->age));
      uses.push_back(static_cast<double>(planned[i].head->uses + 1));
      other_windows += planned[i].head->other_window ? 1 : 0;
      const bool beside = planned[i].success_rate.has_value();
      added += beside ? 1 : 0;
      late += planned[i].late ? 1 : 0;
      if (planned[i].head->whole) {  // It is in no received group.
        samples += beside || planned[i].late ? 0 : 1;
        parts_.metrics.SampleConsumed(0, /*replayed=*/true);
      }
    }
  }
  MeasureProduction(received, numbers_);
  CountObservedFailures(options_.reward, received, numbers_);
  for (const ReceivedGroup& item : received) {
    for (const std::string& line : parts_.ranges.Look(item.group)) parts_.progress.Notice(line);
  }
  if (sampled.samples != samples) numbers_[metric::kRolloutSamples] = sampled.samples;
  numbers_[metric::kRolloutLatentBytes] = sampled.latent_bytes;
  numbers_[metric::kRolloutRowsForward] = sampled.steps * options_.rows_per_step;
  const std::vector<int> window = WindowOf(step);
  if (!window.empty()) numbers_[metric::kTrainWindowFirst] = window.front();
  numbers_[metric::kTrainWindowSteps] = static_cast<double>(window.size());
  numbers_[metric::kTrainSamples] = samples;
  numbers_[metric::kTrainSamplesUnscored] = unscored;
  numbers_[metric::kTrainGroupsReplayed] = static_cast<double>(ages.size()) - added;
  if (options_.reuse.late_binding) numbers_[metric::kTrainGroupsBoundLate] = late;
  numbers_[metric::kRolloutStalenessMean] = Mean(staleness);
  numbers_[metric::kRolloutStalenessMax] =
      staleness.empty() ? 0 : *std::max_element(staleness.begin(), staleness.end());
  for (const auto& [one, other] :
       {std::pair(metric::kTrainStalenessMean, metric::kRolloutStalenessMean),
        std::pair(metric::kTrainStalenessMax, metric::kRolloutStalenessMax)}) {
    if (numbers_[one] == numbers_[other]) numbers_.erase(one);  // One name.
  }
  if (parts_.buffer != nullptr) {
    numbers_[metric::kBufferNeed] = reuse_.state().need;
    numbers_[metric::kBufferHeadsRefused] = static_cast<double>(parts_.buffer->heads_refused());
  }
  if (ages.empty()) return;
  numbers_[metric::kBufferHeadsOtherWindow] = other_windows;
  numbers_[metric::kBufferStalenessMean] = Mean(ages);
  numbers_[metric::kBufferStalenessP95] = Quantile(ages, 0.95);
  numbers_[metric::kBufferReuseMean] = Mean(uses);
}

}  // namespace oxbow::learner
