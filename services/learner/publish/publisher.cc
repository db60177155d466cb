// SPDX-License-Identifier: Apache-2.0
#include "services/learner/publish/publisher.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status_macros.h"

namespace oxbow::learner {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 24;

// Whether all of `flat` are finite: the least and the greatest value are NaN if any value is. In
// pieces where networks compute, since weights in host memory are many; one answer, so that a GPU
// is waited for once.
bool AreFinite(const at::Tensor& flat, at::Device device) {
  std::vector<at::Tensor> ends;
  for (const at::Tensor& piece : flat.detach().split(kPieceElements)) {
    const auto [least, greatest] = at::aminmax(piece.to(device));
    ends.insert(ends.end(), {least, greatest});
  }
  return ends.empty() || at::isfinite(at::stack(ends)).all().item<bool>();
}

}  // namespace

void PublicationGate::Evaluated(double reward) {
  last_ = reward;
  best_ = std::max(best_, reward);
}

bool PublicationGate::collapsed() const {
  return options_.reward_floor > 0 && best_ > 0 && last_.has_value() &&
         *last_ < options_.reward_floor * best_;
}

absl::StatusOr<bool> PublicationGate::Admit(LearnerStep committed) {
  if (!published_.has_value() || !collapsed()) {
    published_ = committed;
    return true;
  }
  if (committed.value <= published_->value + options_.staleness_max) return false;
  return absl::FailedPreconditionError(
      absl::StrCat("held-out reward collapsed and the weights of step ", published_->value,
                   " are too old to go on with: resume from an earlier checkpoint or lower "
                   "publish.reward_floor; step ",
                   committed.value, ", reward ", *last_, ", best ", best_));
}

Publisher::Publisher(Options options, model::Policy& policy, Coordinator& coordinator,
                     weights::WeightChannelService& channel, Metrics metrics,
                     std::function<void(const absl::Status&)> on_failure)
    : options_(std::move(options)),
      policy_(policy),
      coordinator_(coordinator),
      channel_(channel),
      metrics_(metrics),
      on_failure_(std::move(on_failure)),
      gate_(options_.gate),
      maker_(FrozenSource(policy.frozen(), options_.decoder), weights::kSnapshotChunkBytes,
             weights::SnapshotMaker::HashThreads(),
             PlacesOfFrozen(policy.frozen(), options_.decoder, options_.components)) {
  thread_ = std::thread([this] { Run(); });
}

Publisher::~Publisher() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

absl::Status Publisher::CheckFinite() const {
  if (AreFinite(policy_.parameters().flat(), policy_.device())) return absl::OkStatus();
  for (const auto& [name, tensor] : policy_.parameters().tensors()) {
    if (AreFinite(tensor.flatten(), policy_.device())) continue;
    return absl::DataLossError(absl::StrCat(
        "weights are not published: a value is not finite; resume from a checkpoint: ", name));
  }
  return absl::DataLossError("weights are not published: a value is not finite");
}

absl::StatusOr<bool> Publisher::Publish(PolicyVersion version, LearnerStep committed) {
  if (absl::Status finite = CheckFinite(); !finite.ok()) {
    metrics_.weights.Withheld("not_finite");
    return finite;
  }
  const absl::StatusOr<bool> admitted = gate_.Admit(committed);
  if (!admitted.ok() || !*admitted) {
    metrics_.weights.Withheld("reward_floor");
    OXBOW_LOG(Warning) << "weights withheld: held-out reward collapsed"
                       << Field("policy_version", version) << Field("step", committed)
                       << Field("best_reward", gate_.best_reward());
    return admitted;
  }
  WaitUntilAnnounced();  // Before the copy: two are never alive.
  Taken taken{.identity = {.epoch = options_.epoch, .version = version, .step = committed},
              .trained = parallel::HostCopy(policy_.sampler_parameters().flat()),
              .shapes = ShapesOf(policy_.sampler_parameters().tensors())};
  {
    absl::MutexLock lock(&mutex_);
    taken_ = std::move(taken);
    probe_.reset();
    busy_ = true;
  }
  absl::Cleanup no_probe = [this] {  // The network threw: nothing is announced.
    absl::MutexLock lock(&mutex_);
    probe_ = absl::CancelledError("no probe");
  };
  v1::SnapshotManifest::Probe probe = weights::RunProbe(
      policy_.sampler(), options_.probe_shape, options_.probe_seed, options_.probe_tolerance);
  std::move(no_probe).Cancel();
  absl::MutexLock lock(&mutex_);
  probe_ = std::move(probe);
  return true;
}

void Publisher::WaitUntilAnnounced() {
  absl::MutexLock lock(&mutex_);
  const auto free = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !busy_; };
  mutex_.Await(absl::Condition(&free));
}

std::optional<Publisher::Taken> Publisher::Next() {
  absl::MutexLock lock(&mutex_);
  const auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return taken_.has_value() || stopping_;
  };
  mutex_.Await(absl::Condition(&something));
  return std::exchange(taken_, std::nullopt);
}

absl::StatusOr<v1::SnapshotManifest::Probe> Publisher::AwaitProbe() {
  absl::MutexLock lock(&mutex_);
  const auto known = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return probe_.has_value(); };
  mutex_.Await(absl::Condition(&known));
  return *std::exchange(probe_, std::nullopt);
}

void Publisher::Run() {
  while (std::optional<Taken> taken = Next()) {
    const absl::Status status = Announce(*taken);
    taken.reset();
    {
      absl::MutexLock lock(&mutex_);
      busy_ = false;
    }
    if (!status.ok()) on_failure_(Annotate(status, "publish"));
  }
}

absl::Status Publisher::Announce(Taken& taken) {
  weights::Snapshot snapshot =
      maker_.Make(taken.identity, TrainedSource(taken.trained, taken.shapes));
  absl::StatusOr<v1::SnapshotManifest::Probe> probe = AwaitProbe();
  if (!probe.ok()) return absl::OkStatus();  // The caller of Publish knows why.
  *snapshot.manifest.mutable_probe() = *std::move(probe);
  // The coordinator first, or a quick worker would name a version that it does not know.
  coordinator_.published().Add(taken.identity.version, taken.identity.step);
  OXBOW_LOG(Debug) << "weights published" << Field("epoch", taken.identity.epoch)
                   << Field("policy_version", taken.identity.version)
                   << Field("sha256", HexOf(snapshot.manifest.sha256()));
  OXBOW_RETURN_IF_ERROR(channel_.Publish(snapshot));
  metrics_.learner.PublishedVersionIs(taken.identity.version.value);
  return absl::OkStatus();
}

}  // namespace oxbow::learner
