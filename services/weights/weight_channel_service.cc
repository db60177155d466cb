#include "services/weights/weight_channel_service.h"

#include <grpcpp/support/method_handler.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "rpc/status.h"

namespace oxbow::weights {
namespace {

// How long a cancelled Watch may hold its thread: the sync API has no callback
// for cancellation.
constexpr absl::Duration kCancelCheckEvery = absl::Milliseconds(200);

}  // namespace

WeightChannelService::WeightChannelService(Options options, PublishMetrics& metrics,
                                           const Clock& clock, OnReport on_report)
    : options_(options),
      metrics_(metrics),
      clock_(clock),
      on_report_(std::move(on_report)),
      store_(options.snapshots_kept, options.bytes_max),
      roster_(options.fanout) {
  MarkMethodStreamed(kFetchMethod,
                     new grpc::internal::SplitServerStreamingHandler<v1::FetchRequest, FetchPiece>(
                         [this](grpc::ServerContext*, FetchStream* stream) {
                           v1::FetchRequest request;
                           if (!stream->Read(&request)) return grpc::Status::CANCELLED;
                           return Serve(request, *stream);
                         }));
}

absl::Status WeightChannelService::Publish(const Snapshot& snapshot) {
  const absl::Duration start = clock_.Now();
  auto manifest = std::make_shared<const v1::SnapshotManifest>(snapshot.manifest);
  // Chunks first: whoever hears of the manifest must find them.
  uint64_t new_bytes = 0;
  OXBOW_RETURN_IF_ERROR(store_.Add(snapshot, &new_bytes));
  const PolicyVersion version(manifest->policy_version());
  metrics_.Changed(new_bytes);
  {
    absl::MutexLock lock(&mutex_);
    newest_ = {newest_.number + 1, std::move(manifest)};
  }
  metrics_.Published(version, clock_.Now() - start, store_.bytes());
  return absl::OkStatus();
}

void WeightChannelService::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
}

grpc::Status WeightChannelService::CheckEpoch(uint64_t epoch) const {
  if (epoch == 0 || epoch == options_.epoch.value) return grpc::Status::OK;
  return rpc::ToGrpc(absl::AbortedError(absl::StrCat(
      "request of another epoch; register again: ", epoch, ", not ", options_.epoch.value)));
}

grpc::Status WeightChannelService::Watch(grpc::ServerContext* context,
                                         const v1::WatchRequest* request,
                                         grpc::ServerWriter<v1::WatchResponse>* writer) {
  if (grpc::Status status = CheckEpoch(request->epoch()); !status.ok()) return status;
  const std::string endpoint = RelayEndpoint(request->relay_endpoint(), context->peer());
  RelayRoster::Ticket ticket = 0;
  {
    absl::MutexLock lock(&mutex_);
    ticket = roster_.Join(request->worker_id(), endpoint);
    metrics_.WatchersAre(roster_.watchers(), roster_.excluded());
  }
  grpc::Status status = Push(*context, *request, ticket, *writer);
  absl::MutexLock lock(&mutex_);
  roster_.Leave(ticket);
  metrics_.WatchersAre(roster_.watchers(), roster_.excluded());
  return status;
}

grpc::Status WeightChannelService::Push(grpc::ServerContext& context,
                                        const v1::WatchRequest& request, RelayRoster::Ticket ticket,
                                        grpc::ServerWriter<v1::WatchResponse>& writer) {
  uint64_t seen = 0;
  bool have_any = request.have_any();
  while (!context.IsCancelled()) {
    Published newest;
    std::vector<v1::WatchResponse::Peer> peers;
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopped_ || newest_.number > seen;
      };
      if (!mutex_.AwaitWithTimeout(absl::Condition(&ready), kCancelCheckEvery)) continue;
      if (stopped_) return rpc::ToGrpc(absl::UnavailableError("weights are no longer served"));
      newest = newest_;
      peers = roster_.PeersOf(ticket);
    }
    seen = newest.number;
    const bool known = have_any && newest.manifest->policy_version() == request.have_version();
    have_any = false;  // Only the first manifest can be what the watcher started with.
    if (known) continue;
    v1::WatchResponse response;
    *response.mutable_manifest() = *newest.manifest;
    for (v1::WatchResponse::Peer& peer : peers) *response.add_peers() = std::move(peer);
    if (!writer.Write(response)) break;
  }
  return grpc::Status::OK;
}

grpc::Status WeightChannelService::Serve(const v1::FetchRequest& request, FetchStream& stream) {
  if (grpc::Status status = CheckEpoch(request.epoch()); !status.ok()) return status;
  uint64_t offset = request.first_offset();
  for (const std::string& hash : request.chunk_sha256()) {
    const Chunk chunk = store_.Find(hash);
    if (chunk == nullptr) {
      return rpc::ToGrpc(absl::NotFoundError(
          absl::StrCat("chunk is no longer retained; watch for the newest: ", HexOf(hash))));
    }
    if (offset > 0 && offset >= chunk->size()) {
      return rpc::ToGrpc(
          absl::InvalidArgumentError(absl::StrCat("resume offset is beyond the chunk: ", offset)));
    }
    if (!SendChunk(hash, chunk, offset, options_.piece_bytes, stream, options_.before_piece,
                   [this](uint64_t bytes) { metrics_.ChunkServed(bytes); })) {
      break;
    }
    offset = 0;
  }
  return grpc::Status::OK;
}

grpc::Status WeightChannelService::ReportApplied(grpc::ServerContext*,
                                                 const v1::ReportAppliedRequest* request,
                                                 v1::ReportAppliedResponse*) {
  if (grpc::Status status = CheckEpoch(request->epoch()); !status.ok()) return status;
  if (request->failure().empty()) {
    metrics_.WatcherApplied(request->probe_bits_equal());
  } else {
    metrics_.WatcherRefused();
  }
  {
    absl::MutexLock lock(&mutex_);
    roster_.HeardOf(request->worker_id());
    metrics_.WatchersAre(roster_.watchers(), roster_.excluded());
  }
  if (on_report_) on_report_(*request);
  return grpc::Status::OK;
}

grpc::Status WeightChannelService::ReportPeer(grpc::ServerContext*,
                                              const v1::ReportPeerRequest* request,
                                              v1::ReportPeerResponse*) {
  if (grpc::Status status = CheckEpoch(request->epoch()); !status.ok()) return status;
  absl::MutexLock lock(&mutex_);
  if (!roster_.Accuse(*request)) return grpc::Status::OK;
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
