// SPDX-License-Identifier: Apache-2.0
#include "services/weights/weight_follower.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rpc/channel.h"
#include "rpc/retry.h"
#include "rpc/status.h"
#include "services/weights/broadcast_round.h"
#include "services/weights/manifest_delta.h"

namespace oxbow::weights {
namespace {

// A watch lasts until one side ends it. The deadline is for a connection that broke unnoticed.
constexpr absl::Duration kWatchAtMost = absl::Hours(1);
constexpr absl::Duration kReportAtMost = absl::Seconds(5);

// Whether the snapshot itself is broken. Other errors may pass.
bool IsRefusal(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsInvalidArgument(status) ||
         absl::IsResourceExhausted(status);
}

}  // namespace

BroadcastReceiver::BroadcastReceiver(JoinBroadcastGroup join, uint64_t bytes_max,
                                     FollowMetrics& metrics)
    : join_(std::move(join)), bytes_max_(bytes_max), metrics_(metrics) {
  thread_ = std::thread([this] { Run(); });
}

BroadcastReceiver::~BroadcastReceiver() {
  Stop();
  thread_.join();
}

void BroadcastReceiver::Stop() {
  std::shared_ptr<BroadcastGroup> broadcast_group;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    cancel_joining_ = true;
    broadcast_group = seat_.bytes;
  }
  if (broadcast_group != nullptr) broadcast_group->Abort("the worker leaves");
}

void BroadcastReceiver::Invite(const v1::WatchResponse::Invitation& invitation) {
  absl::MutexLock lock(&mutex_);
  invitation_ = invitation;
  if (joining_) cancel_joining_ = true;
}

std::optional<v1::WatchResponse::Invitation> BroadcastReceiver::NextInvitation() {
  std::shared_ptr<BroadcastGroup> before;
  absl::MutexLock lock(&mutex_);
  const auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || (invitation_.has_value() && !in_round_);
  };
  mutex_.Await(absl::Condition(&something));
  if (stopping_) return std::nullopt;
  before = std::exchange(seat_, {}).bytes;
  joining_ = true;
  cancel_joining_ = false;
  return std::exchange(invitation_, std::nullopt);
}

void BroadcastReceiver::Run() {
  while (const auto invitation = NextInvitation()) Follow(*invitation);
}

void BroadcastReceiver::Follow(const v1::WatchResponse::Invitation& invitation) {
  BroadcastPlace place{.broadcast_group = invitation.broadcast_group(),
                       .rank = static_cast<int>(invitation.rank()),
                       .size = static_cast<int>(invitation.size()),
                       .device = invitation.device(),
                       .address = invitation.address(),
                       .cancelled = &cancel_joining_};
  absl::StatusOr<std::unique_ptr<BroadcastGroup>> joined =
      absl::InvalidArgumentError("no such place");
  if (place.rank > 0 && place.rank < place.size) joined = join_(place);
  absl::MutexLock lock(&mutex_);
  joining_ = false;
  if (joined.ok()) {
    seat_ = {.broadcast_group = place.broadcast_group, .rounds = 0, .bytes = *std::move(joined)};
    if (stopping_) seat_.bytes->Abort("the worker leaves");
  } else if (!absl::IsCancelled(joined.status())) {
    OXBOW_LOG(Warning) << "not in the broadcast group that broadcasts weights"
                       << Field("broadcast group", place.broadcast_group)
                       << Field("status", joined.status());
  }
}

std::shared_ptr<BroadcastGroup> BroadcastReceiver::BeginRound(
    const v1::WatchResponse::Rounds& rounds) {
  absl::MutexLock lock(&mutex_);
  // The learner is in the broadcast group before it begins a round; a member may need a moment
  // more.
  const auto settled = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || (!joining_ && !invitation_.has_value());
  };
  mutex_.Await(absl::Condition(&settled));
  const bool mine = seat_.bytes != nullptr && seat_.broadcast_group == rounds.broadcast_group();
  if (stopping_ || !mine || seat_.rounds >= rounds.begun()) return nullptr;
  in_round_ = true;
  ++seat_.rounds;
  return seat_.bytes;
}

void BroadcastReceiver::TakePart(const v1::WatchResponse::Rounds& rounds, Download& download) {
  while (const std::shared_ptr<BroadcastGroup> broadcast_group = BeginRound(rounds)) {
    ReceivedRound received;
    const absl::Status status = ReceiveRound(*broadcast_group, bytes_max_, download, received);
    download.Settle();
    metrics_.Received(received.bytes, Source::kBroadcast);
    for (size_t i = 0; i < received.corrupt; ++i) metrics_.ChunkCorrupt();
    absl::MutexLock lock(&mutex_);
    in_round_ = false;
    if (status.ok()) continue;
    seat_ = {};
    if (stopping_) return;
    OXBOW_LOG(Warning) << "broadcast of weights broke off, asking other workers for the rest"
                       << Field("broadcast group", rounds.broadcast_group())
                       << Field("status", status);
  }
}

absl::StatusOr<io::TensorBytes> VerifiedSnapshot::Tensor(const v1::TensorManifest& entry) const {
  ChunksByHash of_tensor;
  for (const std::string& hash : entry.chunk_sha256()) {
    Chunk& chunk = of_tensor[hash];
    if (chunk != nullptr) continue;
    const auto in_memory = chunks.find(hash);
    if (in_memory != chunks.end()) {
      chunk = in_memory->second;
    } else {
      absl::StatusOr<Chunk> read = placed.at(hash)->Read();
      if (!read.ok()) return absl::UnavailableError(read.status().message());
      chunk = *std::move(read);
    }
  }
  return AssembleTensor(entry, of_tensor);
}

WeightFollower::WeightFollower(Options options, FollowMetrics& metrics, const Clock& clock,
                               std::function<void()> on_ready)
    : options_(std::move(options)),
      metrics_(metrics),
      clock_(clock),
      on_ready_(std::move(on_ready)),
      own_store_(/*snapshots_max=*/1, options_.bytes_max),
      fetcher_({.epoch = options_.epoch,
                .worker_id = options_.worker_id,
                .peer_silence = options_.peer_silence,
                .learner_silence = options_.timeout,
                .tries = options_.tries,
                .backoff_first = options_.backoff_first,
                .backoff_max = options_.backoff_max,
                .received = [&metrics](uint64_t bytes,
                                       Source source) { metrics.Received(bytes, source); }},
               metrics, clock),
      member_(options_.join_broadcast_group == nullptr
                  ? nullptr
                  : std::make_unique<BroadcastReceiver>(options_.join_broadcast_group,
                                                        options_.bytes_max, metrics)) {
  OXBOW_CHECK(!options_.endpoints.empty()) << "weight endpoints";
  watch_thread_ = std::thread([this] { WatchLoop(); });
  fetch_thread_ = std::thread([this] { FetchLoop(); });
}

WeightFollower::~WeightFollower() {
  Stop();
  watch_thread_.join();
  fetch_thread_.join();
}

void WeightFollower::Stop() {
  fetcher_.Cancel();
  if (member_ != nullptr) member_->Stop();
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  if (watching_.call != nullptr) watching_.call->TryCancel();
}

std::optional<VerifiedSnapshot> WeightFollower::TakeNewest() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(ready_, std::nullopt);
}

Chunk WeightFollower::Held(const std::string& sha256) {
  const absl::StatusOr<Chunk> chunk = store().Read(sha256);
  return chunk.ok() ? *chunk : nullptr;
}

void WeightFollower::Place(const std::string& sha256, const Placed& placed) {
  store().Place(sha256, placed);
  absl::MutexLock lock(&mutex_);
  // The next snapshot has the same frozen part, in memory or in a place that may go.
  if (ready_.has_value() && ready_->chunks.erase(sha256) + ready_->placed.count(sha256) > 0) {
    ready_->placed[sha256] = placed;
  }
}

void WeightFollower::FetchAgain() {
  store().ForgetLost();
  absl::MutexLock lock(&mutex_);
  have_.reset();
  if (watching_.call != nullptr) watching_.call->TryCancel();  // A new watch announces the newest.
}

bool WeightFollower::Sleep(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  return !mutex_.AwaitWithTimeout(absl::Condition(&stopping_), duration);
}

void WeightFollower::WatchLoop() {
  absl::Duration backoff = options_.backoff_first;
  bool said = false;  // A warning was logged since the last snapshot.
  uint64_t before = 0;
  for (size_t turn = 0;; ++turn) {
    const std::string& endpoint = options_.endpoints[turn % options_.endpoints.size()];
    const absl::Status ended = WatchOnce(endpoint);
    {
      absl::MutexLock lock(&mutex_);
      const uint64_t now = have_.value_or(Version()).policy;
      if (std::exchange(before, now) != now) {
        backoff = options_.backoff_first;
        said = false;
      }
    }
    if (!Sleep(rpc::Jittered(backoff))) return;
    if (!said) {
      OXBOW_LOG(Warning) << "weight watch ended, trying until it is back"
                         << Field("endpoint", endpoint) << Field("status", ended);
      said = true;
    }
    backoff = std::min(2 * backoff, options_.backoff_max);
  }
}

absl::Status WeightFollower::WatchOnce(const std::string& endpoint) {
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(endpoint));
  // Workers that started together do not all watch again together.
  const auto context = rpc::ContextWithDeadline(rpc::Jittered(kWatchAtMost));
  v1::WatchRequest request;
  request.set_epoch(options_.epoch.value);
  request.set_worker_id(options_.worker_id);
  if (options_.relay != nullptr) request.set_relay_endpoint(options_.relay->endpoint());
  if (member_ != nullptr) request.set_broadcast_device(options_.broadcast_device);
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError("stopping");
    request.set_have_any(have_.has_value());
    request.set_have_version(have_.value_or(Version()).policy);
    request.set_manifest_sha256(watching_.told.sha256());
    watching_.call = context.get();
    watching_.learner = endpoint;
  }
  const auto reader = stub->Watch(context.get(), request);
  Announcement announcement{.response = {}, .learner = endpoint};
  absl::Status taken;
  while (taken.ok() && reader->Read(&announcement.response)) {
    if (member_ != nullptr && announcement.response.has_invitation()) {
      member_->Invite(announcement.response.invitation());
    }
    taken = TakeManifest(announcement.response);
    if (!taken.ok() || !announcement.response.has_manifest()) continue;
    metrics_.Announced(PolicyVersion(announcement.response.manifest().policy_version()));
    absl::MutexLock lock(&mutex_);
    announced_ = announcement;
  }
  if (!taken.ok()) context->TryCancel();
  const absl::Status ended = rpc::FromGrpc(reader->Finish());
  absl::MutexLock lock(&mutex_);
  watching_.call = nullptr;
  return taken.ok() ? ended : taken;
}

// Puts the whole manifest in place of a delta. After an error the next watch asks for it whole.
absl::Status WeightFollower::TakeManifest(v1::WatchResponse& response) {
  absl::MutexLock lock(&mutex_);
  if (response.has_delta()) {
    absl::StatusOr<v1::SnapshotManifest> whole = ManifestFrom(watching_.told, response.delta());
    if (!whole.ok()) {
      watching_.told.Clear();
      return whole.status();
    }
    response.clear_delta();
    *response.mutable_manifest() = *std::move(whole);
  }
  if (response.has_manifest()) watching_.told = response.manifest();
  return absl::OkStatus();
}

std::optional<WeightFollower::Announcement> WeightFollower::AwaitAnnouncement() {
  absl::MutexLock lock(&mutex_);
  while (true) {
    const auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || announced_.has_value();
    };
    mutex_.Await(absl::Condition(&something));
    if (stopping_) return std::nullopt;
    Announcement next = *std::exchange(announced_, std::nullopt);
    // A watch that was resumed while its snapshot was fetched announces it again.
    if (!have_.has_value() || next.response.manifest().sha256() != have_->sha256 ||
        next.response.manifest().policy_version() != have_->policy) {
      return next;
    }
  }
}

void WeightFollower::FetchLoop() {
  while (const std::optional<Announcement> next = AwaitAnnouncement()) {
    const absl::Status status = Obtain(*next);
    if (status.ok()) continue;
    if (IsRefusal(status)) ReportRefused(next->response.manifest(), status);
    OXBOW_LOG(Info) << "weights not obtained"
                    << Field("policy_version", next->response.manifest().policy_version())
                    << Field("status", status);
    // A new watch, after a pause, announces the newest snapshot again.
    absl::MutexLock lock(&mutex_);
    if (IsRefusal(status)) watching_.told.Clear();  // So the next manifest shall come whole.
    if (!announced_.has_value() && watching_.call != nullptr) watching_.call->TryCancel();
  }
}

uint64_t WeightFollower::OfThisMachine(const v1::SnapshotManifest& manifest, Download& download) {
  if (options_.local == nullptr || download.complete()) return 0;
  {
    absl::MutexLock lock(&mutex_);
    if (have_.has_value()) return 0;
  }
  const uint64_t before = download.bytes();
  options_.local(manifest, download);
  return download.bytes() - before;
}

// Its chunks may have been placed, or placed anew, since its download began.
void WeightFollower::TakePlaces(VerifiedSnapshot& snapshot) {
  for (auto& [hash, place] : snapshot.placed) {
    if (Placed now = store().Look(hash).placed; now != nullptr) place = std::move(now);
  }
  for (auto chunk = snapshot.chunks.begin(); chunk != snapshot.chunks.end();) {
    Placed now = store().Look(chunk->first).placed;
    if (now == nullptr) {
      ++chunk;
      continue;
    }
    snapshot.placed[chunk->first] = std::move(now);
    chunk = snapshot.chunks.erase(chunk);
  }
}

absl::Status WeightFollower::Obtain(const Announcement& announcement) {
  PeerFaults faults;
  const absl::Status fetched = ObtainChunks(announcement, faults);
  fetcher_.Report(announcement.learner, std::move(faults));
  return fetched;
}

absl::Status WeightFollower::ObtainChunks(const Announcement& announcement, PeerFaults& faults) {
  const v1::SnapshotManifest& manifest = announcement.response.manifest();
  OXBOW_RETURN_IF_ERROR(CheckManifest(manifest, options_.bytes_max));
  const absl::Duration start = clock_.Now();
  OXBOW_ASSIGN_OR_RETURN(Download download,
                         Download::Start(manifest, store(), options_.chunk_check));
  const uint64_t local = OfThisMachine(manifest, download);
  if (member_ != nullptr && announcement.response.has_rounds()) {
    member_->TakePart(announcement.response.rounds(), download);
  }
  const absl::Status fetched = fetcher_.Fetch(
      download, {announcement.response.peers().begin(), announcement.response.peers().end()},
      announcement.learner, faults);
  if (fetched.ok()) {
    const absl::Duration took = clock_.Now() - start;
    metrics_.Fetched(took);
    VerifiedSnapshot verified{.manifest = manifest,
                              .chunks = download.verified(),
                              .placed = download.placed(),
                              .fetched_bytes = download.bytes() - local,
                              .fetch_time = took};
    {
      absl::MutexLock lock(&mutex_);
      have_ = {.policy = manifest.policy_version(), .sha256 = manifest.sha256()};
      // Place tells the store first and then waits for this lock: no place is missed.
      TakePlaces(verified);
      ready_ = std::move(verified);
    }
    if (on_ready_) on_ready_();
  }
  return fetched;
}

void WeightFollower::ReportRefused(const v1::SnapshotManifest& manifest, const absl::Status& why) {
  metrics_.Refused();
  OXBOW_LOG(Error) << "weights refused" << Field("policy_version", manifest.policy_version())
                   << Field("status", why);
  v1::ReportAppliedRequest report;
  report.set_policy_version(manifest.policy_version());
  report.set_failure(why.ToString());
  const absl::Status sent = Report(std::move(report));
  if (!sent.ok()) {
    OXBOW_LOG(Warning) << "weight report not delivered" << Field("status", sent);
  }
}

absl::Status WeightFollower::Report(v1::ReportAppliedRequest report) {
  report.set_epoch(options_.epoch.value);
  report.set_worker_id(options_.worker_id);
  std::string endpoint;
  {
    absl::MutexLock lock(&mutex_);
    endpoint = watching_.learner.empty() ? options_.endpoints.front() : watching_.learner;
  }
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(endpoint));
  return rpc::Retry({.tries = 2}, [&] {
    v1::ReportAppliedResponse response;
    const auto context = rpc::ContextWithDeadline(std::min(options_.timeout, kReportAtMost));
    const rpc::SilenceGuard::Watched watched(fetcher_.calls(), *context, kReportAtMost);
    return rpc::FromGrpc(stub->ReportApplied(context.get(), report, &response));
  });
}

}  // namespace oxbow::weights
