// The learner and its coordinator in a simulated run.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "core/simulate/run_in_motion.h"

namespace oxbow::simulate {

// Everything the learner's time is spent on; called before whatever changes the answer.
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
      (book_.running() > 0 ? time.wait_rollouts_s : time.wait_weights_s) += seconds;
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
        book_.ForgetBefore(checkpoint_);
      }
      Account();
      phase_ = Phase::kWait;
      return Proceed();
    default:
      OXBOW_CHECK(false) << "no end is due in this phase";
  }
}

// Plans all that the staleness budget lets anybody produce; what is left of the step's chores is
// done while workers sample.
void RunInMotion::AfterPlan() {
  while (book_.planned_steps() < model_.steps &&
         book_.planned_steps() <= committed_ + model_.staleness_max) {
    book_.PlanStep();
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
  if (phase_ == Phase::kWait && book_.IsComplete(committed_)) Enter(Phase::kUpdate, update_s_);
}

void RunInMotion::Commit() {
  Account();
  book_.VisitStep(committed_, [&](double work_s, uint64_t staleness) {
    outcome_.useful_s += work_s;
    outcome_.staleness_max = std::max(outcome_.staleness_max, staleness);
    staleness_sum_ += staleness;
    ++stale_groups_;
  });
  ++committed_;
  // Without deaths of the learner no step is ever taken back.
  if (model_.learner_failures_per_hour <= 0) book_.ForgetBefore(committed_);
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

// All ranks stop; what no checkpoint holds is done again, by leases of a new epoch.
void RunInMotion::OnLearnerDies() {
  Account();
  ++epoch_;
  ++outcome_.learner_deaths;
  published_ = false;
  for (uint64_t step = checkpoint_; step < book_.planned_steps(); ++step) {
    book_.VisitStep(step, [&](double work_s, uint64_t staleness) {
      outcome_.discarded.restart_s += work_s;
      if (step >= committed_) return;
      outcome_.useful_s -= work_s;
      staleness_sum_ -= staleness;
      --stale_groups_;
    });
  }
  double lost = update_s_ * static_cast<double>(committed_ - checkpoint_);
  if (phase_ == Phase::kUpdate) lost += now() - phase_began_;
  outcome_.learner.update_s -= lost;
  outcome_.learner.lost_s += lost;
  outcome_.steps_repeated += committed_ - checkpoint_;
  phase_ = Phase::kDown;
  for (uint32_t i = 0; i < model_.workers; ++i) {
    Worker& worker = workers_[i];
    Abandon(i, outcome_.discarded.restart_s);
    // Those weights belong to a history that will not have been.
    worker.has_weights = worker.fetched = worker.fetching = worker.applying = false;
    worker.reported = worker.queued = false;
  }
  wanting_.clear();
  committed_ = checkpoint_;
  book_.Restart(committed_);
  queue_.Add(EventKind::kLearnerStarts, now() + costs_.learner_restart_s, 0, epoch_);
}

void RunInMotion::OnLearnerStarts() {
  ArmLearnerDeath();
  Enter(Phase::kPublish, costs_.publish_s);
}

void RunInMotion::Count(uint64_t messages) {
  outcome_.messages += messages;
  coordinator_.Serve(now(), static_cast<double>(messages) * costs_.message_s);
}

void RunInMotion::Want(uint32_t index) {
  Worker& worker = workers_[index];
  if (!worker.up || !worker.reported || worker.held.size() >= model_.groups_in_flight) return;
  if (worker.queued && worker.queued_step == worker.reported_step) return Arm();
  worker.queued = true;
  worker.queued_step = worker.reported_step;
  wanting_[worker.queued_step].push_back(index);
  Arm();
}

// The worker with the newest weights that waits for longest: if it is not admitted, nobody is.
bool RunInMotion::FindWanting(uint32_t& index) {
  while (!wanting_.empty()) {
    const auto newest = std::prev(wanting_.end());
    std::deque<uint32_t>& queue = newest->second;
    while (!queue.empty()) {
      index = queue.front();
      const Worker& worker = workers_[index];
      const bool room = worker.held.size() < model_.groups_in_flight;
      if (worker.queued && worker.queued_step == newest->first && worker.up && room) return true;
      queue.pop_front();
    }
    wanting_.erase(newest);
  }
  return false;
}

void RunInMotion::Arm() {
  uint32_t index = 0;
  if (grant_armed_ || phase_ == Phase::kDown || !FindWanting(index)) return;
  const uint64_t step = workers_[index].queued_step;
  if (!book_.CanGrant(step)) {
    const std::optional<double> late_at = book_.LateAt();
    if (!late_at.has_value()) return;
    if (*late_at > now()) return ArmSpeculation();
  }
  grant_armed_ = true;
  queue_.Add(EventKind::kGrant, coordinator_.FreeAt(now()));
}

void RunInMotion::ArmSpeculation() {
  if (speculation_armed_) return;
  speculation_armed_ = true;
  queue_.Add(EventKind::kSpeculate, *book_.LateAt());
}

void RunInMotion::OnGrant() {
  grant_armed_ = false;
  uint32_t index = 0;
  if (phase_ == Phase::kDown || !FindWanting(index)) return;
  Worker& worker = workers_[index];
  const uint64_t step = worker.queued_step;
  Account();  // Groups may begin to run.
  if (book_.CanGrant(step)) {
    Send(book_.Grant(index, step, now()));
  } else if (const auto second = book_.GrantSecond(index, step, now()); second.has_value()) {
    Send(*second);
  } else {
    return;
  }
  wanting_[step].pop_front();
  worker.queued = false;
  Want(index);  // At the end of the queue if it has more room; then the next one's turn.
  Arm();
}

void RunInMotion::Send(uint32_t lease) {
  Lease& granted = book_.at(lease);
  Worker& worker = workers_[granted.worker];
  if (worker.held.empty()) worker.holding_since = now();
  worker.held.push_back(lease);
  Count(1);
  const double arrives = coordinator_.FreeAt(now()) + costs_.latency_s;
  queue_.Add(EventKind::kLeaseArrives, arrives, lease, granted.generation);
  // Nobody renews for a worker that stands still.
  if (worker.stalled_until > now() + model_.lease_s) {
    queue_.Add(EventKind::kLeaseExpires, now() + model_.lease_s, lease, granted.generation);
  }
}

void RunInMotion::OnDelivered(uint32_t index) {
  Lease& lease = book_.at(index);
  lease.stage = Lease::Stage::kDelivered;
  outcome_.ingest_bytes += costs_.group_bytes;
  Count(1);
  Account();  // The last group under way may be done.
  uint32_t other = kNoLease;
  if (phase_ != Phase::kDown && book_.Accept(index, now(), other)) {
    if (other != kNoLease) CancelAtWorker(other);
    Proceed();
  } else {
    Waste(lease);
  }
  queue_.Add(EventKind::kLeaseFinished, now() + 2 * costs_.latency_s, index, lease.generation);
}

// The worker of a superseded lease is told; what it has begun it finishes in vain.
void RunInMotion::CancelAtWorker(uint32_t index) {
  const Lease& lease = book_.at(index);
  Count(1);
  if (lease.held && lease.stage < Lease::Stage::kSampling) Forget(index);
}

void RunInMotion::OnExpires(uint32_t index) {
  Lease& lease = book_.at(index);
  if (!lease.live()) return;
  Account();
  const bool untaken = lease.held && lease.stage < Lease::Stage::kSampling;
  book_.Expire(index);
  if (untaken) Forget(index);
  Arm();
}

}  // namespace oxbow::simulate
