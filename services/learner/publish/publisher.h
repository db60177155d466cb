// SPDX-License-Identifier: Apache-2.0
// Sends the policy to workers: a snapshot with its probe. The coordinator knows of it before it is
// announced.
//
//   torch thread   gate -> begins a copy of the weights into host memory, probe -> trains on
//   own thread     waits for the copy, cuts it, hashes what changed -> tells the coordinator ->
//                  announces
//
// Bad weights are not published: a value that is not finite ends the run; after a collapse of the
// held-out reward the weights are withheld.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/ids.h"
#include "core/model/policy.h"
#include "core/parallel/host_copy.h"
#include "services/learner/coordinator/coordinator.h"
#include "services/learner/publish/weights_source.h"
#include "services/learner/record/learner_metrics.h"
#include "services/weights/probe.h"
#include "services/weights/snapshot.h"
#include "services/weights/snapshot_maker.h"
#include "services/weights/weight_channel_service.h"
#include "services/weights/weights_metrics.h"

namespace oxbow::learner {

// Decides from the last held-out evaluation whether new weights may be published.
//
// A policy whose held-out reward falls below a fraction of the best one of its run has collapsed,
// and its samples would be useless. Its weights are withheld. Workers continue with the last good
// weights for as long as the staleness budget allows. Then the run stops, because it would wait
// forever for groups that no worker may sample. Not thread-safe.
class PublicationGate {
 public:
  struct Options {
    double reward_floor = 0;  // Fraction of the best reward; 0: publish always.
    uint64_t staleness_max = 0;
    double best_reward = 0;  // Best reward before the run was resumed.
  };

  explicit PublicationGate(Options options) : options_(options), best_(options.best_reward) {}

  // Records an evaluation of the current weights. Rewards count as the best only if they are above
  // 0.
  void Evaluated(double reward);

  // Whether weights after `committed` learner steps may be published; if so they count as
  // published. The first ones always may: workers have no others. kFailedPrecondition if they may
  // not and the last published ones are too old to sample the next step.
  absl::StatusOr<bool> Admit(LearnerStep committed);

  double best_reward() const { return best_; }

 private:
  bool collapsed() const;

  const Options options_;
  double best_;
  std::optional<double> last_;
  std::optional<LearnerStep> published_;
};

// Public calls come from the thread that owns torch.
class Publisher {
 public:
  struct Options {
    Epoch epoch;
    weights::ProbeShape probe_shape;
    uint64_t probe_seed = 0;
    double probe_tolerance = 1e-4;  // How far a velocity on a worker may differ by rounding.
    PublicationGate::Options gate;
    model::NamedTensors decoder;  // Goes with the frozen part; none: the latent is the image.
    io::DiffusersComponents components;  // Frozen bytes are read from there where they can be.
  };
  struct Metrics {
    LearnerMetrics& learner;
    weights::PublishMetrics& weights;
  };

  // All references outlive it. The policy's frozen part is read once, here. `on_failure` is called
  // from the own thread if weights that were taken cannot be announced (they exceed the channel's
  // budget): the run must end, for no worker can sample with them.
  Publisher(Options options, model::Policy& policy, Coordinator& coordinator,
            weights::WeightChannelService& channel, Metrics metrics,
            std::function<void(const absl::Status&)> on_failure);
  ~Publisher();  // Publishes what was taken first.

  // Takes the sampling policy as `version`, made by `committed` learner steps. False: withheld, try
  // again after the next step. kDataLoss names a tensor with a value that is not finite;
  // kFailedPrecondition if the run cannot go on. Waits for the previous publication.
  absl::StatusOr<bool> Publish(PolicyVersion version, LearnerStep committed);

  // The held-out reward of the present policy.
  void Evaluated(double reward) { gate_.Evaluated(reward); }
  double best_reward() const { return gate_.best_reward(); }

 private:
  struct Taken {
    weights::SnapshotIdentity identity;
    parallel::HostCopy trained;  // Flat, in the order of the names.
    TensorShapes shapes;         // By name.
  };
  absl::Status CheckFinite() const;
  void WaitUntilAnnounced();
  void Run();
  std::optional<Taken> Next();  // Nothing: all that was taken is published, and no more comes.
  absl::Status Announce(Taken& taken);
  absl::StatusOr<v1::SnapshotManifest::Probe> AwaitProbe();

  const Options options_;
  model::Policy& policy_;
  Coordinator& coordinator_;
  weights::WeightChannelService& channel_;
  const Metrics metrics_;
  const std::function<void(const absl::Status&)> on_failure_;
  PublicationGate gate_;
  weights::SnapshotMaker maker_;  // The own thread's, after the constructor.

  absl::Mutex mutex_;
  std::optional<Taken> taken_ ABSL_GUARDED_BY(mutex_);
  // The probe of what was taken last, once it is known: it is computed while the own thread hashes
  // the weights.
  std::optional<absl::StatusOr<v1::SnapshotManifest::Probe>> probe_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;  // A publication is taken and not yet announced.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace oxbow::learner
