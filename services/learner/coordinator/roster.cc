// SPDX-License-Identifier: Apache-2.0
#include "services/learner/coordinator/roster.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace oxbow::learner {
namespace {

constexpr size_t kWorkersMax = 16'384;
constexpr size_t kOutboxMax = 256;
constexpr size_t kOutboxBytesMax = size_t{4} << 20;
constexpr absl::Duration kForgotten = absl::Minutes(10);  // A worker that left without a word.
constexpr absl::Duration kDuplicateShown = absl::Minutes(1);

}  // namespace

Roster::Roster(const lease::WorkerBook::Rule& rule, Epoch epoch, uint32_t credit_max,
               const Clock& clock, const PublishedVersions& published, LearnerMetrics& metrics)
    : epoch_(epoch),
      credit_max_(credit_max),
      clock_(clock),
      published_(published),
      metrics_(metrics),
      book_(rule, clock) {}

bool Roster::MayKnow(const std::string& worker) const {
  return workers_.size() < kWorkersMax || workers_.contains(worker);
}

void Roster::Registered(const std::string& worker, const std::string& version) {
  if (!MayKnow(worker)) return;
  workers_[worker].status.set_version(version);
  workers_[worker].seen = clock_.Now();
}

absl::Status Roster::Open(Session& session, const std::string& worker, uint64_t process) {
  if (!MayKnow(worker)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a learner knows ", kWorkersMax, " names of workers at most"));
  }
  Worker& entry = workers_[worker];
  if (entry.session != nullptr && entry.session->process_ != process) {
    duplicates_[worker] = clock_.Now();
    metrics_.WorkerRefused();
    OXBOW_LOG(Warning) << "two processes have one worker id: the newer one is refused"
                       << Field("worker", worker);
    return absl::AlreadyExistsError(absl::StrCat(
        "another process is connected as this worker; give each its own --id: ", worker));
  }
  if (entry.session != nullptr) {
    OXBOW_LOG(Info) << "worker came back on another stream" << Field("worker", worker);
    entry.session->open_ = false;
    WaitNoMore(*entry.session);
    entry.session->Cut();
  }
  session.worker_ = worker;
  session.process_ = process;
  session.open_ = true;
  entry.session = &session;
  entry.seen = clock_.Now();
  book_.Join(worker);
  if (draining_.has_value()) PushDrain(session);
  return absl::OkStatus();
}

bool Roster::Close(Session& session, bool goodbye) {
  // At the end of the learner nobody needs to say it.
  if (goodbye || draining_.has_value()) {
    OXBOW_LOG(Info) << "worker left" << Field("worker", session.worker_);
  } else {
    OXBOW_LOG(Warning) << "worker left without a goodbye" << Field("worker", session.worker_);
  }
  session.open_ = false;
  WaitNoMore(session);
  const auto found = workers_.find(session.worker_);
  if (found == workers_.end() || found->second.session != &session) return false;
  found->second.session = nullptr;
  book_.Leave(session.worker_);
  if (goodbye) workers_.erase(found);
  return true;
}

void Roster::SetCredit(Session& session, PolicyVersion version, uint32_t groups) {
  if (!session.open_) return;
  session.credit_ = std::min(groups, credit_max_);
  session.weights_step_ = published_.StepOf(version);
  Worker& worker = workers_[session.worker_];
  worker.status.set_policy_version(version.value);
  worker.has_version = true;
  Seen(session);
  Wait(session);
}

void Roster::Renewed(Session& session, const std::vector<LeaseId>& leases,
                     const std::string& waiting_for) {
  if (!session.open_) return;
  v1::WorkResponse response;
  response.mutable_renewed();
  for (const LeaseId lease : leases) response.mutable_renewed()->add_lease_ids(lease.value);
  workers_[session.worker_].status.set_waiting_for(waiting_for);
  Seen(session);
  Push(session, std::move(response));
}

void Roster::Seen(const Session& session) {
  if (session.open_) workers_[session.worker_].seen = clock_.Now();
}

void Roster::Give(Session& session, v1::Lease lease) {
  --session.credit_;
  WaitNoMore(session);
  Wait(session);
  v1::WorkResponse response;
  *response.mutable_lease() = std::move(lease);
  Push(session, std::move(response));
}

void Roster::Cancel(const lease::LeaseGrant& grant, const std::string& reason, bool silence) {
  const auto worker = workers_.find(grant.worker);
  if (worker == workers_.end() || worker->second.session == nullptr) return;
  Session& session = *worker->second.session;
  v1::WorkResponse response;
  response.mutable_cancel()->set_lease_id(grant.id.value);
  response.mutable_cancel()->set_reason(reason);
  Push(session, std::move(response));
  if (!silence) return;
  session.credit_ = 0;
  WaitNoMore(session);
}

void Roster::Drain(DrainReason reason) {
  if (draining_.has_value() && reason == DrainReason::kLearnerEnds) return;
  draining_ = reason;
  for (auto& [id, worker] : workers_) {
    if (worker.session == nullptr) continue;
    WaitNoMore(*worker.session);
    PushDrain(*worker.session);
  }
}

void Roster::PushDrain(Session& session) {
  v1::WorkResponse response;
  response.mutable_drain()->set_run_complete(draining_ == DrainReason::kRunComplete);
  Push(session, std::move(response));
}

// A worker reads what it is told; a stream that does not is ended before its answers fill memory.
void Roster::Push(Session& session, v1::WorkResponse response) {
  if (!session.open_) return;
  response.set_epoch(epoch_.value);
  session.outbox_bytes_ += response.ByteSizeLong();
  session.outbox_.push_back(std::move(response));
  if (session.outbox_.size() > kOutboxMax || session.outbox_bytes_ > kOutboxBytesMax) {
    OXBOW_LOG(Warning) << "worker does not read what it is told: its stream ends"
                       << Field("worker", session.worker_)
                       << Field("messages", session.outbox_.size())
                       << Field("bytes", session.outbox_bytes_);
    metrics_.WorkerCutOff();
    session.open_ = false;
    session.outbox_.clear();
    WaitNoMore(session);
    return session.Cut();
  }
  if (std::exchange(session.woken_, true)) return;
  woken_.push_back(session.shared_from_this());
}

std::optional<v1::WorkResponse> Roster::Take(Session& session) {
  if (!session.open_ || session.outbox_.empty()) {
    session.woken_ = false;
    return std::nullopt;
  }
  v1::WorkResponse response = std::move(session.outbox_.front());
  session.outbox_.pop_front();
  session.outbox_bytes_ -= response.ByteSizeLong();
  return response;
}

// Gives a session that may be given leases a place among those that wait, unless it has one.
void Roster::Wait(Session& session) {
  const bool may = session.open_ && session.credit_ > 0 && session.weights_step_.has_value();
  if (!may || draining_.has_value()) return WaitNoMore(session);
  const uint64_t ticket = session.place_.has_value() ? session.place_->second : ++tickets_;
  const std::pair place(~session.weights_step_->value, ticket);  // Newest weights first.
  if (session.place_ == place) return;
  WaitNoMore(session);
  session.place_ = place;
  waiting_.emplace(place, &session);
  book_.Asks(session.worker_, true);
}

void Roster::WaitNoMore(Session& session) {
  if (!session.place_.has_value()) return;
  waiting_.erase(*session.place_);
  session.place_.reset();
  book_.Asks(session.worker_, false);
}

void Roster::Finished(const std::string& worker) {
  book_.Succeeded(worker);
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  v1::WorkerStatus& status = found->second.status;
  status.set_groups_done(status.groups_done() + 1);
}

void Roster::Forget() {
  const absl::Duration now = clock_.Now();
  std::erase_if(workers_, [&](const auto& item) {
    return item.second.session == nullptr && now - item.second.seen > kForgotten;
  });
  std::erase_if(duplicates_, [&](const auto& item) { return now - item.second > kDuplicateShown; });
}

bool Roster::awaits_rewards() const {
  return std::ranges::any_of(workers_, [](const auto& item) {
    return item.second.session != nullptr && !item.second.status.waiting_for().empty();
  });
}

void Roster::FillStatus(v1::StatusResponse& response) const {
  for (const auto& [id, worker] : workers_) {
    v1::WorkerStatus& status = *response.add_workers();
    status = worker.status;
    status.set_worker_id(id);
    status.set_seconds_since_seen(absl::ToDoubleSeconds(clock_.Now() - worker.seen));
    if (worker.session == nullptr) status.clear_waiting_for();
    const lease::WorkerBook::Record* const record = book_.Find(id);
    if (record == nullptr) continue;
    status.set_failures(record->failures);
    status.set_failure(record->reason);
    status.set_rests_seconds(
        std::max(0.0, absl::ToDoubleSeconds(record->rests_until - clock_.Now())));
  }
  for (const auto& [id, when] : duplicates_) response.add_duplicate_worker_ids(id);
}

void Roster::Report() const {
  const uint64_t newest = published_.newest().value;
  uint64_t connected = 0;
  uint64_t lag = 0;
  uint64_t waiting = 0;
  for (const auto& [id, worker] : workers_) {
    if (worker.session == nullptr) continue;
    ++connected;
    waiting += worker.status.waiting_for().empty() ? 0 : 1;
    const uint64_t version = worker.has_version ? worker.status.policy_version() : newest;
    lag = std::max(lag, newest - std::min(newest, version));
  }
  metrics_.WorkersAre(connected, lag, waiting, book_.bad());
}

}  // namespace oxbow::learner
