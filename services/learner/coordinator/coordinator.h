// SPDX-License-Identifier: Apache-2.0
// Hands planned groups to workers and takes their results: the groups, the workers and their leases
// under one lock. Thread-safe.
//
// The learner's loop plans, publishes and commits. Each worker has one session that states credit
// and is given leases. No method waits. Each event that makes leases possible (credit, a plan,
// newer weights, the end of a lease) hands them out at once. A session that has something to send
// is woken without the lock. Tick does what becomes possible by time alone.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "services/learner/coordinator/leasing.h"
#include "services/learner/plan/step_plan.h"

namespace oxbow::learner {

class Coordinator final : public ResultReceiver {
 public:
  using Options = Leasing::Options;
  using Session = Roster::Session;

  Coordinator(Options options, const Clock& clock, GroupAssembler& assembler,
              LearnerMetrics& metrics);

  // The loop's side.
  void Plan(StepPlan plan);
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
  // Whether a connected worker waits for a reward server that does not answer.
  bool awaits_rewards() const;
  // These have locks of their own.
  PublishedVersions& published() { return published_; }
  LeaseEvents& events() { return events_; }

  // Expires leases, hands out the groups that this frees, and grants second leases of stragglers.
  // Ends the run if all workers have been bad for too long. To be called a few times a second.
  void Tick();

  // A process of this name has registered.
  void Registered(const std::string& worker, const std::string& version);

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
  // The next message to send: a lease, cancel, renewal or drain. If nothing, wait for Wake.
  std::optional<v1::WorkResponse> Take(Session& session);

  // The pictures that this live lease of the worker asks for; nothing if there is no such lease.
  std::optional<v1::Lease::Pictures> PicturesOf(const std::string& worker, LeaseId lease);
  // Takes the pictures of a lease. An error: they are not what it asks for, which counts as a
  // failure. False: the lease has ended, and nobody wants them.
  bool SubmitPictures(const std::string& worker, LeaseId lease,
                      absl::StatusOr<std::vector<DrawnPictures::Frames>> pictures);

  // The sink's side. If another rank holds the group's latents, their bytes are missing here.
  v1::InsertOutcome Submit(ReceivedGroup group, std::string& error) override;
  void Refuse(LeaseId lease, const std::string& worker, const std::string& reason) override;

  // Fills workers, groups and versions, for `oxbow status`.
  void FillStatus(v1::StatusResponse& response) const;

 private:
  // Holds the lock. At its end wakes, without the lock, the sessions that got something to take.
  class ABSL_SCOPED_LOCKABLE Turn {
   public:
    explicit Turn(Coordinator& coordinator) ABSL_EXCLUSIVE_LOCK_FUNCTION(coordinator.mutex_)
        : coordinator_(coordinator) {
      coordinator_.mutex_.Lock();
    }
    ~Turn() ABSL_UNLOCK_FUNCTION();

   private:
    Coordinator& coordinator_;
  };

  const Options options_;
  LeaseEvents events_;
  PublishedVersions published_;
  mutable absl::Mutex mutex_;
  Roster roster_ ABSL_GUARDED_BY(mutex_);
  Leasing leasing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::learner
