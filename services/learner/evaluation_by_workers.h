// SPDX-License-Identifier: Apache-2.0
// An evaluation whose pictures workers draw, by leases.
//
//   torch thread   Begin: a copy of the evaluated weights into host memory, a probe, conditioning
//   own thread     cuts and hashes the weights -> offers the leases -> waits for the pictures ->
//                  has them scored
//
// The training thread is free from Begin until Await. The chunks of weights that are published are
// not held a second time. One evaluation at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/ids.h"
#include "core/model/parameters.h"
#include "core/model/velocity_model.h"
#include "core/parallel/host_copy.h"
#include "services/learner/coordinator/coordinator.h"
#include "services/learner/evaluation.h"
#include "services/learner/weights_source.h"
#include "services/weights/content_store.h"
#include "services/weights/probe.h"
#include "services/weights/snapshot.h"

namespace oxbow::learner {

class EvaluationByWorkers {
 public:
  struct Options {
    Epoch epoch;
    weights::ProbeShape probe_shape;
    uint64_t probe_seed = 0;
    double probe_tolerance = 1e-4;
    DrawnPictures::Size size;  // Every picture has it.
  };

  // `content` serves workers by hash what somebody holds. `published` gives a chunk of published
  // weights, or null. All outlive it.
  EvaluationByWorkers(Options options, Evaluation& evaluation, Coordinator& coordinator,
                      weights::ContentStore& content,
                      std::function<weights::Chunk(const std::string& sha256)> published);
  ~EvaluationByWorkers();  // Cancels.

  // Begins an evaluation of this network and its trained part, as they are now.
  absl::Status Begin(const model::VelocityModel& network, const model::ParameterSet& trained,
                     PolicyVersion version);

  // Waits for its end; workers draw its pictures before groups now. Asks `stopped` now and then:
  // its error is an end as well. Requires Begin.
  absl::StatusOr<EvaluationResult> Await(const std::function<absl::Status()>& stopped);

  // The weights of the evaluation that Cancel ended, once; nothing if none was cut off.
  std::optional<weights::Snapshot> TakeCutOff() { return std::exchange(cut_off_, std::nullopt); }

  // Ends a running evaluation, and all later ones at once. Scoring ends with
  // reward::RewardClient::Cancel. From any thread.
  void Cancel();

 private:
  // One evaluation, from Begin to Await.
  struct Running {
    HeldOutPictures::Offered offered;
    parallel::HostCopy weights;
    TensorShapes shapes;
    v1::SnapshotManifest::Probe probe;
    weights::Snapshot cut;  // The weights in chunks.
    PolicyVersion version;
    std::shared_ptr<DrawnPictures> drawn;
    absl::StatusOr<EvaluationResult> result = absl::UnknownError("not over");
    absl::Notification over;
    std::thread thread;
  };
  void Run(Running& running);
  void OfferWeights(Running& running);
  void End();

  const Options options_;
  Evaluation& evaluation_;
  Coordinator& coordinator_;
  weights::ContentStore& content_;
  const std::function<weights::Chunk(const std::string& sha256)> published_;
  std::unique_ptr<Running> running_;  // The torch thread's, as is what comes next.
  std::optional<weights::Snapshot> cut_off_;

  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<DrawnPictures> drawn_ ABSL_GUARDED_BY(mutex_);  // The running one's.
};

}  // namespace oxbow::learner
