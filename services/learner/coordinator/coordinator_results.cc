// SPDX-License-Identifier: Apache-2.0
// The fate of a result that a worker sends: checked, fenced, kept.
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/learner/coordinator/coordinator.h"

namespace oxbow::learner {

v1::InsertOutcome Coordinator::Submit(ReceivedGroup received, std::string& error) {
  const absl::Status finite = CheckFinite(received.group, options_.rules);  // Megabytes: unlocked.
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  ExpireLeases();
  if (received.group.epoch() != options_.leases.epoch.value)
    return Discard(v1::INSERT_OUTCOME_FENCED);
  const LeaseId id(received.group.lease_id());
  std::optional<lease::LeaseGrant> grant;  // If the lease lives and is of this group.
  if (const lease::LeaseGrant* live = table_.Find(id);
      live != nullptr && live->group.value == received.group.group_id()) {
    // Only its holder may end a lease, by a result or otherwise.
    if (live->worker != received.group.worker_id()) return Discard(v1::INSERT_OUTCOME_FENCED);
    grant = *live;
    absl::Status status =
        CheckGroup(received.group, planned_.at(grant->group.value), published_, options_.rules);
    status.Update(finite);
    if (!status.ok()) {
      error = std::string(status.message());
      FailLease(id, absl::StrCat("invalid result: ", error));
      return Discard(v1::INSERT_OUTCOME_INVALID);
    }
  }
  std::optional<lease::LeaseGrant> superseded;
  switch (table_.Accept(GroupId(received.group.group_id()), id, &superseded)) {
    case lease::AcceptOutcome::kFenced:
      return Discard(v1::INSERT_OUTCOME_FENCED);
    case lease::AcceptOutcome::kSuperseded:
      return Discard(v1::INSERT_OUTCOME_SUPERSEDED);
    case lease::AcceptOutcome::kDuplicate:
      return v1::INSERT_OUTCOME_DUPLICATE;
    case lease::AcceptOutcome::kAccepted:
      break;
  }
  Keep(std::move(received), *grant);
  if (superseded.has_value()) Supersede(*superseded);
  HandOut();
  return v1::INSERT_OUTCOME_ACCEPTED;
}

v1::InsertOutcome Coordinator::Discard(v1::InsertOutcome outcome) {
  ++counts_.groups_discarded;
  return outcome;
}

void Coordinator::CountUndelivered() {
  absl::MutexLock lock(&mutex_);
  ++counts_.groups_discarded;
}

void Coordinator::Keep(ReceivedGroup received, const lease::LeaseGrant& grant) {
  const auto worker = workers_.find(grant.worker);
  if (worker != workers_.end()) ++worker->second.groups_done;
  book_.Succeeded(grant.worker);
  if (const uint64_t unscored = UnscoredIn(received.group); unscored > 0) {
    counts_.samples_unscored += unscored;
    metrics_.SamplesUnscored(unscored);
  } else {
    quarantine_.Scored(PromptId(received.group.prompt().id()));
  }
  received.attempt = grant.attempt;
  assembler_.Add(grant.step, std::move(received));
}

void Coordinator::Supersede(const lease::LeaseGrant& other) {
  ++counts_.leases_superseded;
  metrics_.LeaseSuperseded();
  PushCancel(other, "another attempt was first");
}

void Coordinator::Refuse(LeaseId lease, const std::string& worker, const std::string& reason) {
  const WakeAfter wake(*this);
  absl::MutexLock lock(&mutex_);
  ++counts_.groups_discarded;
  if (!table_.Holds(worker, lease)) return;
  FailLease(lease, absl::StrCat("invalid result: ", reason));
}

}  // namespace oxbow::learner
