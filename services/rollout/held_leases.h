// SPDX-License-Identifier: Apache-2.0
// The leases a worker holds, from their arrival to the learner's answer. Thread-safe.
//
//   Arrived -> (conditioning and head are read) -> Ready -> TakeBatch -> Sampled
//           -> (scored, sent) -> Done
//
// A lease that the learner cancels is dropped unless it was taken. A taken lease is finished, and
// the learner refuses its group.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "oxbow/v1/coordinator.pb.h"
#include "services/rollout/group_sampler.h"
#include "services/weights/snapshot.h"

namespace oxbow::rollout {

struct PicturesToDraw;  // lease_sampler.h

// A lease with everything that sampling needs.
struct ReadyLease {
  v1::Lease lease;
  std::optional<rl::Trajectory> head;     // See GroupTask.
  weights::Chunk conditioning = nullptr;  // A serialised v1::Conditioning.
  // For a lease of held-out pictures; else null.
  std::shared_ptr<const PicturesToDraw> pictures = nullptr;
};

class HeldLeases {
 public:
  explicit HeldLeases(uint32_t capacity);

  // False if the lease is held already (a repeated message).
  bool Arrived(const v1::Lease& lease);
  void Ready(ReadyLease lease);
  void Sampled(uint64_t lease_id);  // The sampler is done with it.
  void Done(uint64_t lease_id);
  void Cancel(uint64_t lease_id);
  // False for a lease that is done or that the learner has cancelled: nobody waits for its group.
  bool Wanted(uint64_t lease_id) const;

  // Waits for leases that `version` admits, then a moment for leases that are still on their way,
  // and takes all of them. Empty after `timeout`, or when woken (Wake, Close) with nothing to take.
  std::vector<ReadyLease> TakeBatch(std::optional<PolicyVersion> version, absl::Duration linger,
                                    absl::Duration timeout);
  void Wake();

  // How many more leases may be requested: capacity - held, 0 while draining.
  uint32_t free_places() const;
  std::vector<uint64_t> held() const;
  std::vector<uint64_t> sampled() const;  // Held ones whose samples are all made.
  absl::Duration lease_time_min() const;  // The shortest of the held leases; zero if none.

  void Drain();  // Requests no more leases.
  // Waits until no lease is held. False after `timeout`.
  bool AwaitEmpty(absl::Duration timeout);

 private:
  struct Held {
    double seconds = 0;
    bool taken = false;
    bool sampled = false;
    bool cancelled = false;  // Only of a taken one.
    std::optional<ReadyLease> ready;
  };
  size_t Takeable(std::optional<PolicyVersion> version) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t Untaken() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint32_t capacity_;
  mutable absl::Mutex mutex_;
  std::map<uint64_t, Held> held_ ABSL_GUARDED_BY(mutex_);  // By lease id.
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace oxbow::rollout
