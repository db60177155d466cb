// SPDX-License-Identifier: Apache-2.0
#include "services/weights/chunk_fetcher.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/sha256.h"
#include "rpc/channel.h"
#include "rpc/retry.h"
#include "rpc/status.h"

namespace oxbow::weights {
namespace {

// A call ends when its source is silent, however long it takes; this is only the last limit.
constexpr absl::Duration kFetchAtMost = absl::Hours(1);

v1::PeerFault FaultOf(const absl::Status& status, bool stalled) {
  if (stalled) return v1::PEER_FAULT_STALLED;
  const bool wrong_bytes = absl::IsDataLoss(status) || absl::IsInvalidArgument(status);
  return wrong_bytes ? v1::PEER_FAULT_CORRUPT : v1::PEER_FAULT_UNREACHABLE;
}

uint64_t DataBytes(const v1::FetchResponse& message) {
  uint64_t bytes = message.data().size();
  for (const v1::FetchResponse::SmallChunk& small : message.small()) bytes += small.data().size();
  return bytes;
}

}  // namespace

ChunkFetcher::ChunkFetcher(Options options, FollowMetrics& metrics, const Clock& clock)
    : options_(std::move(options)), metrics_(metrics), guard_(clock) {}

ChunkFetcher::~ChunkFetcher() { Cancel(); }

void ChunkFetcher::Cancel() {
  guard_.CancelAll();
  if (!cancelled_.HasBeenNotified()) cancelled_.Notify();
}

absl::Status ChunkFetcher::Fetch(Download& download,
                                 const std::vector<v1::WatchResponse::Peer>& peers,
                                 const std::string& learner,
                                 std::vector<v1::ReportPeerRequest>& faults) {
  for (const v1::WatchResponse::Peer& peer : peers) {
    if (download.complete()) return absl::OkStatus();
    bool stalled = false;
    const absl::Status status = FetchOnce(download, peer.endpoint(), /*peer=*/true, &stalled);
    if (absl::IsCancelled(status)) return status;
    download.ForgetPartial();
    if (status.ok() || download.complete()) continue;
    const v1::PeerFault fault = FaultOf(status, stalled);
    // A peer that is alive and does not have the chunk (yet) has done nothing wrong.
    const bool missing = absl::IsNotFound(status);
    const bool corrupt = fault == v1::PEER_FAULT_CORRUPT;
    metrics_.PeerFailed(missing ? "lacking" : corrupt ? "corrupt" : "silent");
    OXBOW_LOG(Warning) << "peer gave no weights, asking the next source"
                       << Field("peer", peer.worker_id()) << Field("endpoint", peer.endpoint())
                       << Field("status", status);
    if (missing) continue;
    v1::ReportPeerRequest& report = faults.emplace_back();
    *report.mutable_peer() = peer;
    report.set_fault(fault);
    report.set_detail(status.ToString());
  }
  return FetchFromLearner(download, learner);
}

absl::Status ChunkFetcher::FetchFromLearner(Download& download, const std::string& endpoint) {
  rpc::Backoff backoff(options_.backoff_first, options_.backoff_max);
  for (int tries = 0; !download.complete();) {
    const size_t before = download.progress();
    bool stalled = false;
    const absl::Status status = FetchOnce(download, endpoint, /*peer=*/false, &stalled);
    if (absl::IsNotFound(status) || absl::IsAborted(status) || absl::IsCancelled(status)) {
      return status;
    }
    tries = download.progress() > before ? 0 : tries + 1;
    if (tries >= options_.tries) {
      return absl::DataLossError(absl::StrCat("weights could not be fetched: ", download.lacking(),
                                              " chunks lack, last: ", status.ToString()));
    }
    if (tries == 0) continue;
    if (!Sleep(backoff.Next())) return absl::CancelledError("stopping");
  }
  return absl::OkStatus();
}

absl::Status ChunkFetcher::FetchOnce(Download& download, const std::string& endpoint, bool peer,
                                     bool* stalled) {
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(endpoint));
  const auto context = rpc::ContextWithDeadline(kFetchAtMost);
  if (cancelled_.HasBeenNotified()) return absl::CancelledError("stopping");
  rpc::SilenceGuard::Watched watched(guard_, *context,
                                     peer ? options_.peer_silence : options_.learner_silence);
  v1::FetchRequest request = download.Request();
  request.set_epoch(options_.epoch.value);
  request.set_worker_id(options_.worker_id);
  const auto reader = stub->Fetch(context.get(), request);
  v1::FetchResponse piece;
  absl::Status taken;
  while (taken.ok() && reader->Read(&piece)) {
    watched.SignOfLife();
    const uint64_t bytes = DataBytes(piece);
    if (bytes == 0) continue;
    metrics_.Received(bytes, peer ? Source::kPeer : Source::kLearner);
    taken = download.Take(piece);
    if (absl::IsDataLoss(taken)) {
      metrics_.ChunkCorrupt();
      OXBOW_LOG(Warning) << "weight chunk corrupt, fetching again" << Field("endpoint", endpoint)
                         << Field("reason", taken.message());
    }
  }
  if (!taken.ok()) context->TryCancel();
  const absl::Status finished = rpc::FromGrpc(reader->Finish());
  *stalled = watched.silent();
  if (!taken.ok()) return taken;
  if (*stalled) return absl::DeadlineExceededError(absl::StrCat("silent: ", endpoint));
  if (finished.code() != absl::StatusCode::kCancelled) return finished;
  // Cancelled by this side, or by a server that shuts down.
  return cancelled_.HasBeenNotified() ? finished
                                      : absl::UnavailableError(std::string(finished.message()));
}

bool ChunkFetcher::Sleep(absl::Duration duration) {
  return !cancelled_.WaitForNotificationWithTimeout(duration);
}

}  // namespace oxbow::weights
