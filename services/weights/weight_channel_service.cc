#include "services/weights/weight_channel_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/sha256.h"
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
      store_(options.snapshots_kept, options.bytes_max) {}

absl::Status WeightChannelService::Publish(const Snapshot& snapshot) {
  const absl::Duration start = clock_.Now();
  v1::SnapshotManifest manifest = snapshot.manifest;
  // Chunks first: whoever hears of the manifest must find them.
  if (absl::Status added = store_.Add(snapshot); !added.ok()) return added;
  const PolicyVersion version(manifest.policy_version());
  {
    absl::MutexLock lock(&mutex_);
    newest_ = std::move(manifest);
    ++publications_;
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
                                         grpc::ServerWriter<v1::SnapshotManifest>* writer) {
  if (grpc::Status status = CheckEpoch(request->epoch()); !status.ok()) return status;
  uint64_t seen = 0;
  bool have_any = request->have_any();
  while (!context->IsCancelled()) {
    v1::SnapshotManifest manifest;
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopped_ || publications_ > seen;
      };
      if (!mutex_.AwaitWithTimeout(absl::Condition(&ready), kCancelCheckEvery)) continue;
      if (stopped_) return rpc::ToGrpc(absl::UnavailableError("weights are no longer served"));
      seen = publications_;
      manifest = *newest_;
    }
    const bool known = have_any && manifest.policy_version() == request->have_version();
    have_any = false;  // Only the first manifest can be what the watcher started with.
    if (!known && !writer->Write(manifest)) break;
  }
  return grpc::Status::OK;
}

grpc::Status WeightChannelService::Fetch(grpc::ServerContext*, const v1::FetchRequest* request,
                                         grpc::ServerWriter<v1::FetchResponse>* writer) {
  if (grpc::Status status = CheckEpoch(request->epoch()); !status.ok()) return status;
  uint64_t offset = request->first_offset();
  for (const std::string& hash : request->chunk_sha256()) {
    const Chunk chunk = store_.Find(hash);
    if (chunk == nullptr) {
      return rpc::ToGrpc(absl::NotFoundError(
          absl::StrCat("chunk is no longer retained; watch for the newest: ", HexOf(hash))));
    }
    if (offset > 0 && offset >= chunk->size()) {
      return rpc::ToGrpc(
          absl::InvalidArgumentError(absl::StrCat("resume offset is beyond the chunk: ", offset)));
    }
    if (!SendChunk(hash, *chunk, offset, *writer)) break;
    offset = 0;
  }
  return grpc::Status::OK;
}

bool WeightChannelService::SendChunk(const std::string& hash, const std::string& bytes,
                                     uint64_t offset,
                                     grpc::ServerWriter<v1::FetchResponse>& writer) {
  while (offset < bytes.size()) {
    v1::FetchResponse piece;
    piece.set_chunk_sha256(hash);
    piece.set_offset(offset);
    piece.set_data(bytes.substr(offset, options_.piece_bytes));
    offset += piece.data().size();
    metrics_.ChunkServed(piece.data().size());
    if (!writer.Write(piece)) return false;
  }
  return true;
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
  if (on_report_) on_report_(*request);
  return grpc::Status::OK;
}

}  // namespace oxbow::weights
