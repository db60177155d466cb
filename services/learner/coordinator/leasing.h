// SPDX-License-Identifier: Apache-2.0
// The leases of planned groups and of held-out pictures, and their way between the lease tables and
// the workers that wait: handed out, given a second time, accepted, failed, expired.
//
// Leases go to the newest weights first, then to those that wait longest. A worker that falls
// silent loses its leases and, until it speaks, its credit. A mixed group whose head cannot be read
// is leased as a fresh one, so that a lost replay buffer never holds up a step. Pictures are leased
// to workers that groups leave idle. Nothing here is thread-safe.
#pragma once

#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/lease/lease_table.h"
#include "services/learner/coordinator/group_assembler.h"
#include "services/learner/coordinator/group_check.h"
#include "services/learner/coordinator/lease_events.h"
#include "services/learner/coordinator/picture_leases.h"
#include "services/learner/coordinator/roster.h"

namespace oxbow::learner {

// Workers that were last leased a group of a conditioning, so that the next one asks them for it.
// Only the last few workers are remembered, and conditionings that were leased longest ago are
// forgotten. That a worker is remembered does not mean that it still holds it.
class ConditioningHolders {
 public:
  struct Options {
    size_t conditionings_max = 262'144;  // About 100 MB.
    size_t workers_max = 2;              // For each.
  };

  ConditioningHolders() : ConditioningHolders(Options()) {}
  explicit ConditioningHolders(Options options) : options_(options) {}

  // `worker` gets a conditioning of this hash.
  void Given(const std::string& sha256, const std::string& worker);

  // Those it was given to, the newest first.
  std::vector<std::string> Of(const std::string& sha256) const;

  size_t conditionings() const { return held_.size(); }

 private:
  struct Held {
    std::vector<std::string> workers;              // The newest first.
    std::list<const std::string*>::iterator turn;  // In turns_.
  };

  const Options options_;
  std::map<std::string, Held> held_;     // By hash.
  std::list<const std::string*> turns_;  // Keys of held_; given last, last.
};

class Leasing {
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

  Leasing(const Options& options, Roster& roster, const PublishedVersions& published,
          GroupAssembler& assembler, LeaseEvents& events, const Clock& clock,
          LearnerMetrics& metrics);

  // Hands out groups that were just planned in the table.
  void Add(std::vector<PlannedGroup> groups);
  // As their namesakes of the coordinator.
  std::vector<PlannedGroup> TakePlanned(LearnerStep step);
  void Commit(LearnerStep step);

  // Gives leases to those that wait, as far as there are any.
  void HandOut();
  // Grants second leases of stragglers: of groups, or of pictures.
  void HelpStragglers(bool pictures);
  // Ends overdue leases.
  void Expire();
  // Takes the result of a lease, if that lives and asked for it; else leaves it as it is. `finite`:
  // whether its latents are. `error` says why it is INVALID; then the lease has failed.
  v1::InsertOutcome Accept(ReceivedGroup&& received, const absl::Status& finite,
                           std::string& error);
  // Ends a live lease, which its worker fails. After a few failures a group goes on without its
  // head, or drops its samples without a score; after more it ends the run, or its evaluation.
  void Fail(LeaseId lease, const std::string& reason, lease::Blame blame = lease::Blame::kWorker);
  // Ends a lease because the group's other one was first, if there is one.
  void Supersede(const std::optional<lease::LeaseGrant>& other);
  // Leases these pictures, if any, in place of earlier ones.
  void OfferPictures(std::vector<v1::Lease::Pictures> units,
                     std::shared_ptr<DrawnPictures> results);
  // Ends the evaluation, and then the run, where all workers have been bad for too long.
  void LookAtWorkers();

  // The table of groups or of pictures that the lease is from.
  lease::LeaseTable& TableOf(LeaseId lease);
  lease::LeaseTable& table() { return table_; }  // The groups' table.
  PictureLeases& pictures() { return pictures_; }
  void FillStatus(v1::StatusResponse& response) const;
  void Report() const;  // The metrics of groups and workers.

 private:
  uint64_t FirstOf(LearnerStep step) const;
  uint64_t RunningOf(const std::string& worker) const;  // Leases.
  bool Acquire(Roster::Session& session, bool pictures, bool& kept);
  void Give(Roster::Session& session, const lease::LeaseGrant& grant);
  v1::Lease Describe(const lease::LeaseGrant& grant);

  const Options& options_;
  Roster& roster_;
  const PublishedVersions& published_;
  GroupAssembler& assembler_;
  LeaseEvents& events_;
  const Clock& clock_;
  LearnerMetrics& metrics_;
  lease::LeaseTable table_;
  PictureLeases pictures_;
  std::map<uint64_t, PlannedGroup> planned_;  // By group.
  ConditioningHolders holders_;
  Quarantine quarantine_;
};

}  // namespace oxbow::learner
