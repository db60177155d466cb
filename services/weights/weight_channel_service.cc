// SPDX-License-Identifier: Apache-2.0
#include "services/weights/weight_channel_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "rpc/call_checks.h"
#include "rpc/status.h"

namespace oxbow::weights {
namespace {

constexpr int kWatchMethod = 0;  // Its index in service WeightChannel.

// A Watch that ends at once with an error.
class Refusal final : public grpc::ServerWriteReactor<WatchMessage> {
 public:
  explicit Refusal(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }  // gRPC's, from the moment it was returned.
};

}  // namespace

std::vector<grpc::Slice> WatchMessage::Slices() const {
  std::vector<grpc::Slice> slices = {grpc::Slice(rest.SerializeAsString())};
  if (manifest != nullptr) slices.push_back(rpc::SliceOf(*manifest, manifest));
  return slices;
}

// One watcher. At most one write is under way; when it is done, the newest state is written next.
// gRPC never calls a reaction from inside StartWrite or Finish.
class WeightChannelService::WatchStream final : public grpc::ServerWriteReactor<WatchMessage> {
 public:
  WatchStream(WeightChannelService& service, const v1::WatchRequest& request,
              RelayRoster::Ticket ticket)
      : service_(service),
        ticket_(ticket),
        told_{
            .manifest_sha256 = request.manifest_sha256(),
            .applied = request.have_any() ? std::optional(request.have_version()) : std::nullopt} {}

  void Wake() {
    absl::MutexLock lock(&mutex_);
    if (writing_ || over_) return;
    bool stopped = false;
    std::optional<WatchMessage> next = service_.Next(ticket_, told_, stopped);
    if (stopped || cancelled_) {
      over_ = true;
      return Finish(
          rpc::ToGrpc(absl::UnavailableError("weights are no longer served to this watcher")));
    }
    if (!next.has_value()) return;
    message_ = *std::move(next);
    writing_ = true;
    StartWrite(&message_);
  }

  void OnWriteDone(bool) override {
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
      message_ = {};
    }
    Wake();
  }

  void OnCancel() override {
    {
      absl::MutexLock lock(&mutex_);
      cancelled_ = true;
    }
    Wake();
  }

  void OnDone() override { service_.Leave(ticket_); }  // Deletes this.

 private:
  WeightChannelService& service_;
  const RelayRoster::Ticket ticket_;
  absl::Mutex mutex_;
  WatchMessage message_ ABSL_GUARDED_BY(mutex_);
  Told told_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
};

WeightChannelService::WeightChannelService(const Options& options, PublishMetrics& metrics,
                                           const Clock& clock, OnReport on_report)
    : options_(options),
      metrics_(metrics),
      clock_(clock),
      on_report_(std::move(on_report)),
      store_(options.snapshots_kept, options.bytes_max),
      roster_(options.fanout),
      groups_(options.join_broadcast_group == nullptr
                  ? nullptr
                  : std::make_unique<BroadcastSender>(
                        BroadcastSender::Options{.join = options.join_broadcast_group,
                                                 .device = options.broadcast_device,
                                                 .versions_kept = options.snapshots_kept + 1},
                        metrics.broadcast(), clock, [this] { WakeAll(); })),
      runner_(options.streams) {
  using WatchHandler =
      grpc::internal::CallbackServerStreamingHandler<v1::WatchRequest, WatchMessage>;
  MarkMethodCallback(kWatchMethod, new WatchHandler([this](grpc::CallbackServerContext* context,
                                                           const v1::WatchRequest* request) {
                       return Watch(context, request);
                     }));
  MarkMethodStreamed(kFetchMethod, nullptr);
  MarkMethodCallback(kFetchMethod,
                     rpc::StreamHandler<v1::FetchRequest, FetchPiece>(
                         runner_, [this](FetchStream& stream) { return Fetch(stream); }));
}

absl::Status WeightChannelService::Publish(const Snapshot& snapshot) {
  const absl::Duration start = clock_.Now();
  auto manifest = std::make_shared<const v1::SnapshotManifest>(snapshot.manifest);
  // The chunks first: a watcher that is told of the manifest must find them.
  uint64_t new_bytes = 0;
  OXBOW_RETURN_IF_ERROR(store_.Add(snapshot, &new_bytes));
  const PolicyVersion version(manifest->policy_version());
  metrics_.Changed(new_bytes);
  std::shared_ptr<const ChunksByHash> chunks;
  if (groups_ != nullptr) chunks = std::make_shared<const ChunksByHash>(snapshot.chunks);
  std::vector<ManifestForms::Shared> older;
  {
    absl::MutexLock lock(&mutex_);
    older.assign(manifests_.begin(), manifests_.end());
  }
  auto forms = std::make_shared<const ManifestForms>(manifest, older);
  {
    absl::MutexLock lock(&mutex_);
    manifests_.push_back(manifest);
    if (manifests_.size() > options_.snapshots_kept) manifests_.pop_front();
    if (groups_ != nullptr) groups_->Published(std::move(manifest), std::move(chunks));
    newest_ = {newest_.number + 1, std::move(forms)};
  }
  metrics_.Published(version, clock_.Now() - start, store_.bytes());
  WakeAll();
  return absl::OkStatus();
}

void WeightChannelService::Stop() {
  if (groups_ != nullptr) groups_->Stop();
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  WakeAll();
}

void WeightChannelService::WakeAll() {
  std::vector<std::shared_ptr<WatchStream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [ticket, stream] : streams_) streams.push_back(stream);
  }
  for (const auto& stream : streams) stream->Wake();
}

grpc::Status WeightChannelService::CheckEpoch(uint64_t epoch) const {
  if (epoch == 0 || epoch == options_.epoch.value) return grpc::Status::OK;
  return rpc::ToGrpc(absl::AbortedError(absl::StrCat(
      "request of another epoch; register again: ", epoch, ", not ", options_.epoch.value)));
}

grpc::ServerWriteReactor<WatchMessage>* WeightChannelService::Watch(
    grpc::CallbackServerContext* context, const v1::WatchRequest* request) {
  grpc::Status status = CheckEpoch(request->epoch());
  if (status.ok() && !request->worker_id().empty())
    status = rpc::ToGrpc(CheckWorkerId(request->worker_id()));
  if (status.ok()) status = rpc::MayBeWorker(context, request->worker_id());
  if (!status.ok()) return new Refusal(status);
  std::shared_ptr<WatchStream> stream;
  {
    absl::MutexLock lock(&mutex_);
    const std::string host = PeerHost(context->peer());
    const std::string relay = RelayEndpoint(request->relay_endpoint(), context->peer());
    if (relay.empty() && !request->relay_endpoint().empty()) {
      OXBOW_LOG(Warning) << "worker cannot relay weights: it must listen on 0.0.0.0, [::] or the "
                            "address from which it calls"
                         << Field("worker", request->worker_id())
                         << Field("listens", request->relay_endpoint()) << Field("calls", host);
    }
    const RelayRoster::Ticket ticket = roster_.Join(request->worker_id(), relay, host);
    if (groups_ != nullptr) groups_->Join(ticket, *request, host);
    metrics_.WatchersAre(roster_.watchers(), roster_.excluded());
    stream = std::make_shared<WatchStream>(*this, *request, ticket);
    streams_[ticket] = stream;
  }
  stream->Wake();
  return stream.get();
}

std::optional<WatchMessage> WeightChannelService::Next(RelayRoster::Ticket ticket, Told& told,
                                                       bool& stopped) {
  WatchMessage message;
  absl::MutexLock lock(&mutex_);
  stopped = stopped_;
  if (stopped) return std::nullopt;
  if (groups_ != nullptr) groups_->Describe(ticket, told.broadcast_group, message.rest);
  const bool tells = newest_.number > told.publications;
  told.publications = newest_.number;
  // Only the first manifest can be that of the weights that the watcher started with.
  const bool news = tells && std::exchange(told.applied, std::nullopt) !=
                                 newest_.forms->manifest().policy_version();
  if (news) {
    for (v1::WatchResponse::Peer& peer : roster_.PeersOf(ticket)) {
      *message.rest.add_peers() = std::move(peer);
    }
    message.manifest = newest_.forms->For(told.manifest_sha256);
    told.manifest_sha256 = newest_.forms->manifest().sha256();
  }
  if (!news && !message.rest.has_invitation()) return std::nullopt;
  return message;
}

void WeightChannelService::Leave(RelayRoster::Ticket ticket) {
  std::shared_ptr<WatchStream> stream;
  absl::MutexLock lock(&mutex_);
  roster_.Leave(ticket);
  if (groups_ != nullptr) groups_->Leave(ticket);
  metrics_.WatchersAre(roster_.watchers(), roster_.excluded());
  stream = std::move(streams_.extract(ticket).mapped());
}

std::string WeightChannelService::RelayOf(const std::string& worker) const {
  absl::MutexLock lock(&mutex_);
  return roster_.EndpointOf(worker);
}

absl::Status WeightChannelService::Prepare(v1::FetchRequest&, FetchStream&) {
  return absl::OkStatus();
}

// Workers ask again and again. So an error is said once, until the chunk that had it is back.
void WeightChannelService::NoteRead(const std::string& hash, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (status.ok()) {
    std::erase_if(lost_, [&](const auto& said) { return said.second == hash; });
    return;
  }
  if (!lost_.emplace(status.message(), hash).second) return;
  OXBOW_LOG(Error) << "frozen weights cannot be sent to workers"
                   << Field("error", std::string(status.message()));
}

rpc::Handler WeightChannelService::Fetch(FetchStream& stream) {
  v1::FetchRequest request;
  if (!co_await stream.Read(request)) co_return absl::CancelledError("the watcher asked nothing");
  absl::Status status = rpc::FromGrpc(CheckEpoch(request.epoch()));
  if (status.ok()) status = Prepare(request, stream);
  if (!status.ok()) co_return status;
  const PieceRule rule{.bytes_max = options_.piece_bytes,
                       .before = options_.before_piece,
                       .after = [this](uint64_t bytes) { metrics_.ChunkServed(bytes); }};
  const PieceRule content_rule{.bytes_max = options_.piece_bytes,
                               .before = options_.before_piece,
                               .after = [this](uint64_t bytes) { metrics_.ContentServed(bytes); }};
  ChunkSender sender(stream);
  uint64_t offset = request.first_offset();
  for (const std::string& hash : request.chunk_sha256()) {
    const absl::StatusOr<Chunk> read = store_.Read(hash);
    NoteRead(hash, read.status());
    if (!read.ok()) {
      status = read.status();
      break;
    }
    const Chunk& weights = *read;
    const bool other = weights == nullptr && options_.content != nullptr;
    const Chunk chunk = other ? options_.content->Find(hash) : weights;
    if (chunk == nullptr) {
      status = absl::NotFoundError(
          absl::StrCat("chunk is no longer retained; watch for the newest: ", HexOf(hash)));
      break;
    }
    if (offset > 0 && offset >= chunk->size()) {
      co_return absl::InvalidArgumentError(
          absl::StrCat("resume offset is beyond the chunk: ", offset));
    }
    rpc::Part chunk_sent =
        sender.Send(hash, chunk, std::exchange(offset, 0), other ? content_rule : rule);
    if (status = co_await chunk_sent; !status.ok()) co_return status;
  }
  rpc::Part rest_sent = sender.Flush();
  const absl::Status flushed = co_await rest_sent;
  co_return status.ok() ? flushed : status;
}

grpc::Status WeightChannelService::ReportApplied(grpc::ServerContext* context,
                                                 const v1::ReportAppliedRequest* request,
                                                 v1::ReportAppliedResponse*) {
  if (grpc::Status status = CheckEpoch(request->epoch()); !status.ok()) return status;
  if (grpc::Status own = rpc::MayBeWorker(context, request->worker_id()); !own.ok()) return own;
  if (request->failure().empty()) {
    metrics_.WatcherApplied(request->probe_bits_equal());
  } else {
    metrics_.WatcherRefused();
  }
  {
    absl::MutexLock lock(&mutex_);
    roster_.HeardOf(request->worker_id());
    if (groups_ != nullptr && request->failure().empty()) {
      groups_->HeardOf(request->worker_id(), request->policy_version());
    }
    metrics_.WatchersAre(roster_.watchers(), roster_.excluded());
  }
  if (on_report_) on_report_(*request);
  return grpc::Status::OK;
}

grpc::Status WeightChannelService::ReportPeer(grpc::ServerContext* context,
                                              const v1::ReportPeerRequest* request,
                                              v1::ReportPeerResponse*) {
  if (grpc::Status status = CheckEpoch(request->epoch()); !status.ok()) return status;
  if (grpc::Status own = rpc::MayBeWorker(context, request->worker_id()); !own.ok()) return own;
  absl::MutexLock lock(&mutex_);
  if (!roster_.Accuse(*request, PeerHost(context->peer()))) return grpc::Status::OK;
  const bool corrupt = request->fault() == v1::PEER_FAULT_CORRUPT;
  metrics_.PeerExcluded(corrupt);
  metrics_.WatchersAre(roster_.watchers(), roster_.excluded());
  OXBOW_LOG(Warning) << "worker relays no weights" << Field("worker", request->peer().worker_id())
                     << Field("fault", corrupt ? "corrupt" : "silent")
                     << Field("reported_by", request->worker_id())
                     << Field("detail", request->detail());
  return grpc::Status::OK;
}

}  // namespace oxbow::weights
