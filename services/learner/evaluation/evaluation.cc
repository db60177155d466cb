// SPDX-License-Identifier: Apache-2.0
#include "services/learner/evaluation/evaluation.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/check.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "base/trace.h"
#include "services/weights/snapshot_maker.h"

namespace oxbow::learner {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(500);  // Between looks whether the run stops.

absl::Status EvaluationCancelled() { return absl::CancelledError("the evaluation was cancelled"); }

// The network whose pictures are drawn, for as long as this lives.
class EvaluatedNetwork {
 public:
  EvaluatedNetwork(bool average, model::Policy& policy) : policy_(policy) {
    if (average) average_.emplace(policy);
  }

  const model::VelocityModel& network() const {
    return average_.has_value() ? average_->network() : policy_.current();
  }

  // Its trained part.
  model::ParameterSet& parameters() const {
    const bool apart = average_.has_value() && !policy_.average_on_host();
    return apart ? policy_.ema_parameters() : policy_.parameters();
  }

 private:
  model::Policy& policy_;
  std::optional<model::AverageInUse> average_;
};

}  // namespace

Evaluation::Evaluation(Options options, std::vector<v1::Prompt> prompts, Parts parts)
    : options_(std::move(options)), prompts_(std::move(prompts)), parts_(std::move(parts)) {}

Evaluation::~Evaluation() {
  Cancel();
  if (running_ != nullptr) running_->thread.join();
}

// The policy has other weights than its own only while they are copied.
std::unique_ptr<Evaluation::Running> Evaluation::Copied(const model::NamedTensors* weights) {
  const EvaluatedNetwork evaluated(options_.average, parts_.policy);
  model::ParameterSet& parameters = evaluated.parameters();
  std::optional<parallel::HostCopy> own;
  if (weights != nullptr) {
    own.emplace(parameters.flat());
    parameters.CopyFrom(model::ParameterSet(*weights, /*trainable=*/false));
  }
  std::unique_ptr<Running> running(
      new Running{.weights = parallel::HostCopy(parameters.flat()),
                  .shapes = ShapesOf(parameters.tensors()),
                  .probe = weights::RunProbe(evaluated.network(), options_.probe_shape,
                                             options_.probe_seed, options_.probe_tolerance)});
  if (own.has_value()) own->PutBack(parameters.flat());
  return running;
}

absl::Status Evaluation::Begin(PolicyVersion version, const model::NamedTensors* weights) {
  OXBOW_CHECK(running_ == nullptr) << "one evaluation at a time";
  OXBOW_ASSIGN_OR_RETURN(
      HeldOutPictures pictures,
      HeldOutPictures::Of(prompts_, options_.images, options_.together, parts_.conditioning));
  auto drawn = std::make_shared<DrawnPictures>(pictures.leases.size(), options_.size);
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return EvaluationCancelled();
    drawn_ = drawn;
  }
  running_ = Copied(weights);
  running_->pictures = std::move(pictures);
  running_->version = version;
  running_->drawn = std::move(drawn);
  running_->thread = std::thread([this, trace = CurrentTrace()] {
    const TraceScope scope(trace);
    Run(*running_);
  });
  return absl::OkStatus();
}

// Cuts the weights and names them in every lease. They are given out as long as the chunks live.
void Evaluation::OfferWeights(Running& running) {
  weights::SnapshotMaker maker(weights::SourceOf({}));
  weights::Snapshot snapshot =
      maker.Make({.epoch = options_.epoch, .version = running.version, .step = LearnerStep(0)},
                 TrainedSource(running.weights, running.shapes));
  *snapshot.manifest.mutable_probe() = running.probe;
  for (auto& [hash, chunk] : snapshot.chunks) {
    weights::Chunk same = parts_.published(hash);
    chunk =
        parts_.conditioning.sent().Put(hash, same != nullptr ? std::move(same) : std::move(chunk));
  }
  const auto manifest = std::make_shared<const std::string>(snapshot.manifest.SerializeAsString());
  const std::string hash = Sha256(*manifest);
  snapshot.chunks[hash] = parts_.conditioning.sent().Put(hash, manifest);
  for (v1::Lease::Pictures& pictures : running.pictures.leases) {
    pictures.mutable_weights()->set_sha256(hash);
    pictures.mutable_weights()->set_bytes(manifest->size());
  }
  running.cut = std::move(snapshot);
}

void Evaluation::Run(Running& running) {
  OfferWeights(running);
  parts_.coordinator.OfferPictures(std::move(running.pictures.leases), running.drawn);
  const absl::StatusOr<std::vector<DrawnPictures::Frames>> pictures = running.drawn->Await();
  parts_.coordinator.EndPictures();
  running.pictures.conditioning.clear();
  running.result = pictures.ok() ? parts_.judge.Judge(*pictures)
                                 : absl::StatusOr<EvaluationResult>(pictures.status());
  running.over.Notify();
}

absl::StatusOr<EvaluationResult> Evaluation::Await(const std::function<absl::Status()>& stopped) {
  OXBOW_CHECK(running_ != nullptr) << "no evaluation was begun";
  parts_.coordinator.HurryPictures();
  while (!running_->over.WaitForNotificationWithTimeout(kLook)) {
    if (!stopped().ok()) Cancel();
  }
  running_->thread.join();
  parts_.coordinator.EndPictures();  // The hurry, too, where it came after the end.
  absl::StatusOr<EvaluationResult> result = std::move(running_->result);
  if (absl::IsCancelled(result.status())) cut_off_ = std::move(running_->cut);
  running_.reset();
  return result;
}

void Evaluation::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  if (drawn_ != nullptr) drawn_->End(EvaluationCancelled());
}

}  // namespace oxbow::learner
