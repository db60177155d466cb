// SPDX-License-Identifier: Apache-2.0
// The learner in a simulated run.
#include <algorithm>

#include "base/check.h"
#include "simulate/run_in_motion.h"

namespace oxbow::simulate {

// Called before each change of what the learner spends its time on.
void RunInMotion::Account() {
  const double seconds = now() - accounted_until_;
  accounted_until_ = now();
  LearnerTime& time = outcome_.learner;
  switch (phase_) {
    case Phase::kDown:
      time.down_s += seconds;
      return;
    case Phase::kPublish:
      time.publish_s += seconds;
      return;
    case Phase::kPlan:
    case Phase::kFinish:
      time.other_s += seconds;
      return;
    case Phase::kWait:
      (table_->running() > 0 ? time.wait_rollouts_s : time.wait_weights_s) += seconds;
      return;
    case Phase::kUpdate:
      time.update_s += seconds;
  }
}

void RunInMotion::Enter(Phase phase, double seconds) {
  Account();
  phase_ = phase;
  phase_began_ = now();
  queue_.Add(EventKind::kLearnerPhaseEnds, now() + seconds, 0, epoch_);
}

void RunInMotion::OnPhaseEnds() {
  switch (phase_) {
    case Phase::kUpdate:
      return Commit();
    case Phase::kPublish:
      Publish();
      return Enter(Phase::kPlan, costs_.plan_s);
    case Phase::kPlan:
      Account();
      return AfterPlan();
    case Phase::kFinish:
      if (model_.checkpoint_every > 0 && committed_ % model_.checkpoint_every == 0) {
        checkpoint_ = committed_;
      }
      Account();
      phase_ = Phase::kWait;
      return Proceed();
    default:
      OXBOW_CHECK(false) << "no end is due in this phase";
  }
}

// Plans all steps that the staleness budget admits. The rest of the step's chores is done while
// workers sample.
void RunInMotion::AfterPlan() {
  while (steps_.size() < model_.steps && steps_.size() <= committed_ + model_.staleness_max) {
    table_->Plan(LearnerStep(steps_.size()));
    steps_.emplace_back();
  }
  double seconds = costs_.finish_s;
  if (model_.eval_every > 0 && committed_ % model_.eval_every == 0) seconds += costs_.eval_s;
  if (model_.checkpoint_every > 0 && committed_ > 0 && committed_ % model_.checkpoint_every == 0) {
    seconds += costs_.checkpoint_s;
  }
  Enter(Phase::kFinish, seconds);
  Arm();
}

void RunInMotion::Proceed() {
  if (phase_ != Phase::kWait || committed_ >= steps_.size()) return;
  if (steps_[committed_].accepted < model_.groups_per_step) return;
  Enter(Phase::kUpdate, update_s_);
}

void RunInMotion::Commit() {
  Account();
  const StepWork& work = steps_[committed_];
  outcome_.useful_s += work.work_s;
  outcome_.staleness_max = std::max(outcome_.staleness_max, work.staleness_max);
  staleness_sum_ += work.staleness_sum;
  stale_groups_ += work.accepted;
  table_->Commit(LearnerStep(committed_));
  ++committed_;
  if (committed_ == model_.steps) return;
  if (committed_ % model_.publish_every == 0) return Enter(Phase::kPublish, costs_.publish_s);
  Enter(Phase::kPlan, costs_.plan_s);
}

void RunInMotion::Publish() {
  published_ = true;
  published_step_ = committed_;
  for (uint32_t i = 0; i < model_.workers; ++i) {
    if (workers_[i].up && !workers_[i].fetching) {
      StartFetch(i, FetchSeconds(model_, i), LearnerServes(model_, i));
    }
  }
}

void RunInMotion::ArmLearnerDeath() {
  const double per_hour = model_.learner_failures_per_hour * model_.ranks;
  if (per_hour <= 0) return;
  queue_.Add(EventKind::kLearnerDies, now() + Exponential(kLearnerDeath, 0, epoch_, per_hour), 0,
             epoch_);
}

// All ranks stop. What no checkpoint holds is done again, by leases of a new epoch.
void RunInMotion::OnLearnerDies() {
  Account();
  ++epoch_;
  ++outcome_.learner_deaths;
  published_ = false;
  outcome_.leases.dropped += table_->state().live.size();
  TakeBackUncheckpointed();
  double lost = update_s_ * static_cast<double>(committed_ - checkpoint_);
  if (phase_ == Phase::kUpdate) lost += now() - phase_began_;
  outcome_.learner.update_s -= lost;
  outcome_.learner.lost_s += lost;
  outcome_.steps_repeated += committed_ - checkpoint_;
  committed_ = checkpoint_;
  phase_ = Phase::kDown;
  for (uint32_t i = 0; i < model_.workers; ++i) {
    Worker& worker = workers_[i];
    Abandon(i, outcome_.discarded.restart_s);
    // Its weights are of steps that are taken back.
    worker.has_weights = worker.fetched = worker.fetching = worker.applying = false;
    worker.reported = worker.queued = worker.silent = false;
  }
  wanting_.clear();
  StartLeases();
  queue_.Add(EventKind::kLearnerStarts, now() + costs_.learner_restart_s, 0, epoch_);
}

// The groups of the steps since the newest checkpoint were made for nothing.
void RunInMotion::TakeBackUncheckpointed() {
  for (uint64_t step = checkpoint_; step < steps_.size(); ++step) {
    const StepWork& work = steps_[step];
    outcome_.discarded.restart_s += work.work_s;
    if (step >= committed_) continue;
    outcome_.useful_s -= work.work_s;
    staleness_sum_ -= work.staleness_sum;
    stale_groups_ -= work.accepted;
  }
  steps_.resize(checkpoint_);
}

void RunInMotion::StartLeases() {
  table_.emplace(lease::LeaseTable::Options{.epoch = Epoch(epoch_),
                                            .first_step = LearnerStep(checkpoint_),
                                            .groups_per_step = model_.groups_per_step,
                                            .staleness_max = model_.staleness_max,
                                            .lease_time = absl::Seconds(model_.lease_s),
                                            .stragglers = model_.stragglers,
                                            .ages = model_.ages},
                 queue_);
}

void RunInMotion::OnLearnerStarts() {
  ArmLearnerDeath();
  Enter(Phase::kPublish, costs_.publish_s);
}

}  // namespace oxbow::simulate
