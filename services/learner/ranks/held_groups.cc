// SPDX-License-Identifier: Apache-2.0
#include "services/learner/ranks/held_groups.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "rpc/retry.h"
#include "services/learner/ranks/step_manifest.h"

namespace oxbow::learner {

HeldGroups::HeldGroups(GroupRules rules, bool offers, Ask ask)
    : rules_(std::move(rules)), offers_(offers), ask_(std::move(ask)) {}

v1::InsertOutcome HeldGroups::Submit(ReceivedGroup received, std::string& error) {
  if (const absl::Status status = CheckFinite(received.group, rules_); !status.ok()) {
    error = std::string(status.message());
    Refuse(LeaseId(received.group.lease_id()), received.group.worker_id(), error);
    return v1::INSERT_OUTCOME_INVALID;
  }
  const uint64_t lease = received.group.lease_id();
  const v1::Group told = WithoutLatents(received.group, offers_);
  bool kept;  // False if a result of this lease is here already: it must not go with this one.
  {
    absl::MutexLock lock(&mutex_);
    kept = groups_.try_emplace(lease, std::move(received)).second;
  }
  const absl::StatusOr<v1::InsertResponse::Ack> ack = ask_(told);
  if (!ack.ok() && rpc::FailureOf(ack.status()) != rpc::Failure::kAnswer) {
    // Rank 0 is gone, and nobody knows what it decided: the group stays here in case it counts.
    error = absl::StrCat("rank 0 did not answer: ", std::string(ack.status().message()));
    return v1::INSERT_OUTCOME_UNSPECIFIED;
  }
  error = ack.ok() ? ack->error() : std::string(ack.status().message());
  const v1::InsertOutcome outcome = ack.ok() ? ack->outcome() : v1::INSERT_OUTCOME_INVALID;
  if (outcome == v1::INSERT_OUTCOME_ACCEPTED || outcome == v1::INSERT_OUTCOME_DUPLICATE) {
    return outcome;
  }
  absl::MutexLock lock(&mutex_);
  if (kept) groups_.erase(lease);
  return outcome;
}

// Rank 0 learns of it when the worker gives the lease back, or when the lease expires.
void HeldGroups::Refuse(LeaseId lease, const std::string& worker, const std::string& reason) {
  OXBOW_LOG(Warning) << "result refused" << Field("lease", lease) << Field("worker", worker)
                     << Field("reason", reason);
}

absl::StatusOr<ReceivedGroup> HeldGroups::Take(LeaseId lease) {
  absl::MutexLock lock(&mutex_);
  const auto found = groups_.find(lease.value);
  if (found == groups_.end()) {
    return absl::InternalError(
        absl::StrCat("the manifest names a group this rank does not hold: lease ", lease.value));
  }
  ReceivedGroup group = std::move(found->second);
  groups_.erase(found);
  return group;
}

void HeldGroups::Forget(LearnerStep step) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(groups_,
                [&](const auto& item) { return item.second.group.learner_step() < step.value; });
}

}  // namespace oxbow::learner
