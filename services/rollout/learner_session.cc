// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/learner_session.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/first_part.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "core/lease/lease_times.h"
#include "core/model/device_memory.h"
#include "io/tensor_torch.h"
#include "rpc/convert.h"
#include "rpc/convert_torch.h"
#include "rpc/retry.h"
#include "rpc/tls.h"
#include "services/rollout/local_weights.h"

namespace oxbow::rollout {
namespace {

constexpr int kIoThreads = 4;
constexpr int kPreparationThreads = 8;  // They mostly wait: prompts asked for at once share a call.
constexpr uint64_t kOwnContentBytes = uint64_t{256} << 20;
constexpr absl::Duration kLinger = absl::Milliseconds(3);  // Wait for further leases.
constexpr absl::Duration kGoodbyeWait = absl::Seconds(2);
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

// Whether a service that the worker asked was away, busy or silent, which is no failure of the
// worker.
bool IsElsewhere(const absl::Status& status) {
  const rpc::Failure failure = rpc::FailureOf(status);
  return failure != rpc::Failure::kNone && failure != rpc::Failure::kAnswer;
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

}  // namespace

LearnerSession::LearnerSession(RunSpec spec, std::string worker_id,
                               v1::Coordinator::Stub& coordinator,
                               std::unique_ptr<reward::RewardClient> rewards,
                               RolloutMetrics& metrics, weights::FollowMetrics& follow_metrics,
                               const Clock& clock, weights::WeightRelay* relay,
                               weights::JoinBroadcastGroup join_broadcast_group,
                               const LocalWeights* local_weights)
    : spec_(std::move(spec)),
      worker_id_(std::move(worker_id)),
      rewards_(std::move(rewards)),
      metrics_(metrics),
      follow_metrics_(follow_metrics),
      clock_(clock),
      stream_(coordinator, spec_.epoch, worker_id_),
      leases_(spec_.groups_in_flight),
      progress_(clock_, lease::StandstillMax(spec_.lease_time)),
      own_content_(kOwnContentBytes),
      conditioning_({.learner = spec_.weight_endpoints.front(),
                     .epoch = spec_.epoch,
                     .worker_id = worker_id_,
                     .learner_silence = spec_.rpc_timeout},
                    relay == nullptr ? own_content_ : relay->content(), metrics_, follow_metrics_,
                    clock_),
      model_(spec_, [this](const std::string& sha256, const weights::Placed& placed) {
        follower_->Place(sha256, placed);
      }) {
  for (const std::string& endpoint : spec_.buffer_endpoints) {
    buffers_.push_back(std::make_unique<buffer::ReplayClient>(endpoint, spec_.rpc_timeout));
  }
  for (const std::string& endpoint : spec_.sink_endpoints) {
    senders_.push_back(std::make_unique<ExperienceSender>(endpoint, spec_.rpc_timeout));
  }
  weights::WeightFollower::Options follow;
  follow.endpoints = spec_.weight_endpoints;
  follow.epoch = spec_.epoch;
  follow.worker_id = worker_id_;
  follow.timeout = spec_.rpc_timeout;
  // Members with certificates need not trust each other's bytes; in plaintext nobody knows anybody.
  if (rpc::UsesTls()) follow.chunk_check = weights::ChunkCheck::kSha256;
  follow.relay = relay;
  if (local_weights != nullptr) {
    follow.local = [local_weights](const v1::SnapshotManifest& manifest,
                                   weights::Download& download) {
      local_weights->Offer(manifest, download);
    };
  }
  follow.join_broadcast_group = std::move(join_broadcast_group);
  follow.broadcast_device = spec_.device.is_cuda() ? "cuda" : "cpu";
  follower_ = std::make_unique<weights::WeightFollower>(std::move(follow), follow_metrics_, clock_,
                                                        [this] { leases_.Wake(); });
  pictures_ = std::make_unique<PictureWork>(
      spec_, worker_id_, coordinator, conditioning_,
      [this](const std::string& sha256) { return follower_->Held(sha256); }, clock_);
  threads_.emplace_back([this] { AwaitRewards(); });
  threads_.emplace_back([this] { SampleLoop(); });
  threads_.emplace_back([this] { RenewLoop(); });
  const auto work_on = [this](BoundedQueue<std::function<void()>>& queue, int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([&queue] {
        while (auto task = queue.Pop()) (*task)();
      });
    }
  };
  work_on(tasks_, kIoThreads);
  work_on(preparations_, kPreparationThreads);
}

LearnerSession::~LearnerSession() {
  stopping_.Notify();
  rewards_->Cancel();
  stream_.Cancel();
  for (const auto& sender : senders_) sender->Cancel();
  pictures_->Cancel();
  leases_.Wake();
  conditioning_.Cancel();
  tasks_.Close();
  preparations_.Close();
  follower_->Stop();
  // These threads use the follower until they end, so it is destroyed after them. Its own threads
  // only wake the board.
  for (std::thread& thread : threads_) thread.join();
}

absl::Status LearnerSession::Serve() {
  stream_.Open();
  OfferCredit();
  v1::WorkResponse message;
  while (stream_.Read(message)) OnMessage(message);
  return stream_.Close();
}

void LearnerSession::Leave(absl::Duration timeout) {
  leases_.Drain();
  rewards_->GiveUpWaiting();
  OfferCredit();
  if (!leases_.AwaitEmpty(timeout)) {
    OXBOW_LOG(Warning) << "leaving with unfinished leases"
                       << Field("leases", leases_.held().size());
  }
  stream_.Goodbye();
  // The learner ends the stream after it has read the goodbye; an earlier cancel could overtake the
  // goodbye.
  stream_.AwaitEnd(kGoodbyeWait);
  stream_.Cancel();
}

void LearnerSession::OnMessage(const v1::WorkResponse& message) {
  switch (message.message_case()) {
    case v1::WorkResponse::kLease:
      TakeLease(message.lease());
      break;
    case v1::WorkResponse::kCancel:
      leases_.Cancel(message.cancel().lease_id());
      OfferCredit();
      break;
    case v1::WorkResponse::kRenewed:
      DropExpired(message.renewed());
      break;
    case v1::WorkResponse::kDrain:
      OXBOW_LOG(Info) << "the learner drains: no more leases";
      leases_.Drain();
      if (!message.drain().run_complete() || run_complete()) break;
      run_complete_.Notify();
      stream_.Goodbye();  // The learner ends the stream, and with it Serve.
      break;
    default:
      break;
  }
}

// Untaken leases are never sampled; the learner refuses groups of taken ones when they arrive.
void LearnerSession::DropExpired(const v1::WorkResponse::Renewed& renewed) {
  const std::vector<uint64_t> expired = stream_.Expired(renewed);
  if (expired.empty()) return;
  for (const uint64_t lease : expired) leases_.Cancel(lease);
  metrics_.GroupsInFlight(leases_.held().size());
  OfferCredit();
}

Trace LearnerSession::TraceOf(const v1::Lease& lease) const {
  return TraceOfGroup(spec_.run_id, GroupId(lease.group_id()), LeaseId(lease.lease_id()));
}

void LearnerSession::TakeLease(const v1::Lease& lease) {
  const TraceScope scope(TraceOf(lease));
  if (!leases_.Arrived(lease)) return;
  OXBOW_LOG(Debug) << "lease taken" << Field("group", lease.group_id())
                   << Field("lease", lease.lease_id()) << Field("step", lease.learner_step())
                   << Field("attempt", lease.attempt()) << Field("worker", worker_id_);
  PrepareLease(lease);
}

void LearnerSession::PrepareLease(v1::Lease lease) {
  metrics_.GroupsInFlight(leases_.held().size());
  if (!lease.has_head() && !lease.has_pictures()) {
    if (weights::Chunk held = conditioning_.Held(lease); held != nullptr) {
      return leases_.Ready({std::move(lease), std::nullopt, std::move(held)});
    }
  }
  preparations_.Push([this, lease = std::move(lease)]() mutable {
    const TraceScope scope(TraceOf(lease));
    const uint64_t id = lease.lease_id();
    bool no_head = false;
    absl::StatusOr<ReadyLease> ready = Prepared(std::move(lease), no_head);
    if (ready.ok()) {
      leases_.Ready(*std::move(ready));
    } else {
      Finish(id, {.failure = ready.status().ToString(),
                  .elsewhere = no_head || IsElsewhere(ready.status())});
    }
  });
}

absl::StatusOr<ReadyLease> LearnerSession::Prepared(v1::Lease lease, bool& no_head) {
  if (lease.has_pictures()) return pictures_->Prepare(std::move(lease));
  ReadyLease ready{.head = std::nullopt, .conditioning = conditioning_.Held(lease)};
  if (ready.conditioning == nullptr) {
    OXBOW_ASSIGN_OR_RETURN(ready.conditioning, conditioning_.Fetch(lease));
  }
  if (lease.has_head()) {
    absl::StatusOr<rl::Trajectory> head = ReadHead(lease);
    no_head = !head.ok();
    if (!head.ok()) return Annotate(head.status(), "cannot read the replayed head");
    ready.head = *std::move(head);
  }
  ready.lease = std::move(lease);
  return ready;
}

absl::StatusOr<rl::Trajectory> LearnerSession::ReadHead(const v1::Lease& lease) {
  const v1::Lease::Head& head = lease.head();
  if (head.buffer_shard() >= buffers_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("no such buffer shard: ", head.buffer_shard()));
  }
  OXBOW_ASSIGN_OR_RETURN(
      v1::ReplayEntry entry,
      buffers_[head.buffer_shard()]->Read(EntryId(head.entry_id()), head.kept_steps(), 1));
  v1::Tensor& latents = *entry.mutable_trajectory()->mutable_latents();
  latents.clear_shape();
  for (const int64_t size : spec_.latent_shape) latents.add_shape(size);
  OXBOW_ASSIGN_OR_RETURN(const io::TensorBytes bytes, rpc::TensorFromProto(latents));
  OXBOW_ASSIGN_OR_RETURN(const at::Tensor latent, io::ToTorch(bytes));
  rl::Trajectory sample;
  sample.latents = latent.to(at::kFloat).unsqueeze(0);
  sample.first_latent = static_cast<int>(head.kept_steps());
  sample.replayed = true;
  sample.entry_id = EntryId(head.entry_id());
  sample.kept_steps = static_cast<int>(head.kept_steps());
  sample.stored_reward = head.stored_reward();
  return sample;
}

void LearnerSession::SampleLoop() {
  pthread_setname_np(pthread_self(), "sampler");
  while (!stopping_.HasBeenNotified()) {
    progress_.Advanced();
    if (const absl::Status unusable = ApplyNewest(); !unusable.ok()) {
      FailUnusable(unusable, {});
    }
    const absl::Duration idle_since = clock_.Now();
    std::vector<ReadyLease> batch = leases_.TakeBatch(
        model_.ready() ? std::optional(model_.version()) : std::nullopt, kLinger, kIdle);
    metrics_.WaitedForLeases(absl::ToDoubleSeconds(clock_.Now() - idle_since));
    std::vector<ReadyLease> pictures = TakePictures(batch);
    if (!batch.empty()) SampleBatch(std::move(batch));
    if (!pictures.empty()) DrawPictures(pictures);
  }
}

// kResourceExhausted if they do not fit, a DeviceError of the device: nothing would be
// leased to a worker without weights, or soon to one with old ones. Other errors are told the
// learner, and the weights in use stay.
absl::Status LearnerSession::ApplyNewest() {
  std::optional<weights::VerifiedSnapshot> snapshot = follower_->TakeNewest();
  if (!snapshot.has_value()) return absl::OkStatus();
  const absl::Duration start = clock_.Now();
  const PolicyVersion version(snapshot->manifest.policy_version());
  const std::string sha256 = HexOf(snapshot->manifest.sha256());
  v1::ReportAppliedRequest report;
  report.set_policy_version(version.value);
  report.set_fetch_seconds(absl::ToDoubleSeconds(snapshot->fetch_time));
  report.set_fetched_bytes(snapshot->fetched_bytes);
  weights::ProbeComparison comparison;
  const absl::Status status = model_.Apply(*std::move(snapshot), comparison);
  if (absl::IsUnavailable(status)) follower_->FetchAgain();
  if (absl::IsResourceExhausted(status)) {
    return absl::ResourceExhaustedError(absl::StrCat(status.message(), ": the weights do not fit"));
  }
  if (IsUnusable(status)) return status;
  const absl::Duration took = clock_.Now() - start;
  report.set_apply_seconds(absl::ToDoubleSeconds(took));
  report.set_probe_difference_max(comparison.difference_max);
  report.set_probe_bits_equal(comparison.bits_equal);
  if (status.ok()) {
    OXBOW_LOG(Debug) << "weights applied" << Field("epoch", spec_.epoch)
                     << Field("policy_version", version) << Field("sha256", sha256);
    follow_metrics_.Applied(version, took);
    metrics_.WeightsApplied(version.value, absl::ToDoubleSeconds(took));
    pictures_->WeightsApplied();
    absl::MutexLock lock(&credit_mutex_);
    applied_ = version;
  } else {
    OXBOW_LOG(Error) << "weights refused" << Field("version", version)
                     << Field("reason", status.ToString());
    follow_metrics_.Refused();
    report.set_failure(
        FirstPart(status.ToString(), kReasonBytesMax));  // The weights in use stay in use.
  }
  OfferCredit();
  // Not on the torch thread: a slow answer must not delay sampling.
  tasks_.Push([this, report = std::move(report)] { follower_->Report(report).IgnoreError(); });
  return absl::OkStatus();
}

// With weights that change in flight, that of the newest ones. Throws NoNetwork.
const model::VelocityModel& LearnerSession::NetworkOfNextStep() {
  absl::Status status = spec_.in_flight_updates ? ApplyNewest() : absl::OkStatus();
  if (status.ok() && !model_.ready()) status = absl::InternalError("the weights in use are lost");
  if (!status.ok()) throw NoNetwork(status);
  const absl::StatusOr<const model::VelocityModel*> network = model_.ForGroups();
  if (!network.ok()) throw NoNetwork(network.status());
  return **network;
}

void LearnerSession::SampleBatch(std::vector<ReadyLease> batch) {
  const absl::Duration start = clock_.Now();
  std::vector<GroupTask> tasks;
  std::vector<v1::Lease> leases;
  for (ReadyLease& ready : batch) {
    v1::Conditioning sent;
    absl::StatusOr<model::Conditioning> conditioning =
        sent.ParseFromString(*ready.conditioning)
            ? rpc::ConditioningFromProto(sent, spec_.architecture->conditioning())
            : absl::InvalidArgumentError("the conditioning is no message");
    if (!conditioning.ok()) {
      Finish(ready.lease.lease_id(), {.failure = conditioning.status().ToString()});
      continue;
    }
    absl::StatusOr<std::vector<bool>> window = WindowOf(ready.lease, spec_.sampling);
    if (!window.ok()) {
      Finish(ready.lease.lease_id(), {.failure = window.status().ToString()});
      continue;
    }
    tasks.push_back({GroupId(ready.lease.group_id()), ready.lease.group_size(),
                     *std::move(conditioning), std::move(ready.head), *std::move(window)});
    leases.push_back(std::move(ready.lease));
  }
  if (tasks.empty()) return;
  std::vector<SampledGroup> groups;
  try {
    for (GroupTask& task : tasks) {
      task.conditioning = model::MovedTo(task.conditioning, spec_.device);
    }
    std::optional<Watched> watched;
    groups = SampleGroups(
        spec_,
        [&] {
          watched.emplace(NetworkOfNextStep(), progress_);
          return VersionedNetwork{*watched, model_.version()};
        },
        model_.decoder(), tasks);
  } catch (const NoNetwork& error) {
    if (IsUnusable(error.status)) return FailUnusable(error.status, leases);
    for (const v1::Lease& lease : leases) Finish(lease.lease_id(), {.failure = error.what()});
    return;
  } catch (const c10::OutOfMemoryError& error) {
    return FailFull(absl::StrCat(model::MemoryText(error), ": not even one row at a time fits"),
                    leases);
  } catch (const std::exception& error) {
    if (const auto host = model::HostMemoryText(error)) return FailFull(*host, leases);
    if (const auto device = model::DeviceErrorOf(error)) return FailUnusable(*device, leases);
    for (const v1::Lease& lease : leases)
      Finish(lease.lease_id(), {.failure = absl::StrCat("torch: ", error.what())});
    return;
  }
  for (const v1::Lease& lease : leases) leases_.Sampled(lease.lease_id());
  const double seconds = absl::ToDoubleSeconds(clock_.Now() - start);
  uint64_t samples = 0;
  for (const SampledGroup& group : groups) samples += group.trajectories.size();
  for (size_t i = 0; i < groups.size(); ++i) {
    // Shared, because a task can be copied.
    const auto sampled = std::make_shared<SampledGroup>(std::move(groups[i]));
    tasks_.Push([this, lease = std::move(leases[i]), sampled, seconds] {
      Deliver(lease, std::move(*sampled), seconds);
    });
  }
  metrics_.BatchSampled(samples, seconds);
}

void LearnerSession::DrawPictures(const std::vector<ReadyLease>& batch) {
  const PictureWork::Watch watch = [this](const model::VelocityModel& network) {
    return std::make_unique<Watched>(network, progress_);
  };
  pictures_->Draw(batch, model_, watch, [&](const v1::Lease& lease, PictureWork::Drawn drawn) {
    if (IsDeviceError(drawn.status())) return FailUnusable(drawn.status(), {lease});
    if (!drawn.ok()) return Finish(lease.lease_id(), {.failure = drawn.status().ToString()});
    leases_.Sampled(lease.lease_id());
    auto pictures = std::make_shared<const PictureWork::Pictures>(*std::move(drawn));
    tasks_.Push([this, lease, pictures] { DeliverPictures(lease, *pictures); });
  });
}

void LearnerSession::DeliverPictures(const v1::Lease& lease,
                                     const PictureWork::Pictures& pictures) {
  const absl::StatusOr<bool> taken = pictures_->Deliver(
      lease, pictures, [&](absl::Duration wait) { return Pause(lease.lease_id(), wait); });
  Finish(lease.lease_id(), {.failure = taken.ok() ? "" : taken.status().ToString(),
                            .elsewhere = IsElsewhere(taken.status())});
}

void LearnerSession::Finish(uint64_t lease_id, const WorkStream::Outcome& outcome) {
  stream_.Finished(lease_id, outcome);
  leases_.Done(lease_id);
  metrics_.GroupsInFlight(leases_.held().size());
  OfferCredit();
}

// A worker that can have nothing scored asks for nothing; renewals say what it waits for.
void LearnerSession::AwaitRewards() {
  const absl::Status status = rewards_->AwaitDescription();
  if (absl::IsCancelled(status)) return;
  if (!status.ok()) return Fail(status);
  {
    absl::MutexLock lock(&credit_mutex_);
    has_rewards_ = true;
  }
  OfferCredit();
}

void LearnerSession::GiveBack(const std::string& why, const std::vector<v1::Lease>& leases) {
  leases_.Drain();
  for (const v1::Lease& lease : leases) Finish(lease.lease_id(), {.failure = why});
  stream_.Goodbye();
  stream_.AwaitEnd(kGoodbyeWait);  // An earlier end could overtake what was said.
}

void LearnerSession::FailUnusable(const absl::Status& why, const std::vector<v1::Lease>& leases) {
  if (absl::IsResourceExhausted(why)) return FailFull(std::string(why.message()), leases);
  GiveBack(std::string(why.message()), leases);
  Fail(why);
}

void LearnerSession::FailFull(const std::string& why, const std::vector<v1::Lease>& leases) {
  const std::string text = absl::StrCat("out of memory: ", why);
  GiveBack(text, leases);
  Fail(OutOfMemoryError(absl::StrCat(text,
                                     ": model.compute_dtype: bf16 needs less, or give this worker "
                                     "a device with more memory")));
}

void LearnerSession::Fail(const absl::Status& why) {
  {
    absl::MutexLock lock(&credit_mutex_);
    failure_.Update(why);
  }
  stream_.Cancel();
}

absl::Status LearnerSession::failure() const {
  absl::MutexLock lock(&credit_mutex_);
  return failure_;
}

void LearnerSession::OfferCredit() {
  absl::MutexLock lock(&credit_mutex_);
  if (!applied_.has_value() || !has_rewards_) return;
  stream_.Credit(*applied_, progress_.Stalled() ? 0 : leases_.free_places());
}

// Says when the sampler comes to a standstill and when it goes on; the learner is told what the
// worker can take then.
bool LearnerSession::LookAtSampler(bool stalled) {
  if (progress_.Stalled() == stalled) return stalled;
  if (!stalled) {
    OXBOW_LOG(Error) << "the sampler stands still: its leases are given up (does the GPU hang?)"
                     << Field("worker", worker_id_) << Field("leases", leases_.held().size());
  } else {
    OXBOW_LOG(Info) << "the sampler goes on" << Field("worker", worker_id_);
  }
  OfferCredit();
  return !stalled;
}

void LearnerSession::RenewLoop() {
  absl::Duration renewed = clock_.Now();
  bool stalled = false;
  bool waited = false;
  while (true) {
    const absl::Duration pause = lease::RenewalInterval(leases_.lease_time_min());
    if (stopping_.WaitForNotificationWithTimeout(pause == absl::ZeroDuration() ? kIdle : pause))
      return;
    stalled = LookAtSampler(stalled);
    const std::vector<uint64_t> held = stalled ? leases_.sampled() : leases_.held();
    const std::string waiting = rewards_->waiting();
    const bool news = waited != !waiting.empty();
    // A worker without leases sends a heartbeat equally often, and says at once that it waits.
    if (held.empty() && !news && clock_.Now() - renewed < lease::RenewalInterval(spec_.lease_time))
      continue;
    stream_.Renew(held, waiting);
    waited = !waiting.empty();
    renewed = clock_.Now();
  }
}

}  // namespace oxbow::rollout
