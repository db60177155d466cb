// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/lease_sampler.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/first_part.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "core/model/device_memory.h"
#include "core/model/image_sampler.h"
#include "rpc/channel.h"
#include "rpc/convert_torch.h"
#include "rpc/retry.h"

namespace oxbow::rollout {
namespace {

// The last limit of a stream that always moves.
constexpr absl::Duration kSendAtMost = absl::Hours(1);

constexpr absl::Duration kLinger = absl::Milliseconds(3);  // Wait for further leases.
constexpr absl::Duration kIdle = absl::Milliseconds(200);  // Between checks of the stop flag.

// A network whose every forward pass counts as progress of the sampler.
class Watched final : public model::VelocityModel {
 public:
  Watched(const model::VelocityModel& network, SamplerProgress& progress)
      : network_(network), progress_(progress) {}

 private:
  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const model::Conditioning& conditioning) const override {
    progress_.Advanced();
    return network_.Velocity(x, sigma, conditioning);
  }

  const model::VelocityModel& network_;
  SamplerProgress& progress_;
};

// Thrown through the sampler, which knows no status: the weights in use cannot be used.
struct NoNetwork : public std::runtime_error {
  explicit NoNetwork(const absl::Status& why) : std::runtime_error(why.ToString()), status(why) {}
  absl::Status status;
};

// Whether the sampler cannot go on after this error.
bool IsUnusable(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || IsDeviceError(status);
}

// The steps that the lease wants stochastic; all that may be stochastic if it names none.
absl::StatusOr<std::vector<bool>> WindowOf(const v1::Lease& lease,
                                           const flow::SamplingSpec& sampling) {
  if (lease.sde_steps().empty()) return sampling.sde;
  std::vector<bool> window(sampling.sde.size(), false);
  for (const uint32_t step : lease.sde_steps()) {
    if (step >= window.size() || !sampling.sde[step]) {
      return absl::InvalidArgumentError(
          absl::StrCat("the lease wants a stochastic step that the run has not: ", step));
    }
    window[step] = true;
  }
  return window;
}

absl::StatusOr<model::Conditioning> ConditioningFrom(const RunSpec& spec, const std::string& sent) {
  v1::Conditioning message;
  if (!message.ParseFromString(sent)) {
    return absl::InvalidArgumentError("the conditioning is no message");
  }
  return rpc::ConditioningFromProto(message, spec.architecture->conditioning());
}

// Takes the leases of held-out pictures out of a batch.
std::vector<ReadyLease> TakePictures(std::vector<ReadyLease>& batch) {
  const auto first = std::stable_partition(batch.begin(), batch.end(), [](const ReadyLease& ready) {
    return ready.pictures == nullptr;
  });
  std::vector<ReadyLease> pictures(std::make_move_iterator(first),
                                   std::make_move_iterator(batch.end()));
  batch.erase(first, batch.end());
  return pictures;
}

absl::StatusOr<GroupTask> TaskOf(ReadyLease& ready, const RunSpec& spec) {
  OXBOW_ASSIGN_OR_RETURN(model::Conditioning conditioning,
                         ConditioningFrom(spec, *ready.conditioning));
  OXBOW_ASSIGN_OR_RETURN(std::vector<bool> window, WindowOf(ready.lease, spec.sampling));
  return GroupTask{GroupId(ready.lease.group_id()), ready.lease.group_size(),
                   std::move(conditioning), std::move(ready.head), std::move(window)};
}

}  // namespace

PictureWork::PictureWork(const RunSpec& spec, v1::Coordinator::Stub& coordinator,
                         ConditioningSource& source,
                         std::function<weights::Chunk(const std::string&)> held, const Clock& clock)
    : spec_(spec),
      coordinator_(coordinator),
      source_(source),
      weights_(source, std::move(held)),
      guard_(clock) {}

absl::StatusOr<ReadyLease> PictureWork::Prepare(v1::Lease lease) {
  if (spec_.held_out.sigmas.empty()) {
    return absl::InvalidArgumentError("the learner has not said how held-out pictures are drawn");
  }
  auto pictures = std::make_shared<PicturesToDraw>();
  OXBOW_ASSIGN_OR_RETURN(pictures->weights, weights_.Get(lease.pictures()));
  for (const v1::Lease::Picture& picture : lease.pictures().pictures()) {
    OXBOW_ASSIGN_OR_RETURN(weights::Chunk sent,
                           source_.Get({.sha256 = picture.conditioning().sha256(),
                                        .bytes = picture.conditioning().bytes(),
                                        .xxh3 = ""},
                                       {}));
    pictures->conditioning.push_back(std::move(sent));
  }
  if (pictures->conditioning.empty()) return absl::InvalidArgumentError("a lease of no picture");
  return ReadyLease{
      .lease = std::move(lease), .head = std::nullopt, .pictures = std::move(pictures)};
}

// All pictures of a lease are one batch: on some devices a row's bits depend on the rows beside it.
absl::StatusOr<PictureWork::Pictures> PictureWork::DrawOne(const ReadyLease& ready,
                                                           SamplerModel& model,
                                                           SamplerProgress& progress) const {
  OXBOW_ASSIGN_OR_RETURN(const model::VelocityModel* network,
                         model.ForPictures(ready.pictures->weights));
  std::vector<model::ImageRequest> requests;
  const v1::Lease::Pictures& wanted = ready.lease.pictures();
  for (int i = 0; i < wanted.pictures_size(); ++i) {
    OXBOW_ASSIGN_OR_RETURN(
        const model::Conditioning conditioning,
        ConditioningFrom(spec_, *ready.pictures->conditioning[static_cast<size_t>(i)]));
    requests.push_back({.conditioning = model::MovedTo(conditioning, spec_.device),
                        .key = {.run_seed = spec_.run_seed,
                                .group = wanted.pictures(i).noise_group(),
                                .sample = wanted.pictures(i).noise_sample()}});
  }
  const c10::InferenceMode no_gradients;
  return model::SampleFrames(Watched(*network, progress), model.decoder(), spec_.held_out, requests,
                             spec_.held_out_shape, static_cast<int64_t>(requests.size()));
}

absl::StatusOr<PictureWork::Pictures> PictureWork::Draw(const ReadyLease& ready,
                                                        SamplerModel& model,
                                                        SamplerProgress& progress) const {
  try {
    return DrawOne(ready, model, progress);
  } catch (const std::exception& error) {
    return model::DeviceErrorOf(error).value_or(
        absl::InternalError(absl::StrCat("torch: ", error.what())));
  }
}

void PictureWork::Deliver(const v1::Lease& lease, const Pictures& pictures, LearnerLink& link) {
  const uint64_t id = lease.lease_id();
  const auto once = [&] { return DeliverOnce(lease, pictures); };
  const auto pause = [&](absl::Duration wait) { return link.Pause(id, wait); };
  link.Finish(id, OutcomeOf(rpc::RetryUntilAnswered({}, once, pause)));
}

absl::Status PictureWork::DeliverOnce(const v1::Lease& lease, const Pictures& pictures) {
  const auto context = rpc::ContextWithDeadline(kSendAtMost);
  rpc::SilenceGuard::Watched watched(guard_, *context, spec_.rpc_timeout);
  const auto stream = coordinator_.Deliver(context.get());
  v1::DeliverRequest request;
  request.set_epoch(spec_.epoch.value);
  request.set_worker_id(spec_.worker_id);
  request.set_lease_id(lease.lease_id());
  bool open = true;
  for (size_t i = 0; open && i < pictures.size(); ++i) {
    for (v1::PicturePiece& piece : rpc::InPieces(lease.pictures().evaluation(),
                                                 lease.pictures().first_place() + i, pictures[i])) {
      *request.mutable_piece() = std::move(piece);
      if (!(open = stream->Write(request))) break;
      watched.SignOfLife();
    }
  }
  stream->WritesDone();
  v1::DeliverResponse response;
  const bool answered = stream->Read(&response);
  const absl::Status status = watched.Ended(stream->Finish());
  if (answered) return absl::OkStatus();  // Also that nobody wanted them.
  if (!status.ok()) return status;
  return absl::UnavailableError("the learner closed the stream without an answer");
}

void LeaseSampler::Run() {
  pthread_setname_np(pthread_self(), "sampler");
  while (!parts_.link.stopping()) {
    parts_.link.progress().Advanced();
    if (const absl::Status unusable = ApplyNewest(); !unusable.ok()) {
      parts_.link.GiveUp(unusable, {});
    }
    const absl::Duration idle_since = parts_.clock.Now();
    std::vector<ReadyLease> batch = parts_.link.leases().TakeBatch(
        parts_.model.ready() ? std::optional(parts_.model.version()) : std::nullopt, kLinger,
        kIdle);
    parts_.metrics.WaitedForLeases(absl::ToDoubleSeconds(parts_.clock.Now() - idle_since));
    std::vector<ReadyLease> pictures = TakePictures(batch);
    if (!batch.empty()) SampleBatch(std::move(batch));
    if (!pictures.empty()) DrawPictures(pictures);
  }
}

// kResourceExhausted if they do not fit, a DeviceError of the device: nothing would be
// leased to a worker without weights, or soon to one with old ones. Other errors are told the
// learner, and the weights in use stay.
absl::Status LeaseSampler::ApplyNewest() {
  std::optional<weights::VerifiedSnapshot> snapshot = parts_.follower.TakeNewest();
  if (!snapshot.has_value()) return absl::OkStatus();
  const absl::Duration start = parts_.clock.Now();
  const PolicyVersion version(snapshot->manifest.policy_version());
  const std::string sha256 = HexOf(snapshot->manifest.sha256());
  v1::ReportAppliedRequest report;
  report.set_policy_version(version.value);
  report.set_fetch_seconds(absl::ToDoubleSeconds(snapshot->fetch_time));
  report.set_fetched_bytes(snapshot->fetched_bytes);
  weights::ProbeComparison comparison;
  const absl::Status status = parts_.model.Apply(*std::move(snapshot), comparison);
  if (absl::IsUnavailable(status)) parts_.follower.FetchAgain();
  if (absl::IsResourceExhausted(status)) {
    return absl::ResourceExhaustedError(absl::StrCat(status.message(), ": the weights do not fit"));
  }
  if (IsUnusable(status)) return status;
  const absl::Duration took = parts_.clock.Now() - start;
  report.set_apply_seconds(absl::ToDoubleSeconds(took));
  report.set_probe_difference_max(comparison.difference_max);
  report.set_probe_bits_equal(comparison.bits_equal);
  if (status.ok()) {
    OXBOW_LOG(Debug) << "weights applied" << Field("epoch", parts_.spec.epoch)
                     << Field("policy_version", version) << Field("sha256", sha256);
    parts_.follow_metrics.Applied(version, took);
    parts_.metrics.WeightsApplied(version.value, absl::ToDoubleSeconds(took));
    parts_.pictures.WeightsApplied();
    parts_.link.Applied(version);
  } else {
    OXBOW_LOG(Error) << "weights refused" << Field("version", version)
                     << Field("reason", status.ToString());
    parts_.follow_metrics.Refused();
    report.set_failure(
        FirstPart(status.ToString(), kReasonBytesMax));  // The weights in use stay in use.
  }
  parts_.link.OfferCredit();
  // Not on the torch thread: a slow answer must not delay sampling.
  parts_.tasks.Push(
      [this, report = std::move(report)] { parts_.follower.Report(report).IgnoreError(); });
  return absl::OkStatus();
}

// With weights that change in flight, that of the newest ones. Throws NoNetwork.
const model::VelocityModel& LeaseSampler::NetworkOfNextStep() {
  absl::Status status = parts_.spec.in_flight_updates ? ApplyNewest() : absl::OkStatus();
  if (status.ok() && !parts_.model.ready()) {
    status = absl::InternalError("the weights in use are lost");
  }
  if (!status.ok()) throw NoNetwork(status);
  const absl::StatusOr<const model::VelocityModel*> network = parts_.model.ForGroups();
  if (!network.ok()) throw NoNetwork(network.status());
  return **network;
}

void LeaseSampler::SampleBatch(std::vector<ReadyLease> batch) {
  LearnerLink& link = parts_.link;
  const absl::Duration start = parts_.clock.Now();
  std::vector<GroupTask> tasks;
  std::vector<v1::Lease> leases;
  for (ReadyLease& ready : batch) {
    absl::StatusOr<GroupTask> task = TaskOf(ready, parts_.spec);
    if (!task.ok()) {
      link.Finish(ready.lease.lease_id(), {.failure = task.status().ToString()});
      continue;
    }
    tasks.push_back(*std::move(task));
    leases.push_back(std::move(ready.lease));
  }
  if (tasks.empty()) return;
  const auto fail = [&](const std::string& why) {
    for (const v1::Lease& lease : leases) link.Finish(lease.lease_id(), {.failure = why});
  };
  std::vector<SampledGroup> groups;
  try {
    groups = Sample(tasks);
  } catch (const NoNetwork& error) {
    return IsUnusable(error.status) ? link.GiveUp(error.status, leases) : fail(error.what());
  } catch (const c10::OutOfMemoryError& error) {
    const std::string text = model::MemoryText(error);
    return link.GiveUp(
        absl::ResourceExhaustedError(absl::StrCat(text, ": not even one row at a time fits")),
        leases);
  } catch (const std::exception& error) {
    if (const auto host = model::HostMemoryText(error)) {
      return link.GiveUp(absl::ResourceExhaustedError(*host), leases);
    }
    if (const auto device = model::DeviceErrorOf(error)) return link.GiveUp(*device, leases);
    return fail(absl::StrCat("torch: ", error.what()));
  }
  for (const v1::Lease& lease : leases) link.leases().Sampled(lease.lease_id());
  const double seconds = absl::ToDoubleSeconds(parts_.clock.Now() - start);
  uint64_t samples = 0;
  for (const SampledGroup& group : groups) samples += group.trajectories.size();
  for (size_t i = 0; i < groups.size(); ++i) {
    // Shared, because a task can be copied.
    const auto sampled = std::make_shared<SampledGroup>(std::move(groups[i]));
    parts_.tasks.Push([this, lease = std::move(leases[i]), sampled, seconds] {
      parts_.delivery.Deliver(lease, std::move(*sampled), seconds);
    });
  }
  parts_.metrics.BatchSampled(samples, seconds);
}

// Throws what torch throws, and NoNetwork.
std::vector<SampledGroup> LeaseSampler::Sample(std::vector<GroupTask>& tasks) {
  for (GroupTask& task : tasks) {
    task.conditioning = model::MovedTo(task.conditioning, parts_.spec.device);
  }
  std::optional<Watched> watched;
  const auto network = [&] {
    watched.emplace(NetworkOfNextStep(), parts_.link.progress());
    return VersionedNetwork{*watched, parts_.model.version()};
  };
  return SampleGroups(parts_.spec, network, parts_.model.decoder(), tasks);
}

void LeaseSampler::DrawPictures(const std::vector<ReadyLease>& batch) {
  LearnerLink& link = parts_.link;
  for (const auto& ready : batch) {
    const v1::Lease& lease = ready.lease;
    auto drawn = parts_.pictures.Draw(ready, parts_.model, link.progress());
    if (IsDeviceError(drawn.status())) {
      link.GiveUp(drawn.status(), {lease});
    } else if (!drawn.ok()) {
      link.Finish(lease.lease_id(), {.failure = drawn.status().ToString()});
    } else {
      link.leases().Sampled(lease.lease_id());
      auto pictures = std::make_shared<const PictureWork::Pictures>(*std::move(drawn));
      parts_.tasks.Push(
          [this, lease, pictures] { parts_.pictures.Deliver(lease, *pictures, parts_.link); });
    }
  }
}

}  // namespace oxbow::rollout
