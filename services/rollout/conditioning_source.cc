// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/conditioning_source.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/sha256.h"
#include "oxbow/v1/weight_channel.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/retry.h"
#include "rpc/status.h"

namespace oxbow::rollout {
namespace {

// A call ends when its source is silent; this is only the last limit.
constexpr absl::Duration kFetchAtMost = absl::Minutes(10);
constexpr absl::Duration kReportAtMost = absl::Seconds(5);
constexpr size_t kSha256Bytes = 32;

// Puts the piece behind the bytes that came before it.
absl::Status Take(const v1::FetchResponse& piece, uint64_t bytes_max, std::string& bytes) {
  if (piece.offset() != bytes.size() || piece.data().size() > bytes_max - bytes.size()) {
    return absl::DataLossError(absl::StrCat("a piece that does not fit: ", piece.data().size(),
                                            " bytes at ", piece.offset(), ", ", bytes.size(),
                                            " are here of ", bytes_max));
  }
  bytes += piece.data();
  return absl::OkStatus();
}

}  // namespace

ConditioningSource::ConditioningSource(Options options, weights::ContentStore& held,
                                       RolloutMetrics& metrics, const Clock& clock)
    : options_(std::move(options)), held_(held), metrics_(metrics), guard_(clock) {}

void ConditioningSource::Cancel() {
  guard_.CancelAll();
  if (!cancelled_.HasBeenNotified()) cancelled_.Notify();
}

ConditioningSource::Content ConditioningSource::ConditioningOf(const v1::Lease& lease) {
  return {.sha256 = lease.conditioning_sha256(),
          .bytes = lease.conditioning_bytes(),
          .peers = {lease.conditioning_peers().begin(), lease.conditioning_peers().end()}};
}

absl::StatusOr<weights::Chunk> ConditioningSource::Get(const Content& content) {
  if (weights::Chunk held = Held(content); held != nullptr) return held;
  return Fetch(content);
}

weights::Chunk ConditioningSource::Held(const Content& content) {
  weights::Chunk held = held_.Find(content.sha256);
  if (held != nullptr) metrics_.ConditioningFrom("held", held->size());
  return held;
}

absl::StatusOr<weights::Chunk> ConditioningSource::Fetch(const Content& content) {
  if (content.sha256.size() != kSha256Bytes) {
    return absl::InvalidArgumentError("the lease names it by no hash");
  }
  if (content.bytes > options_.bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("too large to be fetched: ", content.bytes, " bytes"));
  }
  for (const v1::Lease::Peer& peer : content.peers) {
    if (peer.worker_id() == options_.worker_id) continue;
    absl::StatusOr<weights::Chunk> fetched = FetchFromPeer(content, peer);
    if (fetched.ok() || absl::IsCancelled(fetched.status())) return fetched;
  }
  return FetchFromLearner(content);
}

absl::StatusOr<weights::Chunk> ConditioningSource::FetchFromPeer(const Content& content,
                                                                 const v1::Lease::Peer& peer) {
  absl::StatusOr<weights::Chunk> fetched = FetchOnce(content, peer.endpoint(), /*peer=*/true);
  const absl::Status status = fetched.status();
  if (status.ok() || absl::IsCancelled(status)) return fetched;
  // A peer that holds it no more has done nothing wrong.
  if (absl::IsNotFound(status)) return fetched;
  OXBOW_LOG(Warning) << "peer gave no conditioning, asking the next source"
                     << Field("peer", peer.worker_id()) << Field("endpoint", peer.endpoint())
                     << Field("status", status);
  Report(peer, status);
  return fetched;
}

absl::StatusOr<weights::Chunk> ConditioningSource::FetchFromLearner(const Content& content) {
  absl::StatusOr<weights::Chunk> fetched;
  const auto pause = [this](absl::Duration wait) {
    cancelled_.WaitForNotificationWithTimeout(wait);
  };
  const absl::Status status = rpc::Retry(
      {.tries = options_.tries,
       .backoff_first = options_.backoff_first,
       .backoff_max = options_.backoff_max},
      [&] { return (fetched = FetchOnce(content, options_.learner, /*peer=*/false)).status(); },
      pause);
  if (status.ok()) return fetched;
  return absl::Status(status.code(), absl::StrCat("conditioning: ", status.message()));
}

absl::StatusOr<weights::Chunk> ConditioningSource::FetchOnce(const Content& content,
                                                             const std::string& endpoint,
                                                             bool peer) {
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(endpoint));
  const auto context = rpc::ContextWithDeadline(kFetchAtMost);
  if (cancelled_.HasBeenNotified()) return absl::CancelledError("stopping");
  rpc::SilenceGuard::Watched watched(guard_, *context,
                                     peer ? options_.peer_silence : options_.learner_silence);
  v1::FetchRequest request;
  request.set_epoch(options_.epoch.value);
  request.set_worker_id(options_.worker_id);
  request.add_chunk_sha256(content.sha256);
  request.set_at_once(true);
  const auto reader = stub->Fetch(context.get(), request);
  std::string bytes;
  bytes.reserve(content.bytes);
  absl::Status taken;
  for (v1::FetchResponse piece; taken.ok() && reader->Read(&piece);) {
    watched.SignOfLife();
    taken = Take(piece, content.bytes, bytes);
  }
  if (!taken.ok()) context->TryCancel();
  const absl::Status finished = rpc::FromGrpc(reader->Finish());
  if (!taken.ok()) return taken;
  if (watched.silent()) return absl::DeadlineExceededError(absl::StrCat("silent: ", endpoint));
  if (absl::IsCancelled(finished) && !cancelled_.HasBeenNotified()) {
    return absl::UnavailableError(std::string(finished.message()));  // The server shuts down.
  }
  if (!finished.ok()) return finished;
  if (Sha256(bytes) != content.sha256) {
    return absl::DataLossError(absl::StrCat("bytes with another hash came from ", endpoint));
  }
  metrics_.ConditioningFrom(peer ? "peer" : "learner", bytes.size());
  return held_.Put(content.sha256, std::make_shared<const std::string>(std::move(bytes)));
}

// Best effort: a peer that is not reported costs the next worker a wait.
void ConditioningSource::Report(const v1::Lease::Peer& peer, const absl::Status& fault) {
  v1::ReportPeerRequest report;
  report.set_epoch(options_.epoch.value);
  report.set_worker_id(options_.worker_id);
  report.mutable_peer()->set_worker_id(peer.worker_id());
  report.mutable_peer()->set_endpoint(peer.endpoint());
  report.set_fault(absl::IsDataLoss(fault)           ? v1::PEER_FAULT_CORRUPT
                   : absl::IsDeadlineExceeded(fault) ? v1::PEER_FAULT_STALLED
                                                     : v1::PEER_FAULT_UNREACHABLE);
  report.set_detail(fault.ToString());
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(options_.learner));
  const auto context = rpc::ContextWithDeadline(kReportAtMost);
  v1::ReportPeerResponse response;
  const absl::Status sent = rpc::FromGrpc(stub->ReportPeer(context.get(), report, &response));
  if (!sent.ok()) {
    OXBOW_LOG(Warning) << "peer's fault not reported" << Field("status", sent);
  }
}

}  // namespace oxbow::rollout
