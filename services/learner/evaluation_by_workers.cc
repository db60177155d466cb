// SPDX-License-Identifier: Apache-2.0
#include "services/learner/evaluation_by_workers.h"

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

}  // namespace

EvaluationByWorkers::EvaluationByWorkers(
    Options options, Evaluation& evaluation, Coordinator& coordinator,
    weights::ContentStore& content, std::function<weights::Chunk(const std::string&)> published)
    : options_(std::move(options)),
      evaluation_(evaluation),
      coordinator_(coordinator),
      content_(content),
      published_(std::move(published)) {}

EvaluationByWorkers::~EvaluationByWorkers() {
  Cancel();
  End();
}

void EvaluationByWorkers::End() {
  if (running_ == nullptr) return;
  running_->thread.join();
  running_.reset();
}

absl::Status EvaluationByWorkers::Begin(const model::VelocityModel& network,
                                        const model::ParameterSet& trained, PolicyVersion version) {
  OXBOW_CHECK(running_ == nullptr) << "one evaluation at a time";
  OXBOW_ASSIGN_OR_RETURN(HeldOutPictures::Offered offered, evaluation_.Offer());
  auto drawn = std::make_shared<DrawnPictures>(offered.leases.size(), options_.size);
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return EvaluationCancelled();
    drawn_ = drawn;
  }
  running_.reset(
      new Running{.offered = std::move(offered),
                  .weights = parallel::HostCopy(trained.flat()),
                  .shapes = ShapesOf(trained.tensors()),
                  .probe = weights::RunProbe(network, options_.probe_shape, options_.probe_seed,
                                             options_.probe_tolerance),
                  .version = version,
                  .drawn = std::move(drawn)});
  running_->thread = std::thread([this, trace = CurrentTrace()] {
    const TraceScope scope(trace);
    Run(*running_);
  });
  return absl::OkStatus();
}

// Cuts the weights and names them in every lease. They are given out as long as the chunks live.
void EvaluationByWorkers::OfferWeights(Running& running) {
  weights::SnapshotMaker maker(weights::SourceOf({}));
  weights::Snapshot snapshot =
      maker.Make({.epoch = options_.epoch, .version = running.version, .step = LearnerStep(0)},
                 TrainedSource(running.weights, running.shapes));
  *snapshot.manifest.mutable_probe() = running.probe;
  for (auto& [hash, chunk] : snapshot.chunks) {
    weights::Chunk same = published_(hash);
    chunk = content_.Put(hash, same != nullptr ? std::move(same) : std::move(chunk));
  }
  const auto manifest = std::make_shared<const std::string>(snapshot.manifest.SerializeAsString());
  const std::string hash = Sha256(*manifest);
  snapshot.chunks[hash] = content_.Put(hash, manifest);
  for (v1::Lease::Pictures& pictures : running.offered.leases) {
    pictures.mutable_weights()->set_sha256(hash);
    pictures.mutable_weights()->set_bytes(manifest->size());
  }
  running.cut = std::move(snapshot);
}

void EvaluationByWorkers::Run(Running& running) {
  OfferWeights(running);
  coordinator_.OfferPictures(std::move(running.offered.leases), running.drawn);
  const absl::StatusOr<std::vector<DrawnPictures::Frames>> pictures = running.drawn->Await();
  coordinator_.EndPictures();
  running.offered.conditioning.clear();
  running.result = pictures.ok() ? evaluation_.Judge(*pictures)
                                 : absl::StatusOr<EvaluationResult>(pictures.status());
  running.over.Notify();
}

absl::StatusOr<EvaluationResult> EvaluationByWorkers::Await(
    const std::function<absl::Status()>& stopped) {
  OXBOW_CHECK(running_ != nullptr) << "no evaluation was begun";
  coordinator_.HurryPictures();
  while (!running_->over.WaitForNotificationWithTimeout(kLook)) {
    if (!stopped().ok()) Cancel();
  }
  running_->thread.join();
  coordinator_.EndPictures();  // The hurry, too, where it came after the end.
  absl::StatusOr<EvaluationResult> result = std::move(running_->result);
  if (absl::IsCancelled(result.status())) cut_off_ = std::move(running_->cut);
  running_.reset();
  return result;
}

void EvaluationByWorkers::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  if (drawn_ != nullptr) drawn_->End(EvaluationCancelled());
}

}  // namespace oxbow::learner
