// SPDX-License-Identifier: Apache-2.0
// The learner in a simulated run.
#include <algorithm>

#include "base/check.h"
#include "simulate/run_in_motion.h"

namespace oxbow::simulate {

Learner::Learner(Run& run, Coordinator& coordinator, Fleet& fleet)
    : run_(run), coordinator_(coordinator), fleet_(fleet), update_s_(UpdateSeconds(run.model)) {}

// Called before each change of what the learner spends its time on.
void Learner::Account() {
  const double seconds = run_.now() - accounted_until_;
  accounted_until_ = run_.now();
  LearnerTime& time = run_.outcome.learner;
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
      (coordinator_.table().running() > 0 ? time.wait_rollouts_s : time.wait_weights_s) += seconds;
      return;
    case Phase::kUpdate:
      time.update_s += seconds;
  }
}

void Learner::Enter(Phase phase, double seconds) {
  Account();
  phase_ = phase;
  phase_began_ = run_.now();
  run_.queue.Add(EventKind::kLearnerPhaseEnds, run_.now() + seconds, 0, epoch_);
}

void Learner::OnPhaseEnds() {
  switch (phase_) {
    case Phase::kUpdate:
      return Commit();
    case Phase::kPublish:
      published_ = committed_;
      fleet_.FetchPublished();
      return Enter(Phase::kPlan, run_.model.costs.plan_s);
    case Phase::kPlan:
      Account();
      return AfterPlan();
    case Phase::kFinish:
      if (run_.model.checkpoint_every > 0 && committed_ % run_.model.checkpoint_every == 0) {
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
void Learner::AfterPlan() {
  while (steps_.size() < run_.model.steps &&
         steps_.size() <= committed_ + run_.model.staleness_max) {
    coordinator_.table().Plan(LearnerStep(steps_.size()));
    steps_.emplace_back();
  }
  double seconds = run_.model.costs.finish_s;
  if (run_.model.eval_every > 0 && committed_ % run_.model.eval_every == 0)
    seconds += run_.model.costs.eval_s;
  if (run_.model.checkpoint_every > 0 && committed_ > 0 &&
      committed_ % run_.model.checkpoint_every == 0) {
    seconds += run_.model.costs.checkpoint_s;
  }
  Enter(Phase::kFinish, seconds);
  coordinator_.Arm();
}

void Learner::Book(const HeldLease& held) {
  ++run_.outcome.leases.accepted;
  const uint64_t step = held.grant.step.value;
  const uint64_t staleness = step > held.sampled_step ? step - held.sampled_step : 0;
  StepWork& work = steps_[step];
  ++work.accepted;
  work.work_s += held.work_s;
  work.staleness_sum += staleness;
  work.staleness_max = std::max(work.staleness_max, staleness);
}

void Learner::Proceed() {
  if (phase_ != Phase::kWait || committed_ >= steps_.size()) return;
  if (steps_[committed_].accepted < run_.model.groups_per_step) return;
  Enter(Phase::kUpdate, update_s_);
}

void Learner::Commit() {
  Account();
  const StepWork& work = steps_[committed_];
  run_.outcome.useful_s += work.work_s;
  run_.outcome.staleness_max = std::max(run_.outcome.staleness_max, work.staleness_max);
  staleness_sum_ += work.staleness_sum;
  stale_groups_ += work.accepted;
  coordinator_.table().Commit(LearnerStep(committed_));
  ++committed_;
  if (committed_ == run_.model.steps) return;
  if (committed_ % run_.model.publish_every == 0)
    return Enter(Phase::kPublish, run_.model.costs.publish_s);
  Enter(Phase::kPlan, run_.model.costs.plan_s);
}

// All ranks stop. What no checkpoint holds is done again, by leases of a new epoch.
void Learner::OnDies() {
  Account();
  ++epoch_;
  ++run_.outcome.learner_deaths;
  published_.reset();
  run_.outcome.leases.dropped += coordinator_.table().state().live.size();
  TakeBackUncheckpointed();
  double lost = update_s_ * static_cast<double>(committed_ - checkpoint_);
  if (phase_ == Phase::kUpdate) lost += run_.now() - phase_began_;
  run_.outcome.learner.update_s -= lost;
  run_.outcome.learner.lost_s += lost;
  run_.outcome.steps_repeated += committed_ - checkpoint_;
  committed_ = checkpoint_;
  phase_ = Phase::kDown;
  fleet_.OnLearnerDies();
  coordinator_.Restart(Epoch(epoch_), LearnerStep(checkpoint_));
  run_.queue.Add(EventKind::kLearnerStarts, run_.now() + run_.model.costs.learner_restart_s, 0,
                 epoch_);
}

// The groups of the steps since the newest checkpoint were made for nothing.
void Learner::TakeBackUncheckpointed() {
  for (uint64_t step = checkpoint_; step < steps_.size(); ++step) {
    const StepWork& work = steps_[step];
    run_.outcome.discarded.restart_s += work.work_s;
    if (step >= committed_) continue;
    run_.outcome.useful_s -= work.work_s;
    staleness_sum_ -= work.staleness_sum;
    stale_groups_ -= work.accepted;
  }
  steps_.resize(checkpoint_);
}

void Learner::OnStarts() {
  const double per_hour = run_.model.learner_failures_per_hour * run_.model.ranks;
  if (per_hour > 0) {
    const double dies = run_.now() + Exponential(run_.model, kLearnerDeath, 0, epoch_, per_hour);
    run_.queue.Add(EventKind::kLearnerDies, dies, 0, epoch_);
  }
  Enter(Phase::kPublish, run_.model.costs.publish_s);
}

void Learner::Finish() {
  Account();
  Outcome& o = run_.outcome;
  o.steps = committed_;
  o.samples = committed_ * run_.model.groups_per_step * run_.model.group_size;
  for (uint64_t step = committed_; step < steps_.size(); ++step) o.useful_s += steps_[step].work_s;
  o.staleness_mean = stale_groups_ == 0
                         ? 0
                         : static_cast<double>(staleness_sum_) / static_cast<double>(stale_groups_);
}

}  // namespace oxbow::simulate
