// SPDX-License-Identifier: Apache-2.0
#include "services/weights/content_fetcher.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rpc/channel.h"
#include "rpc/retry.h"
#include "rpc/status.h"

namespace oxbow::weights {
namespace {

// A call ends when its source is silent, however long it takes; this is only the last limit.
constexpr absl::Duration kFetchAtMost = absl::Hours(1);
constexpr absl::Duration kFaultReportAtMost = absl::Seconds(5);

v1::PeerFault FaultOf(const absl::Status& status) {
  if (absl::IsDeadlineExceeded(status)) return v1::PEER_FAULT_STALLED;
  const bool wrong_bytes = absl::IsDataLoss(status) || absl::IsInvalidArgument(status);
  return wrong_bytes ? v1::PEER_FAULT_CORRUPT : v1::PEER_FAULT_UNREACHABLE;
}

uint64_t DataBytes(const v1::FetchResponse& message) {
  uint64_t bytes = message.data().size();
  for (const v1::FetchResponse::SmallChunk& small : message.small()) bytes += small.data().size();
  return bytes;
}

}  // namespace

ContentFetcher::ContentFetcher(Options options, FollowMetrics& metrics, const Clock& clock)
    : options_(std::move(options)), metrics_(metrics), guard_(clock) {}

ContentFetcher::~ContentFetcher() { Cancel(); }

void ContentFetcher::Cancel() {
  guard_.CancelAll();
  if (!cancelled_.HasBeenNotified()) cancelled_.Notify();
}

absl::Status ContentFetcher::Fetch(Download& download, const std::vector<Peer>& peers,
                                   const std::string& learner, PeerFaults& faults) {
  OXBOW_RETURN_IF_ERROR(FetchFromPeers(download, peers, faults));
  return FetchFromLearner(download, learner);
}

absl::Status ContentFetcher::FetchFromPeers(Download& download, const std::vector<Peer>& peers,
                                            PeerFaults& faults) {
  for (const Peer& peer : peers) {
    if (download.complete()) break;
    const absl::Status status = Ask(download, peer.endpoint(), Source::kPeer);
    if (absl::IsCancelled(status)) return status;
    download.ForgetPartial();
    if (download.complete()) break;
    // A peer that is alive and does not have the chunk (yet) has done nothing wrong.
    if (absl::IsNotFound(status)) {
      metrics_.PeerFailed("lacking");
      continue;
    }
    v1::ReportPeerRequest& report = faults.emplace_back();
    *report.mutable_peer() = peer;
    report.set_fault(FaultOf(status));
    report.set_detail(status.ToString());
    metrics_.PeerFailed(report.fault() == v1::PEER_FAULT_CORRUPT ? "corrupt" : "silent");
    OXBOW_LOG(Warning) << "peer did not give what it was asked for, asking the next source"
                       << Field("peer", peer.worker_id()) << Field("endpoint", peer.endpoint())
                       << Field("status", status);
  }
  return absl::OkStatus();
}

absl::Status ContentFetcher::FetchFromLearner(Download& download, const std::string& endpoint) {
  rpc::Backoff backoff(options_.backoff_first, options_.backoff_max);
  for (int tries = 0; !download.complete();) {
    const size_t before = download.progress();
    const absl::Status status = Ask(download, endpoint, Source::kLearner);
    if (absl::IsNotFound(status) || absl::IsAborted(status) || absl::IsCancelled(status)) {
      return status;
    }
    tries = download.progress() > before ? 0 : tries + 1;
    if (tries >= options_.tries) {
      return Annotate(status, absl::StrCat(download.lacking(), " not fetched"));
    }
    if (tries == 0) continue;
    if (cancelled_.WaitForNotificationWithTimeout(backoff.Next())) {
      return absl::CancelledError("stopping");
    }
  }
  return absl::OkStatus();
}

absl::Status ContentFetcher::Ask(Download& download, const std::string& endpoint, Source source) {
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(endpoint));
  const auto context = rpc::ContextWithDeadline(kFetchAtMost);
  if (guard_.cancelled()) return absl::CancelledError("stopping");
  rpc::SilenceGuard::Watched watched(
      guard_, *context, source == Source::kPeer ? options_.peer_silence : options_.learner_silence);
  v1::FetchRequest request = download.Request();
  request.set_epoch(options_.epoch.value);
  request.set_worker_id(options_.worker_id);
  request.set_at_once(options_.at_once);
  const auto reader = stub->Fetch(context.get(), request);
  v1::FetchResponse piece;
  absl::Status taken;
  while (taken.ok() && reader->Read(&piece)) {
    watched.SignOfLife();
    const uint64_t bytes = DataBytes(piece);
    if (bytes == 0) continue;
    options_.received(bytes, source);
    taken = download.Take(piece);
    if (absl::IsDataLoss(taken)) {
      metrics_.ChunkCorrupt();
      OXBOW_LOG(Warning) << "chunk corrupt, fetching again" << Field("endpoint", endpoint)
                         << Field("reason", taken.message());
    }
  }
  if (!taken.ok()) context->TryCancel();
  const absl::Status ended = watched.Ended(reader->Finish());
  if (!taken.ok()) return taken;
  if (!ended.ok() || download.complete()) return ended;
  return absl::DataLossError("fewer bytes than were asked for");
}

void ContentFetcher::Report(const std::string& learner, PeerFaults faults) {
  for (v1::ReportPeerRequest& report : faults) {
    report.set_epoch(options_.epoch.value);
    report.set_worker_id(options_.worker_id);
    const auto stub = v1::WeightChannel::NewStub(rpc::Connect(learner));
    const auto context = rpc::ContextWithDeadline(kFaultReportAtMost);
    const rpc::SilenceGuard::Watched watched(guard_, *context, kFaultReportAtMost);
    v1::ReportPeerResponse response;
    const absl::Status sent = rpc::FromGrpc(stub->ReportPeer(context.get(), report, &response));
    if (sent.ok()) continue;
    OXBOW_LOG(Warning) << "peer's fault not reported" << Field("status", sent);
    return;
  }
}

}  // namespace oxbow::weights
