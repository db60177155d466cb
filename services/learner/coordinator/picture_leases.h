// SPDX-License-Identifier: Apache-2.0
// The leases of one evaluation's held-out pictures. The lease table that serves groups serves them,
// too: pictures of a lease that expires or fails are leased again, a slow lease is given a second
// time, and the first result counts. A table of their own keeps them out of the count of groups.
//
// Any worker with weights may draw them: the lease names the weights. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/lease/lease_table.h"
#include "oxbow/v1/coordinator.pb.h"
#include "services/learner/coordinator/drawn_pictures.h"

namespace oxbow::learner {

class PictureLeases {
 public:
  // `rules`: those of the leases of groups. `earlier`: leases that earlier evaluations granted.
  // `units`: the pictures of each lease, not empty.
  PictureLeases(const lease::LeaseTable::Options& rules, uint64_t earlier, const Clock& clock,
                const lease::WorkerBook& workers, std::vector<v1::Lease::Pictures> units,
                std::shared_ptr<DrawnPictures> results);

  // Whether the id is one of these and not a group's.
  static bool Names(LeaseId lease) { return (lease.value & kFirst) != 0; }

  lease::LeaseTable& table() { return table_; }
  const lease::LeaseTable& table() const { return table_; }
  const v1::Lease::Pictures& PicturesOf(const lease::LeaseGrant& grant) const {
    return units_.at(grant.group.value);
  }
  DrawnPictures& results() { return *results_; }
  // With those of earlier evaluations.
  uint64_t granted() const { return table_.state().leases_granted - kFirst; }

  // The lease as the worker is told. It is remembered as one that has the weights.
  v1::Lease Describe(const lease::LeaseGrant& grant);

  // Takes the pictures of a live lease. The group's other lease, if it has one, ends here.
  lease::AcceptOutcome Accept(const lease::LeaseGrant& grant,
                              std::vector<DrawnPictures::Frames> pictures,
                              std::optional<lease::LeaseGrant>* superseded);

 private:
  // The lower half of a lease id counts; groups never get so far.
  static constexpr uint64_t kFirst = uint64_t{1} << 31;

  const absl::Duration lease_time_;
  lease::LeaseTable table_;
  const std::vector<v1::Lease::Pictures> units_;
  const std::shared_ptr<DrawnPictures> results_;
  std::vector<std::string> holders_;  // Workers that were given the weights, the newest first.
};

}  // namespace oxbow::learner
