// SPDX-License-Identifier: Apache-2.0
// The workers that are known: who is connected, who waits for leases, what each is to be told.
//
// A worker has one session, which states its credit. It is known from its registration until it
// says goodbye, or has been away for ten minutes. Not thread-safe.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/lease/lease_table.h"
#include "core/lease/worker_book.h"
#include "oxbow/v1/coordinator.pb.h"
#include "services/learner/coordinator/group_check.h"
#include "services/learner/record/learner_metrics.h"

namespace oxbow::learner {

enum class DrainReason {
  kLearnerEnds,  // The learner may come back: workers look for it.
  kRunComplete,  // Nothing is left to do: workers end.
};

class Roster {
 public:
  // One worker's stream as the coordinator sees it. Shared, because it is woken without the lock,
  // when its stream may just have ended.
  class Session : public std::enable_shared_from_this<Session> {
   public:
    virtual ~Session() = default;
    // Take may have something. Called from any thread, without the coordinator's lock.
    virtual void Wake() = 0;
    // It is to end: a newer stream of the same process has taken its place, or what it is told
    // piles up. Called with the coordinator's lock.
    virtual void Cut() = 0;

    const std::string& worker() const { return worker_; }
    bool open() const { return open_; }
    // L_V of the applied weights. Requires a session that waits.
    LearnerStep weights_step() const { return *weights_step_; }

   private:
    friend class Roster;
    std::string worker_;
    uint64_t process_ = 0;
    uint32_t credit_ = 0;
    std::optional<LearnerStep> weights_step_;             // None before the first.
    std::optional<std::pair<uint64_t, uint64_t>> place_;  // Among those that wait for leases.
    std::deque<v1::WorkResponse> outbox_;
    size_t outbox_bytes_ = 0;
    bool open_ = false;
    bool woken_ = false;  // Reset when it finds nothing to take.
  };
  // Sessions with credit: newest weights first, then the longest waiting.
  using Row = std::map<std::pair<uint64_t, uint64_t>, Session*>;

  // A worker has `credit_max` leases at most, whatever it asks for.
  Roster(const lease::WorkerBook::Rule& rule, Epoch epoch, uint32_t credit_max, const Clock& clock,
         const PublishedVersions& published, LearnerMetrics& metrics);

  // As their namesakes of the coordinator. Close: false if a newer session had taken its place.
  void Registered(const std::string& worker, const std::string& version);
  absl::Status Open(Session& session, const std::string& worker, uint64_t process);
  bool Close(Session& session, bool goodbye);
  void SetCredit(Session& session, PolicyVersion version, uint32_t groups);
  void Drain(DrainReason reason);
  std::optional<v1::WorkResponse> Take(Session& session);

  // Answers a renewal.
  void Renewed(Session& session, const std::vector<LeaseId>& leases,
               const std::string& waiting_for);
  void Seen(const Session& session);  // The worker has said something.
  // Tells it of a lease, for one of its credit. If it wants more, it goes to the end of the row.
  void Give(Session& session, v1::Lease lease);
  // Tells the lease's worker that it has ended. `silence`: the worker loses its credit, too, until
  // it states another.
  void Cancel(const lease::LeaseGrant& grant, const std::string& reason, bool silence = false);
  // Sessions that got something to take since the last call: they are to be woken.
  std::vector<std::shared_ptr<Session>> TakeWoken() { return std::exchange(woken_, {}); }

  void Finished(const std::string& worker);  // A group.
  void Forget();                             // Workers that have been away for long.

  const Row& waiting() const { return waiting_; }
  lease::WorkerBook& book() { return book_; }
  bool awaits_rewards() const;
  void FillStatus(v1::StatusResponse& response) const;
  void Report() const;  // The metrics of workers.

 private:
  struct Worker {
    v1::WorkerStatus status;  // As it was stated last.
    bool has_version = false;
    absl::Duration seen;
    Session* session = nullptr;
  };

  bool MayKnow(const std::string& worker) const;
  void Push(Session& session, v1::WorkResponse response);
  void PushDrain(Session& session);
  void Wait(Session& session);
  void WaitNoMore(Session& session);

  const Epoch epoch_;
  const uint32_t credit_max_;
  const Clock& clock_;
  const PublishedVersions& published_;
  LearnerMetrics& metrics_;
  lease::WorkerBook book_;
  std::map<std::string, Worker> workers_;
  Row waiting_;
  uint64_t tickets_ = 0;
  std::vector<std::shared_ptr<Session>> woken_;
  // Names that a second process claimed, and when it did so last.
  std::map<std::string, absl::Duration> duplicates_;
  std::optional<DrainReason> draining_;
};

}  // namespace oxbow::learner
