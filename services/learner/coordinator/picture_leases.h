// SPDX-License-Identifier: Apache-2.0
// The held-out pictures of an evaluation: their leases, and the wait for all of them.
//
// The lease table that serves groups serves pictures, too: those of a lease that expires or fails
// are leased again, a slow lease is given a second time, and the first result counts. A table of
// their own keeps them out of the count of groups. Any worker with weights may draw them: the lease
// names the weights.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/lease/lease_table.h"
#include "oxbow/v1/coordinator.pb.h"
#include "rpc/picture_pieces.h"

namespace oxbow::learner {

// The pictures of one evaluation as workers send them, lease by lease. Thread-safe.
class DrawnPictures {
 public:
  using Frames = rpc::PictureFrames;

  // The size of every picture in pixels, and its frames; an image has one. 0: any size.
  struct Size {
    int height = 0;
    int width = 0;
    size_t frames = 0;
  };

  // So many leases have its pictures; at least one.
  explicit DrawnPictures(size_t leases) : DrawnPictures(leases, Size()) {}
  DrawnPictures(size_t leases, Size size) : size_(size), leases_(leases) {}

  // kInvalidArgument unless they have the size of this evaluation, and the channels of what is
  // here.
  absl::Status Check(const std::vector<Frames>& pictures);

  // The pictures of a lease, in order, which Check has found right. Each is added once: the lease
  // table ensures that.
  void Add(size_t lease, std::vector<Frames> pictures);

  // Ends the wait. The first reason counts.
  void End(const absl::Status& why);

  // Waits for all pictures and returns them in the order of their places; or why it has ended. To
  // be called once.
  absl::StatusOr<std::vector<Frames>> Await();

 private:
  const Size size_;
  absl::Mutex mutex_;
  int channels_ ABSL_GUARDED_BY(mutex_) = 0;                         // 0: no picture is here.
  std::vector<std::vector<Frames>> leases_ ABSL_GUARDED_BY(mutex_);  // Empty: not here.
  size_t here_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
};

// Their leases. Not thread-safe. Without an evaluation there is nothing to lease.
class PictureLeases {
 public:
  // `rules`: those of the leases of groups.
  PictureLeases(const lease::LeaseTable::Options& rules, const Clock& clock,
                const lease::WorkerBook& workers);

  // Whether the id is one of these and not a group's.
  static bool Names(LeaseId lease) { return (lease.value & kFirst) != 0; }

  // Begins an evaluation, in place of an earlier one. `units`: the pictures of each lease; empty:
  // nobody wants any. Returns the leases that this ends.
  std::vector<lease::LeaseGrant> Begin(std::vector<v1::Lease::Pictures> units,
                                       std::shared_ptr<DrawnPictures> results);
  // Whether the learner waits for them: then they are leased before groups.
  void Hurry(bool hurry) { first_ = hurry; }
  bool first() const { return first_; }

  lease::LeaseTable& table() { return *table_; }
  const lease::LeaseTable& table() const { return *table_; }
  // The pictures that this live lease of the worker asks for; nothing if there is no such lease.
  std::optional<v1::Lease::Pictures> PicturesOf(const std::string& worker, LeaseId lease) const;
  // The lease as the worker is told. It is remembered as one that has the weights.
  v1::Lease Describe(const lease::LeaseGrant& grant);

  // kInvalidArgument: they are not what a lease asks for. Requires an evaluation.
  absl::Status Check(const std::vector<DrawnPictures::Frames>& pictures) {
    return results_->Check(pictures);
  }
  // Takes the pictures of a live lease, which Check has found right. The group's other lease, if it
  // has one, ends here. False: the lease has just expired.
  bool Accept(LeaseId lease, std::vector<DrawnPictures::Frames> pictures,
              std::optional<lease::LeaseGrant>& superseded);
  // Ends a live lease. After some failures the evaluation ends.
  void Fail(LeaseId lease, const std::string& reason, lease::Blame blame) {
    if (const auto over = table_->Fail(lease, reason, blame); !over.ok()) GiveUp(over);
  }
  // Ends the wait for the pictures, if there is one.
  void GiveUp(const absl::Status& why) {
    if (results_ != nullptr) results_->End(why);
  }

 private:
  // The lower half of a lease id counts; groups never get so far.
  static constexpr uint64_t kFirst = uint64_t{1} << 31;

  lease::LeaseTable::Options rules_;  // As for groups, but for what counts groups and steps.
  const Clock& clock_;
  const lease::WorkerBook& workers_;
  bool first_ = false;
  uint64_t evaluations_ = 0;
  std::optional<lease::LeaseTable> table_;  // Always set; without an evaluation nothing is in it.
  std::vector<v1::Lease::Pictures> units_;
  std::shared_ptr<DrawnPictures> results_;  // Null without an evaluation.
  std::vector<std::string> holders_;  // Workers that were given the weights, the newest first.
};

}  // namespace oxbow::learner
