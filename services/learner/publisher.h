// Sends the policy out to workers: a snapshot with its probe, known to the coordinator before it is
// announced.
//
//   torch thread   gate -> copy of the weights, probe                          -> trains on
//   own thread     cut, hash what changed -> tell the coordinator -> announce
//
// What must not go out does not: a value that is not finite ends the run, a collapsed held-out
// reward withholds the weights (publication_gate.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/ids.h"
#include "core/model/policy.h"
#include "services/learner/desk/coordinator.h"
#include "services/learner/desk/learner_metrics.h"
#include "services/learner/desk/publication_gate.h"
#include "services/weights/probe.h"
#include "services/weights/snapshot.h"
#include "services/weights/snapshot_maker.h"
#include "services/weights/weight_channel_service.h"
#include "services/weights/weights_metrics.h"

namespace oxbow::learner {

// Public calls come from the thread that owns torch.
class Publisher {
 public:
  struct Options {
    Epoch epoch;
    weights::ProbeShape probe_shape;
    uint64_t probe_seed = 0;
    double probe_tolerance = 1e-4;  // What rounding may make of a velocity elsewhere.
    PublicationGate::Options gate;
    model::NamedTensors decoder;  // Goes out with the frozen part; none: the latent is the picture.
  };
  struct Metrics {
    LearnerMetrics& learner;
    weights::PublishMetrics& weights;
  };

  // All references outlive it. The policy's frozen part is read once, here. `on_failure` is called
  // from the own thread if weights that were taken cannot be announced (they exceed the channel's
  // budget): the run must end, for nobody will sample with them.
  Publisher(Options options, model::Policy& policy, Coordinator& coordinator,
            weights::WeightChannelService& channel, Metrics metrics,
            std::function<void(const absl::Status&)> on_failure);
  ~Publisher();  // What was taken goes out first.

  // Takes the policy that samples as `version`, made by `committed` learner steps. False: withheld,
  // try again after the next step. kDataLoss names a tensor with a value that is not finite;
  // kFailedPrecondition when nothing is left to go on with. Waits for the publication before.
  absl::StatusOr<bool> Publish(PolicyVersion version, LearnerStep committed);

  // What held-out prompts said of the policy as it is.
  void Evaluated(double reward) { gate_.Evaluated(reward); }
  double best_reward() const { return gate_.best_reward(); }

 private:
  struct Taken {
    weights::SnapshotIdentity identity;
    weights::TensorBytesByName trained;
    v1::SnapshotManifest::Probe probe;
  };
  absl::Status CheckFinite() const;
  void Run();
  std::optional<Taken> Next();  // Nothing: all that was taken is out, and there is no more.
  absl::Status Announce(weights::SnapshotMaker& maker, const Taken& taken);

  const Options options_;
  model::Policy& policy_;
  Coordinator& coordinator_;
  weights::WeightChannelService& channel_;
  const Metrics metrics_;
  const std::function<void(const absl::Status&)> on_failure_;
  PublicationGate gate_;
  weights::TensorBytesByName frozen_;  // The own thread's; gone when it is cut.

  absl::Mutex mutex_;
  std::optional<Taken> taken_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace oxbow::learner
