// SPDX-License-Identifier: Apache-2.0
#include "services/learner/coordinator/picture_leases.h"

#include <algorithm>
#include <utility>

namespace oxbow::learner {
namespace {

constexpr size_t kPeers = 2;  // Workers that a lease names as sources of the weights.

lease::LeaseTable::Options RulesOf(const lease::LeaseTable::Options& groups, uint64_t first_lease,
                                   uint64_t units) {
  return {.epoch = groups.epoch,
          .first_lease = first_lease,
          .groups_per_step = units,
          .lease_time = groups.lease_time,
          .failures_max = groups.failures_max,
          .backoff_first = groups.backoff_first,
          .backoff_max = groups.backoff_max,
          .stragglers = groups.stragglers,
          .ages = groups.ages};
}

}  // namespace

PictureLeases::PictureLeases(const lease::LeaseTable::Options& rules, uint64_t earlier,
                             const Clock& clock, const lease::WorkerBook& workers,
                             std::vector<v1::Lease::Pictures> units,
                             std::shared_ptr<DrawnPictures> results)
    : lease_time_(rules.lease_time),
      table_(RulesOf(rules, kFirst + earlier, units.size()), clock, &workers),
      units_(std::move(units)),
      results_(std::move(results)) {
  table_.Plan(LearnerStep(0));  // They are all of one step, which any weights serve.
}

v1::Lease PictureLeases::Describe(const lease::LeaseGrant& grant) {
  v1::Lease lease;
  lease.set_lease_id(grant.id.value);
  lease.set_attempt(grant.attempt);
  lease.set_seconds(absl::ToDoubleSeconds(lease_time_));
  v1::Lease::Pictures& pictures = *lease.mutable_pictures();
  pictures = PicturesOf(grant);
  for (const std::string& holder : holders_) {
    if (holder != grant.worker) pictures.add_peers()->set_worker_id(holder);
  }
  std::erase(holders_, grant.worker);
  holders_.insert(holders_.begin(), grant.worker);
  if (holders_.size() > kPeers) holders_.pop_back();
  return lease;
}

lease::AcceptOutcome PictureLeases::Accept(const lease::LeaseGrant& grant,
                                           std::vector<DrawnPictures::Frames> pictures,
                                           std::optional<lease::LeaseGrant>* superseded) {
  const lease::AcceptOutcome outcome = table_.Accept(grant.group, grant.id, superseded);
  if (outcome == lease::AcceptOutcome::kAccepted) {
    results_->Add(grant.group.value, std::move(pictures));
  }
  return outcome;
}

}  // namespace oxbow::learner
