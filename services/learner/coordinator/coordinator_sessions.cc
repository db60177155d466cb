// SPDX-License-Identifier: Apache-2.0
// The coordinator's sessions: which workers are connected, which have credit, what each is told.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "services/learner/coordinator/coordinator.h"

namespace oxbow::learner {
namespace {

constexpr size_t kWorkersMax = 16'384;
constexpr size_t kOutboxMax = 256;
constexpr size_t kOutboxBytesMax = size_t{4} << 20;

// Newest weights first.
std::pair<uint64_t, uint64_t> PlaceOf(LearnerStep weights_step, uint64_t ticket) {
  return {~weights_step.value, ticket};
}

}  // namespace

void Coordinator::WakeSessions() {
  std::vector<std::shared_ptr<Session>> sessions;
  {
    absl::MutexLock lock(&mutex_);
    sessions.swap(to_wake_);
  }
  for (const std::shared_ptr<Session>& session : sessions) session->Wake();
}

// A worker reads what it is told; a stream that does not is ended before its answers fill memory.
void Coordinator::Push(Session& session, v1::WorkResponse response) {
  if (!session.open) return;
  response.set_epoch(options_.leases.epoch.value);
  session.outbox_bytes += response.ByteSizeLong();
  session.outbox.push_back(std::move(response));
  if (session.outbox.size() > kOutboxMax || session.outbox_bytes > kOutboxBytesMax) {
    OXBOW_LOG(Warning) << "worker does not read what it is told: its stream ends"
                       << Field("worker", session.worker)
                       << Field("messages", session.outbox.size())
                       << Field("bytes", session.outbox_bytes);
    metrics_.WorkerCutOff();
    session.open = false;
    session.outbox.clear();
    WaitNoMore(session);
    return session.Cut();
  }
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
  session.outbox_bytes -= response.ByteSizeLong();
  return response;
}

// Gives a session that may be given leases a place among those that wait, unless it has one.
void Coordinator::Wait(Session& session) {
  const bool may = session.open && session.credit > 0 && session.weights_step.has_value();
  if (!may || draining_.has_value()) return WaitNoMore(session);
  const uint64_t ticket = session.place.has_value() ? session.place->second : ++tickets_;
  const auto place = PlaceOf(*session.weights_step, ticket);
  if (session.place == place) return;
  WaitNoMore(session);
  session.place = place;
  waiting_.emplace(place, &session);
  book_.Asks(session.worker, true);
}

void Coordinator::WaitNoMore(Session& session) {
  if (!session.place.has_value()) return;
  waiting_.erase(*session.place);
  session.place.reset();
  book_.Asks(session.worker, false);
}

void Coordinator::Registered(const std::string& worker, const std::string& version) {
  absl::MutexLock lock(&mutex_);
  if (!MayKnow(worker)) return;
  workers_[worker].build = version;
  workers_[worker].seen = clock_.Now();
}

bool Coordinator::MayKnow(const std::string& worker) const {
  return workers_.size() < kWorkersMax || workers_.contains(worker);
}

absl::Status Coordinator::Open(Session& session, const std::string& worker, uint64_t process) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  if (!MayKnow(worker)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a learner knows ", kWorkersMax, " names of workers at most"));
  }
  Worker& entry = workers_[worker];
  if (entry.session != nullptr && entry.session->process != process) {
    duplicates_[worker] = clock_.Now();
    metrics_.WorkerRefused();
    OXBOW_LOG(Warning) << "two processes have one worker id: the newer one is refused"
                       << Field("worker", worker);
    return absl::AlreadyExistsError(absl::StrCat(
        "another process is connected as this worker; give each its own --id: ", worker));
  }
  if (entry.session != nullptr) {
    OXBOW_LOG(Info) << "worker came back on another stream" << Field("worker", worker);
    entry.session->open = false;
    WaitNoMore(*entry.session);
    entry.session->Cut();
  }
  session.worker = worker;
  session.process = process;
  session.open = true;
  entry.session = &session;
  entry.seen = clock_.Now();
  book_.Join(worker);
  if (draining_.has_value()) PushDrain(session);
  return absl::OkStatus();
}

void Coordinator::PushDrain(Session& session) {
  v1::WorkResponse response;
  response.mutable_drain()->set_run_complete(draining_ == DrainReason::kRunComplete);
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
  book_.Leave(session.worker);
  const absl::Duration grace = lease::DepartureGrace(options_.leases.lease_time);
  table_.Depart(session.worker, goodbye ? absl::ZeroDuration() : grace);
  if (pictures_ != nullptr) {
    pictures_->table().Depart(session.worker, goodbye ? absl::ZeroDuration() : grace);
  }
  ExpireLeases();
  if (goodbye) workers_.erase(found);
  HandOut();
}

void Coordinator::SetCredit(Session& session, PolicyVersion version, uint32_t groups) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  if (!session.open) return;
  session.credit = std::min(groups, options_.credit_max);
  session.weights_step = published_.StepOf(version);
  Worker& worker = workers_[session.worker];
  worker.version = version.value;
  worker.has_version = true;
  worker.seen = clock_.Now();
  Wait(session);
  HandOut();
}

void Coordinator::PushCancel(const lease::LeaseGrant& grant, const std::string& reason) {
  const auto worker = workers_.find(grant.worker);
  if (worker == workers_.end() || worker->second.session == nullptr) return;
  v1::WorkResponse response;
  response.mutable_cancel()->set_lease_id(grant.id.value);
  response.mutable_cancel()->set_reason(reason);
  Push(*worker->second.session, std::move(response));
}

}  // namespace oxbow::learner
