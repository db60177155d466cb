#include "services/learner/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"

namespace oxbow::learner {
namespace {

constexpr absl::Duration kExpiryCheck =
    absl::Milliseconds(250);  // Between looks at overdue leases.

}  // namespace

Coordinator::Coordinator(Options options, const Clock& clock, GroupAssembler& assembler,
                         LearnerMetrics& metrics)
    : options_(std::move(options)),
      clock_(clock),
      assembler_(assembler),
      metrics_(metrics),
      table_(options_.leases, clock) {}

void Coordinator::Plan(StepPlan plan) {
  absl::MutexLock lock(&mutex_);
  table_.Plan(plan.step);
  for (PlannedGroup& group : plan.groups) planned_.emplace(group.id.value, std::move(group));
  Report();
  changed_.SignalAll();
}

void Coordinator::Published(PolicyVersion version, LearnerStep committed) {
  absl::MutexLock lock(&mutex_);
  published_[version.value] = committed;
  // Nothing older than the staleness budget can be in a result that is still wanted.
  while (published_.size() > options_.leases.staleness_max + 4)
    published_.erase(published_.begin());
  changed_.SignalAll();
}

std::vector<PlannedGroup> Coordinator::TakePlanned(LearnerStep step) {
  absl::MutexLock lock(&mutex_);
  const uint64_t begin = step.value * options_.leases.groups_per_step;
  std::vector<PlannedGroup> groups;
  for (uint64_t id = begin; id < begin + options_.leases.groups_per_step; ++id) {
    const auto found = planned_.find(id);
    OXBOW_CHECK(found != planned_.end()) << "group was never planned: " << id;
    groups.push_back(std::move(found->second));
    planned_.erase(found);
  }
  return groups;
}

void Coordinator::Commit(LearnerStep step) {
  absl::MutexLock lock(&mutex_);
  table_.Commit(step);
  Report();
}

void Coordinator::Drain() {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  changed_.SignalAll();
}

std::optional<LearnerStep> Coordinator::StepOfLocked(uint64_t version) const {
  const auto found = published_.find(version);
  if (found == published_.end()) return std::nullopt;
  return found->second;
}

std::optional<LearnerStep> Coordinator::StepOfVersion(PolicyVersion version) const {
  absl::MutexLock lock(&mutex_);
  return StepOfLocked(version.value);
}

void Coordinator::Open(Session& session, const std::string& worker) {
  absl::MutexLock lock(&mutex_);
  Worker& entry = workers_[worker];
  if (entry.session != nullptr) entry.session->open = false;
  session.worker = worker;
  session.open = true;
  entry.session = &session;
  entry.seen = clock_.Now();
  Report();
  changed_.SignalAll();
}

void Coordinator::Close(Session& session, bool goodbye) {
  absl::MutexLock lock(&mutex_);
  session.open = false;
  changed_.SignalAll();
  const auto found = workers_.find(session.worker);
  if (found == workers_.end() || found->second.session != &session) return;  // Superseded.
  found->second.session = nullptr;
  table_.Depart(session.worker, goodbye ? absl::ZeroDuration() : options_.departure_grace);
  ExpireLeases();
  if (goodbye) workers_.erase(found);
  Report();
}

void Coordinator::SetCredit(Session& session, PolicyVersion version, uint32_t groups) {
  absl::MutexLock lock(&mutex_);
  if (!session.open) return;
  session.credit = groups;
  session.weights_step = StepOfLocked(version.value);
  Worker& worker = workers_[session.worker];
  worker.version = version.value;
  worker.has_version = true;
  worker.seen = clock_.Now();
  Report();
  changed_.SignalAll();
}

void Coordinator::Renew(Session& session, const std::vector<LeaseId>& leases) {
  absl::MutexLock lock(&mutex_);
  ExpireLeases();
  v1::WorkResponse response;
  response.set_epoch(options_.leases.epoch.value);
  response.mutable_renewed();
  for (const LeaseId lease : leases) {
    if (table_.Renew(session.worker, lease)) response.mutable_renewed()->add_lease_ids(lease.value);
  }
  workers_[session.worker].seen = clock_.Now();
  session.outbox.push_back(std::move(response));
  changed_.SignalAll();
}

void Coordinator::Finish(Session& session, LeaseId lease, const std::string& failure) {
  absl::MutexLock lock(&mutex_);
  workers_[session.worker].seen = clock_.Now();
  if (!failure.empty()) FailLease(lease, failure);
}

void Coordinator::FailLease(LeaseId lease, const std::string& reason) {
  const auto live = leases_.find(lease.value);
  if (live == leases_.end()) return;
  const LeaseGrant grant = live->second;
  leases_.erase(live);
  metrics_.LeaseFailed();
  const absl::Status status = table_.Fail(lease, reason);
  OXBOW_LOG(Warning) << "group failed" << Field("group", grant.group)
                     << Field("worker", grant.worker) << Field("attempt", grant.attempt)
                     << Field("reason", reason);
  PlannedGroup& planned = planned_.at(grant.group.value);
  if (planned.head.has_value() && table_.failures(grant.group) >= options_.head_failures_max) {
    OXBOW_LOG(Warning) << "group goes on without its replayed head" << Field("group", grant.group)
                       << Field("entry", planned.head->entry);
    planned.head.reset();
    metrics_.HeadMissing();
  }
  if (!status.ok()) assembler_.Stop(status);
  changed_.SignalAll();
}

void Coordinator::ExpireLeases() {
  for (const LeaseGrant& lost : table_.Expire()) {
    leases_.erase(lost.id.value);
    metrics_.LeaseExpired();
    OXBOW_LOG(Warning) << "lease expired" << Field("group", lost.group)
                       << Field("worker", lost.worker) << Field("attempt", lost.attempt);
    const auto worker = workers_.find(lost.worker);
    if (worker != workers_.end() && worker->second.session != nullptr) {
      v1::WorkResponse response;
      response.set_epoch(options_.leases.epoch.value);
      response.mutable_cancel()->set_lease_id(lost.id.value);
      response.mutable_cancel()->set_reason("lease expired");
      worker->second.session->outbox.push_back(std::move(response));
    }
    changed_.SignalAll();
  }
}

v1::Lease Coordinator::Describe(const LeaseGrant& grant) const {
  const PlannedGroup& planned = planned_.at(grant.group.value);
  v1::Lease lease;
  lease.set_lease_id(grant.id.value);
  lease.set_group_id(grant.group.value);
  lease.set_learner_step(grant.step.value);
  lease.set_attempt(grant.attempt);
  *lease.mutable_prompt() = planned.prompt;
  *lease.mutable_conditioning() = planned.conditioning;
  lease.set_group_size(options_.rules.group_size);
  if (planned.head.has_value()) {
    v1::Lease::Head& head = *lease.mutable_head();
    head.set_entry_id(planned.head->entry.value);
    head.set_buffer_shard(planned.head->shard);
    head.set_kept_steps(planned.head->kept_steps);
    head.set_stored_reward(planned.head->stored_reward);
  }
  for (const auto& [version, committed] : published_) {
    lease.set_policy_version_min(version);
    if (committed.value + options_.leases.staleness_max >= grant.step.value) break;
  }
  lease.set_seconds(absl::ToDoubleSeconds(options_.leases.lease_time));
  return lease;
}

void Coordinator::Grant(Session& session) {
  if (draining_ || session.credit == 0 || !session.weights_step.has_value()) return;
  const std::optional<LeaseGrant> grant = table_.Acquire(session.worker, *session.weights_step);
  if (!grant.has_value()) return;
  --session.credit;
  leases_.emplace(grant->id.value, *grant);
  v1::WorkResponse response;
  response.set_epoch(options_.leases.epoch.value);
  *response.mutable_lease() = Describe(*grant);
  session.outbox.push_back(std::move(response));
  metrics_.LeaseGranted();
  Report();
}

std::optional<v1::WorkResponse> Coordinator::Next(Session& session, absl::Duration timeout,
                                                  bool& closed) {
  absl::MutexLock lock(&mutex_);
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    closed = !session.open;
    if (closed) return std::nullopt;
    ExpireLeases();
    if (session.outbox.empty()) Grant(session);
    if (session.outbox.empty() && draining_ && !session.drain_sent) {
      session.drain_sent = true;
      session.outbox.emplace_back().set_epoch(options_.leases.epoch.value);
      session.outbox.back().mutable_drain();
    }
    if (!session.outbox.empty()) {
      v1::WorkResponse response = std::move(session.outbox.front());
      session.outbox.pop_front();
      return response;
    }
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return std::nullopt;
    changed_.WaitWithTimeout(&mutex_, std::min(left, kExpiryCheck));
  }
}

v1::InsertOutcome Coordinator::Submit(ReceivedGroup received, std::string& error) {
  absl::MutexLock lock(&mutex_);
  ExpireLeases();
  const v1::Group& group = received.group;
  const LeaseId lease(group.lease_id());
  const auto live = leases_.find(lease.value);
  if (group.epoch() == options_.leases.epoch.value && live != leases_.end() &&
      live->second.group.value == group.group_id()) {
    absl::Status status = CheckGroup(group, planned_.at(group.group_id()), options_.rules);
    for (const PolicyVersion version : BehaviourVersions(group)) {
      const std::optional<LearnerStep> made = StepOfLocked(version.value);
      const uint64_t step = live->second.step.value;
      if (status.ok() &&
          (!made.has_value() || step > made->value + options_.leases.staleness_max)) {
        status = absl::InvalidArgumentError(
            absl::StrCat("sampled with version ", version.value,
                         ", which is not published or beyond the staleness budget"));
      }
    }
    if (!status.ok()) {
      error = std::string(status.message());
      FailLease(lease, absl::StrCat("invalid result: ", error));
      return v1::INSERT_OUTCOME_INVALID;
    }
    received.attempt = live->second.attempt;
  }
  const bool epoch_fits = group.epoch() == options_.leases.epoch.value;
  const AcceptOutcome outcome =
      epoch_fits ? table_.Accept(GroupId(group.group_id()), lease) : AcceptOutcome::kFenced;
  if (outcome == AcceptOutcome::kFenced) return v1::INSERT_OUTCOME_FENCED;
  if (outcome == AcceptOutcome::kDuplicate) return v1::INSERT_OUTCOME_DUPLICATE;
  const LeaseGrant grant = leases_.at(lease.value);
  leases_.erase(lease.value);
  const auto worker = workers_.find(grant.worker);
  if (worker != workers_.end()) ++worker->second.groups_done;
  assembler_.Add(grant.step, std::move(received));
  Report();
  changed_.SignalAll();
  return v1::INSERT_OUTCOME_ACCEPTED;
}

void Coordinator::Refuse(LeaseId lease, const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  FailLease(lease, absl::StrCat("invalid result: ", reason));
}

void Coordinator::Report() const {
  metrics_.GroupsAre(table_.pending(), table_.running(), assembler_.ready());
  uint64_t connected = 0;
  uint64_t lag = 0;
  const uint64_t newest = published_.empty() ? 0 : published_.rbegin()->first;
  for (const auto& [id, worker] : workers_) {
    if (worker.session == nullptr) continue;
    ++connected;
    if (worker.has_version && worker.version < newest) lag = std::max(lag, newest - worker.version);
  }
  metrics_.WorkersAre(connected, lag);
}

void Coordinator::FillStatus(v1::StatusResponse& response) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [id, worker] : workers_) {
    v1::WorkerStatus& status = *response.add_workers();
    status.set_worker_id(id);
    status.set_policy_version(worker.version);
    status.set_leases(static_cast<uint32_t>(table_.RunningOf(id)));
    status.set_groups_done(worker.groups_done);
    status.set_seconds_since_seen(absl::ToDoubleSeconds(clock_.Now() - worker.seen));
  }
  if (!published_.empty()) response.set_published_version(published_.rbegin()->first);
  response.set_groups_running(table_.running());
  response.set_groups_ready(assembler_.ready());
}

}  // namespace oxbow::learner
