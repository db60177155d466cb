// SPDX-License-Identifier: Apache-2.0
// The evaluations of a run: workers draw held-out pictures, by leases, and reward servers score
// them.
//
//   torch thread   Begin: a copy of the evaluated weights into host memory, a probe, conditioning
//   own thread     cuts and hashes the weights -> offers the leases -> waits for the pictures ->
//                  has them judged
//
// The training thread is free from Begin until Await. The chunks of weights that are published are
// not held a second time. One evaluation at a time. Without a worker an evaluation waits for one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/ids.h"
#include "core/model/policy.h"
#include "core/parallel/host_copy.h"
#include "services/learner/coordinator/coordinator.h"
#include "services/learner/evaluation/held_out_pictures.h"
#include "services/learner/evaluation/picture_judge.h"
#include "services/learner/plan/conditioning_cache.h"
#include "services/learner/publish/weights_source.h"
#include "services/weights/probe.h"
#include "services/weights/snapshot.h"

namespace oxbow::learner {

class Evaluation {
 public:
  struct Options {
    Epoch epoch;
    weights::ProbeShape probe_shape;
    uint64_t probe_seed = 0;
    double probe_tolerance = 1e-4;
    size_t images = 128;
    size_t together = 64;      // Pictures of a lease.
    DrawnPictures::Size size;  // Every picture has it.
    bool average = false;      // The running average is evaluated, else what is trained.
  };

  // All outlive it. `conditioning` also serves the weights by hash. `published` gives a chunk of
  // published weights, or null.
  struct Parts {
    model::Policy& policy;
    ConditioningCache& conditioning;
    Coordinator& coordinator;
    PictureJudge& judge;
    std::function<weights::Chunk(const std::string& sha256)> published;
  };

  // `prompts`: held out, not empty.
  Evaluation(Options options, std::vector<v1::Prompt> prompts, Parts parts);
  ~Evaluation();  // Cancels.

  // Begins an evaluation of the policy as it is now, or of `weights` in its place: a trained part.
  absl::Status Begin(PolicyVersion version, const model::NamedTensors* weights = nullptr);

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
    parallel::HostCopy weights;
    TensorShapes shapes;
    v1::SnapshotManifest::Probe probe;
    HeldOutPictures pictures;
    weights::Snapshot cut;  // The weights in chunks.
    PolicyVersion version;
    std::shared_ptr<DrawnPictures> drawn;
    absl::StatusOr<EvaluationResult> result = absl::UnknownError("not over");
    absl::Notification over;
    std::thread thread;
  };
  std::unique_ptr<Running> Copied(const model::NamedTensors* weights);
  void Run(Running& running);
  void OfferWeights(Running& running);

  const Options options_;
  const std::vector<v1::Prompt> prompts_;
  const Parts parts_;
  std::unique_ptr<Running> running_;  // The torch thread's, as is what comes next.
  std::optional<weights::Snapshot> cut_off_;

  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<DrawnPictures> drawn_ ABSL_GUARDED_BY(mutex_);  // The running one's.
};

}  // namespace oxbow::learner
