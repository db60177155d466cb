// SPDX-License-Identifier: Apache-2.0
// Hands planned groups to workers and takes their results: the lease table, the plans, the workers'
// sessions and the published versions under one lock. Thread-safe.
//
// The learner's loop plans, publishes and commits. Each worker has one session that states credit
// and is given leases. A worker that falls silent loses its leases and, until it speaks, its
// credit. A mixed group whose head cannot be read is leased as a fresh one, so that a lost replay
// buffer never holds up a step.
//
// No method waits. Each event that makes leases possible (credit, a plan, newer weights, the end of
// a lease) hands them out at once, newest weights first, then by waiting time. A session that has
// something to send is woken without the lock. Tick does what becomes possible by time alone.
//
// The held-out pictures of an evaluation are leased to workers that groups leave idle.
//
// Five files hold the methods: the loop's side in coordinator.cc, the others in
// coordinator_{sessions,leases,pictures,results}.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/trace.h"
#include "core/lease/lease_table.h"
#include "core/lease/worker_book.h"
#include "oxbow/v1/coordinator.pb.h"
#include "oxbow/v1/experience_sink.pb.h"
#include "services/learner/coordinator/conditioning_holders.h"
#include "services/learner/coordinator/failure_series.h"
#include "services/learner/coordinator/group_assembler.h"
#include "services/learner/coordinator/group_check.h"
#include "services/learner/coordinator/picture_leases.h"
#include "services/learner/coordinator/published_versions.h"
#include "services/learner/coordinator/quarantine.h"
#include "services/learner/coordinator/result_receiver.h"
#include "services/learner/plan/step_plan.h"
#include "services/learner/record/learner_metrics.h"

namespace oxbow::learner {

enum class DrainReason {
  kLearnerEnds,  // The learner may come back: workers look for it.
  kRunComplete,  // Nothing is left to do: workers end.
};

class Coordinator final : public ResultReceiver {
 public:
  struct Options {
    lease::LeaseTable::Options leases;
    lease::WorkerBook::Rule workers;
    absl::Duration patience = absl::Minutes(30);  // With bad workers alone; then the run ends.
    GroupRules rules;
    std::string run_id;              // This start of the learner; names the traces of groups.
    uint32_t head_failures_max = 2;  // After these a mixed group is leased without its head.
    int ranks = 1;                   // Learner ranks; each holds an even share of a step's groups.
    uint32_t credit_max = 64;        // Leases that a worker may hold, whatever it asks for.
  };

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

   private:
    friend class Coordinator;
    std::string worker;
    uint64_t process = 0;
    uint32_t credit = 0;
    std::optional<LearnerStep> weights_step;  // L_V of the applied weights; none before the first.
    std::optional<std::pair<uint64_t, uint64_t>> place;  // Among those that wait for leases.
    std::deque<v1::WorkResponse> outbox;
    size_t outbox_bytes = 0;
    bool open = false;
    bool woken = false;  // Reset when it finds nothing to take.
  };

  // Counts of leases and results since this start of the learner.
  struct Counts {
    uint64_t leases_expired = 0;
    uint64_t leases_speculated = 0;  // Second leases of stragglers.
    uint64_t leases_superseded = 0;  // Ended because the group's other lease was first.
    uint64_t groups_discarded = 0;   // Results refused or undelivered: work thrown away.
    uint64_t samples_unscored = 0;   // Dropped from accepted groups: no reward server has a score.
  };

  Coordinator(Options options, const Clock& clock, GroupAssembler& assembler,
              LearnerMetrics& metrics);

  // The loop's side.
  void Plan(StepPlan plan);
  void Published(PolicyVersion version, LearnerStep committed);
  // Adds groups of one uncommitted step in place of as many accepted ones.
  void Refill(std::vector<PlannedGroup> groups);
  // Takes the groups of a step, by id, as they were leased in the end: without a head that was
  // given up. Requires that all groups of the step are accepted; each group is returned once.
  std::vector<PlannedGroup> TakePlanned(LearnerStep step);
  void Commit(LearnerStep step);
  // Offers the pictures of an evaluation as leases, in place of those of any earlier one. `results`
  // gets them, or the reason why one cannot be drawn.
  void OfferPictures(std::vector<v1::Lease::Pictures> units,
                     std::shared_ptr<DrawnPictures> results);
  // The learner waits for the pictures, which are offered or about to be: they are leased before
  // groups until EndPictures.
  void HurryPictures();
  // Nobody wants the pictures that are not drawn yet. Any number of calls.
  void EndPictures();
  // Tells every worker, also those that come later, that there are no more leases. May be called
  // again when the run turns out to be complete.
  void Drain(DrainReason reason = DrainReason::kLearnerEnds);
  bool draining() const;
  // Notes trouble that is no lease's, for `oxbow status`.
  void NoteFailure(const std::string& what, const std::string& reason);
  // Why a sample last had no score; empty if none was without.
  std::string unscored_reason() const;
  // Whether a connected worker waits for a reward server that does not answer.
  bool awaits_rewards() const;
  // The learner step of a published version; nothing if it is unknown or forgotten.
  std::optional<LearnerStep> StepOfVersion(PolicyVersion version) const;

  // Expires leases, hands out the groups that this frees, and grants second leases of stragglers.
  // Ends the run if all workers have been bad for too long. To be called a few times a second.
  void Tick();

  // A process of this name has registered.
  void Registered(const std::string& worker, const std::string& version);
  // Tells a person, in the log and in every status from here on, once for each `key`. The first
  // few.
  void Notice(const std::string& key, const std::string& text);

  // A session's side. Open ends an older session of the same process. kAlreadyExists while another
  // process of this name is connected: the session gets nothing, and is not to be closed.
  absl::Status Open(Session& session, const std::string& worker, uint64_t process);
  void Close(Session& session, bool goodbye);
  void SetCredit(Session& session, PolicyVersion version, uint32_t groups);
  // `waiting_for`: the reward server that the worker waits for, and why; empty: it does not wait.
  void Renew(Session& session, const std::vector<LeaseId>& leases,
             const std::string& waiting_for = "");
  // kNobody: the failure is that a reward server answered without a score.
  void Finish(Session& session, LeaseId lease, const std::string& failure,
              lease::Blame blame = lease::Blame::kWorker);
  // The group that comes next for this lease has samples without a score.
  void Unscored(Session& session, LeaseId lease, uint32_t samples, const std::string& reason);
  // Counts a finished group that its worker could not deliver.
  void CountUndelivered();
  // The pictures that this live lease of the worker asks for; nothing if there is no such lease.
  std::optional<v1::Lease::Pictures> PicturesOf(const std::string& worker, LeaseId lease) const;
  // Takes the pictures of a lease. False: it has ended, and nobody wants them.
  bool SubmitPictures(const std::string& worker, LeaseId lease,
                      std::vector<DrawnPictures::Frames> pictures);
  // Refuses pictures that are not what the lease asks for: it counts as a failure.
  void RefusePictures(const std::string& worker, LeaseId lease, const std::string& reason);
  // The next message to send: a lease, cancel, renewal or drain. If nothing, wait for Wake.
  std::optional<v1::WorkResponse> Take(Session& session);

  // The sink's side. If another rank holds the group's latents, their bytes are missing here.
  v1::InsertOutcome Submit(ReceivedGroup group, std::string& error) override;
  void Refuse(LeaseId lease, const std::string& worker, const std::string& reason) override;

  // Fills workers, groups and versions, for `oxbow status`.
  void FillStatus(v1::StatusResponse& response) const;
  // The same counts as numbers of a step, as in metrics.jsonl.
  void AddCounts(std::map<std::string, double>& numbers) const;

 private:
  // At its end, wakes the sessions that got something to take. Declared before the lock, so that it
  // ends after the lock is released.
  class WakeAfter {
   public:
    explicit WakeAfter(Coordinator& coordinator) : coordinator_(coordinator) {}
    ~WakeAfter() { coordinator_.WakeSessions(); }

   private:
    Coordinator& coordinator_;
  };

  struct Worker {
    std::string build;  // Version of its binary.
    uint64_t version = 0;
    bool has_version = false;
    uint64_t groups_done = 0;
    absl::Duration seen;
    std::string waiting_for;  // The reward server that it waits for, and why.
    Session* session = nullptr;
  };

  void WakeSessions();
  bool MayKnow(const std::string& worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Push(Session& session, v1::WorkResponse response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PushCancel(const lease::LeaseGrant& grant, const std::string& reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PushDrain(Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wait(Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitNoMore(Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandOut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayHave(const std::string& worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool GrantGroup(Session& session, bool& kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropPictures() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool GrantPictures(Session& session, bool& kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Give(Session& session, v1::Lease lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropLost(const std::vector<lease::LeaseGrant>& lost) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HelpSlowPictures() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailPictures(LeaseId lease, const std::string& reason,
                    lease::Blame blame = lease::Blame::kWorker)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteFailed(const std::string& worker, const std::string& reason, lease::Blame blame)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LookAtWorkers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HelpStragglers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Grant(Session& session, const lease::LeaseGrant& grant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExpireLeases() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::InsertOutcome Discard(v1::InsertOutcome outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(ReceivedGroup received, const lease::LeaseGrant& grant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Supersede(const lease::LeaseGrant& other) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Trace TraceOf(const lease::LeaseGrant& grant) const;
  v1::Lease Describe(const lease::LeaseGrant& grant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailLease(LeaseId lease, const std::string& reason,
                 lease::Blame blame = lease::Blame::kWorker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Report() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Clock& clock_;
  GroupAssembler& assembler_;
  LearnerMetrics& metrics_;

  mutable absl::Mutex mutex_;
  lease::WorkerBook book_ ABSL_GUARDED_BY(mutex_);
  lease::LeaseTable table_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, PlannedGroup> planned_ ABSL_GUARDED_BY(mutex_);  // By group.
  std::unique_ptr<PictureLeases> pictures_ ABSL_GUARDED_BY(mutex_);   // Null: none are wanted.
  bool pictures_first_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t evaluations_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t picture_leases_ ABSL_GUARDED_BY(mutex_) = 0;  // Granted for evaluations that are over.
  ConditioningHolders holders_ ABSL_GUARDED_BY(mutex_);
  PublishedVersions published_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Worker> workers_ ABSL_GUARDED_BY(mutex_);
  // Sessions with credit: newest weights first, then the longest waiting.
  std::map<std::pair<uint64_t, uint64_t>, Session*> waiting_ ABSL_GUARDED_BY(mutex_);
  uint64_t tickets_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<Session>> to_wake_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  // Names that a second process claimed, and when it did so last.
  std::map<std::string, absl::Duration> duplicates_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> notices_ ABSL_GUARDED_BY(mutex_);  // By key.
  std::optional<DrainReason> draining_ ABSL_GUARDED_BY(mutex_);
  Quarantine quarantine_ ABSL_GUARDED_BY(mutex_);
  FailureSeries failures_ ABSL_GUARDED_BY(mutex_);
  std::string unscored_reason_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::learner
