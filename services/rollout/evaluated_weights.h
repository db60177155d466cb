// SPDX-License-Identifier: Apache-2.0
// The weights that leases of held-out pictures name: a manifest and its chunks, by hash.
//
//   chunks of the weights in use --> peers that draw the same evaluation --> learner
//
// Weights that this worker has are not copied. Others are fetched a few hundred chunks in a call.
// They are held until an evaluation of other weights comes. Training goes on for one step at most
// while an evaluation is drawn, so they are let go of when weights have been applied twice and no
// lease has named them. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "oxbow/v1/coordinator.pb.h"
#include "services/rollout/conditioning_source.h"
#include "services/weights/weight_follower.h"

namespace oxbow::rollout {

class EvaluatedWeights {
 public:
  using Weights = std::shared_ptr<const weights::VerifiedSnapshot>;

  // `held` gives a chunk of the weights in use, or null. Both outlive this.
  EvaluatedWeights(ConditioningSource& source,
                   std::function<weights::Chunk(const std::string& sha256)> held);

  // Waits for what has to be fetched. One caller at a time fetches.
  absl::StatusOr<Weights> Get(const v1::Lease::Pictures& pictures);

  // Other weights are in use. Those of an evaluation live on while something draws with them.
  void Applied();

 private:
  absl::StatusOr<Weights> Fetch(const v1::Lease::Pictures& pictures);

  ConditioningSource& source_;
  const std::function<weights::Chunk(const std::string& sha256)> held_;
  absl::Mutex fetching_;
  absl::Mutex mutex_;
  std::string sha256_ ABSL_GUARDED_BY(mutex_);  // The manifest's.
  Weights last_ ABSL_GUARDED_BY(mutex_);
  int applied_ ABSL_GUARDED_BY(mutex_) = 0;  // Times since a lease named them.
};

}  // namespace oxbow::rollout
