#include "services/learner/desk/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "core/parallel/share.h"
#include "metrics/step_metrics.h"

namespace oxbow::learner {
namespace {

constexpr absl::Duration kForgotten = absl::Minutes(10);  // A worker that left without a word.

// Newest weights first.
std::pair<uint64_t, uint64_t> PlaceOf(LearnerStep weights_step, uint64_t ticket) {
  return {~weights_step.value, ticket};
}

}  // namespace

Coordinator::Coordinator(Options options, const Clock& clock, GroupAssembler& assembler,
                         LearnerMetrics& metrics)
    : options_(std::move(options)),
      clock_(clock),
      assembler_(assembler),
      metrics_(metrics),
      table_(options_.leases, clock) {}

void Coordinator::WakeSessions() {
  std::vector<std::shared_ptr<Session>> sessions;
  {
    absl::MutexLock lock(&mutex_);
    sessions.swap(to_wake_);
  }
  for (const std::shared_ptr<Session>& session : sessions) session->Wake();
}

void Coordinator::Push(Session& session, v1::WorkResponse response) {
  response.set_epoch(options_.leases.epoch.value);
  session.outbox.push_back(std::move(response));
  if (std::exchange(session.woken, true)) return;
  to_wake_.push_back(session.shared_from_this());
}

std::optional<v1::WorkResponse> Coordinator::Take(Session& session) {
  absl::MutexLock lock(&mutex_);
  if (!session.open || session.outbox.empty()) {
    session.woken = false;
    return std::nullopt;
  }
  v1::WorkResponse response = std::move(session.outbox.front());
  session.outbox.pop_front();
  return response;
}

// Takes the session's place among those that wait, or keeps it, if it may be given leases.
void Coordinator::Wait(Session& session) {
  const bool may = session.open && session.credit > 0 && session.weights_step.has_value();
  if (!may || draining_) return WaitNoMore(session);
  const uint64_t ticket = session.place.has_value() ? session.place->second : ++tickets_;
  const auto place = PlaceOf(*session.weights_step, ticket);
  if (session.place == place) return;
  WaitNoMore(session);
  session.place = place;
  waiting_.emplace(place, &session);
}

void Coordinator::WaitNoMore(Session& session) {
  if (session.place.has_value()) waiting_.erase(*session.place);
  session.place.reset();
}

void Coordinator::HandOut() {
  while (!waiting_.empty()) {
    Session& session = *waiting_.begin()->second;
    const auto grant = table_.Acquire(session.worker, *session.weights_step);
    if (!grant.has_value()) return;  // Nor for anybody behind, with the same weights or older ones.
    Grant(session, *grant);
  }
}

void Coordinator::HelpStragglers() {
  for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
    Session& session = *(waiting++)->second;
    const auto grant = table_.Speculate(session.worker, *session.weights_step);
    if (!grant.has_value()) continue;
    ++counts_.leases_speculated;
    metrics_.LeaseSpeculated();
    const TraceScope scope(TraceOf(*grant));
    OXBOW_LOG(Info) << "straggler leased a second time" << Field("group", grant->group)
                    << Field("lease", grant->id) << Field("worker", grant->worker)
                    << Field("step", grant->step) << Field("attempt", grant->attempt);
    Grant(session, *grant);
  }
}

void Coordinator::Tick() {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  ExpireLeases();
  HandOut();
  HelpStragglers();
  std::erase_if(workers_, [&](const auto& item) {
    return item.second.session == nullptr && clock_.Now() - item.second.seen > kForgotten;
  });
  Report();
}

void Coordinator::Plan(StepPlan plan) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  table_.Plan(plan.step);
  for (PlannedGroup& group : plan.groups) planned_.emplace(group.id.value, std::move(group));
  HandOut();
  Report();
}

void Coordinator::Refill(std::vector<PlannedGroup> groups) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  table_.Refill(groups.at(0).step, groups.size());
  for (PlannedGroup& group : groups) planned_.emplace(group.id.value, std::move(group));
  HandOut();
  Report();
}

void Coordinator::Published(PolicyVersion version, LearnerStep committed) {
  absl::MutexLock lock(&mutex_);
  published_[version.value] = committed;
  // Nothing older than the staleness budget can be in a result that is still wanted.
  while (published_.size() > options_.leases.staleness_max + 4)
    published_.erase(published_.begin());
}

std::vector<PlannedGroup> Coordinator::TakePlanned(LearnerStep step) {
  absl::MutexLock lock(&mutex_);
  const uint64_t stride = options_.leases.groups_per_step + options_.leases.refill_max;
  const auto begin = planned_.lower_bound(step.value * stride);
  const auto end = planned_.lower_bound((step.value + 1) * stride);
  std::vector<PlannedGroup> groups;
  for (auto it = begin; it != end; ++it) groups.push_back(std::move(it->second));
  planned_.erase(begin, end);
  return groups;
}

void Coordinator::Commit(LearnerStep step) {
  absl::MutexLock lock(&mutex_);
  table_.Commit(step);
  Report();
}

void Coordinator::Drain() {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  if (std::exchange(draining_, true)) return;
  for (auto& [id, worker] : workers_) {
    if (worker.session == nullptr) continue;
    WaitNoMore(*worker.session);
    v1::WorkResponse response;
    response.mutable_drain();
    Push(*worker.session, std::move(response));
  }
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
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  Worker& entry = workers_[worker];
  if (entry.session != nullptr) {
    OXBOW_LOG(Info) << "worker came back on another stream" << Field("worker", worker);
    entry.session->open = false;
    WaitNoMore(*entry.session);
  }
  session.worker = worker;
  session.open = true;
  entry.session = &session;
  entry.seen = clock_.Now();
  if (!draining_) return;
  v1::WorkResponse response;
  response.mutable_drain();
  Push(session, std::move(response));
}

void Coordinator::Close(Session& session, bool goodbye) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  session.open = false;
  WaitNoMore(session);
  const auto found = workers_.find(session.worker);
  if (found == workers_.end() || found->second.session != &session) return;  // Superseded.
  found->second.session = nullptr;
  table_.Depart(session.worker, goodbye ? absl::ZeroDuration() : options_.departure_grace);
  ExpireLeases();
  if (goodbye) workers_.erase(found);
  HandOut();
}

void Coordinator::SetCredit(Session& session, PolicyVersion version, uint32_t groups) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  if (!session.open) return;
  session.credit = groups;
  session.weights_step = StepOfLocked(version.value);
  Worker& worker = workers_[session.worker];
  worker.version = version.value;
  worker.has_version = true;
  worker.seen = clock_.Now();
  Wait(session);
  HandOut();
}

void Coordinator::Renew(Session& session, const std::vector<LeaseId>& leases) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  if (!session.open) return;
  ExpireLeases();
  v1::WorkResponse response;
  response.mutable_renewed();
  for (const LeaseId lease : leases) {
    if (table_.Renew(session.worker, lease)) response.mutable_renewed()->add_lease_ids(lease.value);
  }
  workers_[session.worker].seen = clock_.Now();
  Push(session, std::move(response));
  HandOut();
}

void Coordinator::Finish(Session& session, LeaseId lease, const std::string& failure) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  if (session.open) workers_[session.worker].seen = clock_.Now();
  if (failure.empty()) return;
  FailLease(lease, failure);
  HandOut();
}

void Coordinator::FailLease(LeaseId lease, const std::string& reason) {
  const LeaseGrant* live = table_.Find(lease);
  if (live == nullptr) return;
  const LeaseGrant grant = *live;
  metrics_.LeaseFailed();
  const absl::Status status = table_.Fail(lease, reason);
  const TraceScope scope(TraceOf(grant));
  OXBOW_LOG(Warning) << "group failed" << Field("group", grant.group) << Field("lease", grant.id)
                     << Field("worker", grant.worker) << Field("step", grant.step)
                     << Field("attempt", grant.attempt) << Field("reason", reason);
  PlannedGroup& planned = planned_.at(grant.group.value);
  // A second lease that lives was given the head, and its result will have it.
  const bool under_way = table_.book().groups.at(grant.group.value).first.value != 0;
  if (planned.head.has_value() && !under_way &&
      table_.failures(grant.group) >= options_.head_failures_max) {
    OXBOW_LOG(Warning) << "group goes on without its replayed head" << Field("group", grant.group)
                       << Field("entry", planned.head->entry);
    planned.head.reset();
    metrics_.HeadMissing();
  }
  if (!status.ok()) assembler_.Stop(status);
}

Trace Coordinator::TraceOf(const LeaseGrant& grant) const {
  return TraceOfGroup(options_.run_id, grant.group, grant.id);
}

void Coordinator::PushCancel(const LeaseGrant& grant, const std::string& reason) {
  const auto worker = workers_.find(grant.worker);
  if (worker == workers_.end() || worker->second.session == nullptr) return;
  v1::WorkResponse response;
  response.mutable_cancel()->set_lease_id(grant.id.value);
  response.mutable_cancel()->set_reason(reason);
  Push(*worker->second.session, std::move(response));
}

void Coordinator::ExpireLeases() {
  for (const LeaseGrant& lost : table_.Expire()) {
    ++counts_.leases_expired;
    metrics_.LeaseExpired();
    const TraceScope scope(TraceOf(lost));
    OXBOW_LOG(Warning) << "lease expired" << Field("group", lost.group) << Field("lease", lost.id)
                       << Field("worker", lost.worker) << Field("step", lost.step)
                       << Field("attempt", lost.attempt);
    PushCancel(lost, "lease expired");
    const auto worker = workers_.find(lost.worker);
    if (worker == workers_.end() || worker->second.session == nullptr) continue;
    // What it was to do next would be lost as well.
    worker->second.session->credit = 0;
    WaitNoMore(*worker->second.session);
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
  for (size_t i = 0; i < planned.sde.size(); ++i) {
    if (planned.sde[i]) lease.add_sde_steps(static_cast<uint32_t>(i));
  }
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
  lease.set_sink_rank(static_cast<uint32_t>(
      parallel::OwnerOf(planned.place, options_.leases.groups_per_step, options_.ranks)));
  lease.set_seconds(absl::ToDoubleSeconds(options_.leases.lease_time));
  return lease;
}

void Coordinator::Grant(Session& session, const LeaseGrant& grant) {
  --session.credit;
  WaitNoMore(session);  // To the end of the row, if it wants more.
  Wait(session);
  v1::WorkResponse response;
  *response.mutable_lease() = Describe(grant);
  Push(session, std::move(response));
  metrics_.LeaseGranted();
  const TraceScope scope(TraceOf(grant));
  OXBOW_LOG(Debug) << "lease granted" << Field("group", grant.group) << Field("lease", grant.id)
                   << Field("worker", grant.worker) << Field("step", grant.step)
                   << Field("attempt", grant.attempt);
}

absl::Status Coordinator::CheckResult(const v1::Group& group, const LeaseGrant& grant) const {
  OXBOW_RETURN_IF_ERROR(CheckGroup(group, planned_.at(grant.group.value), options_.rules));
  for (const PolicyVersion version : BehaviourVersions(group)) {
    const std::optional<LearnerStep> made = StepOfLocked(version.value);
    if (made.has_value() && grant.step.value <= made->value + options_.leases.staleness_max)
      continue;
    return absl::InvalidArgumentError(
        absl::StrCat("sampled with version ", version.value,
                     ", which is not published or beyond the staleness budget"));
  }
  return absl::OkStatus();
}

v1::InsertOutcome Coordinator::TakeResult(ReceivedGroup received, const LeaseGrant* live) {
  if (received.group.epoch() != options_.leases.epoch.value) return v1::INSERT_OUTCOME_FENCED;
  std::optional<LeaseGrant> grant;
  if (live != nullptr) grant = *live;
  std::optional<LeaseGrant> superseded;
  switch (table_.Accept(GroupId(received.group.group_id()), LeaseId(received.group.lease_id()),
                        &superseded)) {
    case AcceptOutcome::kFenced:
      return v1::INSERT_OUTCOME_FENCED;
    case AcceptOutcome::kSuperseded:
      return v1::INSERT_OUTCOME_SUPERSEDED;
    case AcceptOutcome::kDuplicate:
      return v1::INSERT_OUTCOME_DUPLICATE;
    case AcceptOutcome::kAccepted:
      break;
  }
  const auto worker = workers_.find(grant->worker);
  if (worker != workers_.end()) ++worker->second.groups_done;
  received.attempt = grant->attempt;
  assembler_.Add(grant->step, std::move(received));
  if (superseded.has_value()) {
    ++counts_.leases_superseded;
    metrics_.LeaseSuperseded();
    PushCancel(*superseded, "another attempt was first");
  }
  HandOut();
  return v1::INSERT_OUTCOME_ACCEPTED;
}

v1::InsertOutcome Coordinator::Submit(ReceivedGroup received, std::string& error) {
  const absl::Status finite = CheckFinite(received.group, options_.rules);  // Megabytes: unlocked.
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  ExpireLeases();
  const v1::Group& group = received.group;
  const LeaseId lease(group.lease_id());
  const LeaseGrant* live = table_.Find(lease);
  if (group.epoch() == options_.leases.epoch.value && live != nullptr &&
      live->group.value == group.group_id()) {
    absl::Status status = CheckResult(group, *live);
    status.Update(finite);
    if (!status.ok()) {
      error = std::string(status.message());
      FailLease(lease, absl::StrCat("invalid result: ", error));
      ++counts_.groups_discarded;
      return v1::INSERT_OUTCOME_INVALID;
    }
  }
  const v1::InsertOutcome outcome = TakeResult(std::move(received), live);
  if (outcome == v1::INSERT_OUTCOME_FENCED || outcome == v1::INSERT_OUTCOME_SUPERSEDED)
    ++counts_.groups_discarded;
  return outcome;
}

void Coordinator::Refuse(LeaseId lease, const std::string& reason) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  ++counts_.groups_discarded;
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
  response.set_leases_expired(counts_.leases_expired);
  response.set_leases_speculated(counts_.leases_speculated);
  response.set_leases_superseded(counts_.leases_superseded);
  response.set_groups_discarded(counts_.groups_discarded);
  if (const LeaseBook::Times& running = table_.book().running; !running.empty()) {
    response.set_lease_age_max_seconds(
        absl::ToDoubleSeconds(clock_.Now() - running.begin()->first));
  }
  response.set_lease_seconds(absl::ToDoubleSeconds(options_.leases.lease_time));
}

void Coordinator::AddCounts(std::map<std::string, double>& numbers) const {
  absl::MutexLock lock(&mutex_);
  numbers[metric::kRolloutLeasesExpired] = static_cast<double>(counts_.leases_expired);
  numbers[metric::kRolloutLeasesSpeculated] = static_cast<double>(counts_.leases_speculated);
  numbers[metric::kRolloutLeasesSuperseded] = static_cast<double>(counts_.leases_superseded);
  numbers[metric::kRolloutGroupsDiscarded] = static_cast<double>(counts_.groups_discarded);
}

}  // namespace oxbow::learner
