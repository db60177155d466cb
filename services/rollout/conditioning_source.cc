// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/conditioning_source.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status_macros.h"
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
// Limits of one call of GetAll: its bytes are there twice until they are checked.
constexpr size_t kContentsOfCall = 512;
constexpr uint64_t kBytesOfCall = uint64_t{64} << 20;

// The contents of one call, which come one after the other: each as pieces in order, or as a small
// chunk.
class Arriving {
 public:
  explicit Arriving(const std::vector<ConditioningSource::Content>& contents)
      : contents_(contents), bytes_(contents.size()) {}

  // kDataLoss if a piece does not go on from what came before it.
  absl::Status Take(const v1::FetchResponse& message) {
    if (!message.data().empty()) {
      OXBOW_RETURN_IF_ERROR(TakePiece(message.chunk_sha256(), message.offset(), message.data()));
    }
    for (const v1::FetchResponse::SmallChunk& small : message.small()) {
      OXBOW_RETURN_IF_ERROR(TakePiece(small.chunk_sha256(), 0, small.data()));
    }
    return absl::OkStatus();
  }
  std::vector<std::string>& bytes() { return bytes_; }

 private:
  absl::Status TakePiece(const std::string& sha256, uint64_t offset, const std::string& data) {
    while (at_ < contents_.size() && contents_[at_].sha256 != sha256) ++at_;
    if (at_ == contents_.size()) return absl::DataLossError("a piece that nobody asked for");
    std::string& bytes = bytes_[at_];
    const uint64_t wanted = contents_[at_].bytes;
    if (offset != bytes.size() || data.size() > wanted - bytes.size()) {
      return absl::DataLossError(absl::StrCat("a piece that does not fit: ", data.size(),
                                              " bytes at ", offset, ", ", bytes.size(),
                                              " are here of ", wanted));
    }
    bytes.reserve(wanted);
    bytes += data;
    return absl::OkStatus();
  }

  const std::vector<ConditioningSource::Content>& contents_;
  std::vector<std::string> bytes_;
  size_t at_ = 0;  // The content that comes now.
};

}  // namespace

struct ConditioningSource::Round {
  std::vector<Content> contents;
  std::vector<weights::Chunk> fetched;  // One for each content; null: not by this call.
  bool done = false;

  size_t PlaceOf(const Content& content) {
    const auto same = [&](const Content& other) { return other.sha256 == content.sha256; };
    const auto place = static_cast<size_t>(std::find_if(contents.begin(), contents.end(), same) -
                                           contents.begin());
    if (place == contents.size()) contents.push_back(content);
    return place;
  }
};

// Contents of GetAll that come in one call, or in more if that one brings a part of them.
struct ConditioningSource::Part {
  std::vector<size_t> places;  // Among all.
  std::vector<Content> contents;
  std::vector<weights::Chunk> got;  // One for each; null: it lacks.

  size_t lacking() const {
    return static_cast<size_t>(std::count(got.begin(), got.end(), nullptr));
  }
};

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

absl::Status ConditioningSource::Check(const Content& content) const {
  if (content.sha256.size() != kSha256Bytes) {
    return absl::InvalidArgumentError("the lease names it by no hash");
  }
  if (content.bytes <= options_.bytes_max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("too large to be fetched: ", content.bytes, " bytes"));
}

absl::StatusOr<weights::Chunk> ConditioningSource::Fetch(const Content& content) {
  OXBOW_RETURN_IF_ERROR(Check(content));
  for (const v1::Lease::Peer& peer : content.peers) {
    if (peer.worker_id() == options_.worker_id) continue;
    absl::StatusOr<weights::Chunk> fetched = FetchFromPeer(content, peer);
    if (fetched.ok() || absl::IsCancelled(fetched.status())) return fetched;
  }
  return FetchFromLearner(content);
}

absl::StatusOr<weights::Chunk> ConditioningSource::FetchFromPeer(const Content& content,
                                                                 const v1::Lease::Peer& peer) {
  std::vector<weights::Chunk> fetched(1);
  const absl::Status status = FetchOnce({content}, peer.endpoint(), /*peer=*/true, fetched);
  if (status.ok()) return fetched[0];
  Blame(peer, status);
  return status;
}

// A peer that holds it no more has done nothing wrong.
void ConditioningSource::Blame(const v1::Lease::Peer& peer, const absl::Status& status) {
  if (status.ok() || absl::IsCancelled(status) || absl::IsNotFound(status)) return;
  OXBOW_LOG(Warning) << "peer gave no conditioning, asking the next source"
                     << Field("peer", peer.worker_id()) << Field("endpoint", peer.endpoint())
                     << Field("status", status);
  Report(peer, status);
}

absl::StatusOr<std::vector<weights::Chunk>> ConditioningSource::GetAll(
    const std::vector<Content>& contents, const std::vector<v1::Lease::Peer>& peers) {
  std::vector<weights::Chunk> got;
  for (const Content& content : contents) {
    OXBOW_RETURN_IF_ERROR(Check(content));
    got.push_back(Held(content));
  }
  std::vector<v1::Lease::Peer> asked = peers;
  std::erase_if(asked, [this](const v1::Lease::Peer& peer) {
    return peer.worker_id() == options_.worker_id;
  });
  for (size_t next = 0; next < contents.size();) {
    Part part = NextPart(contents, got, next);
    OXBOW_RETURN_IF_ERROR(FetchPart(asked, part));
    for (size_t i = 0; i < part.places.size(); ++i) got[part.places[i]] = std::move(part.got[i]);
  }
  return got;
}

// Contents that one call may bring, of those still missing from `next` on, which moves past them.
ConditioningSource::Part ConditioningSource::NextPart(const std::vector<Content>& contents,
                                                      const std::vector<weights::Chunk>& got,
                                                      size_t& next) {
  Part part;
  for (uint64_t bytes = 0; next < contents.size() && part.places.size() < kContentsOfCall; ++next) {
    if (got[next] != nullptr) continue;
    bytes += contents[next].bytes;
    if (!part.places.empty() && bytes > kBytesOfCall) break;
    part.places.push_back(next);
    part.contents.push_back(contents[next]);
  }
  part.got.resize(part.places.size());
  return part;
}

// From the peers, of which those that fail are asked no more, and the rest from the learner. A peer
// may lack what comes last, since it fetches the same at the same time: it has done nothing wrong.
absl::Status ConditioningSource::FetchPart(std::vector<v1::Lease::Peer>& peers, Part& part) {
  for (auto peer = peers.begin(); peer != peers.end();) {
    const absl::Status status = FetchLacking(peer->endpoint(), /*peer=*/true, part);
    if (absl::IsCancelled(status)) return status;
    Blame(*peer, status);
    peer = status.ok() || absl::IsNotFound(status) ? peer + 1 : peers.erase(peer);
  }
  return FetchRestFromLearner(part);
}

// A few times if the learner is away, and as often again after a call that brought something.
absl::Status ConditioningSource::FetchRestFromLearner(Part& part) {
  while (true) {
    const size_t before = part.lacking();
    const absl::Status status =
        Again([&] { return FetchLacking(options_.learner, /*peer=*/false, part); });
    const rpc::Failure failure = rpc::FailureOf(status);
    const bool away = failure == rpc::Failure::kAbsent || failure == rpc::Failure::kBusy;
    if (!away || part.lacking() == before) return status;
  }
}

absl::Status ConditioningSource::FetchLacking(const std::string& endpoint, bool peer, Part& part) {
  std::vector<size_t> places;
  std::vector<Content> asked;
  for (size_t i = 0; i < part.got.size(); ++i) {
    if (part.got[i] != nullptr) continue;
    places.push_back(i);
    asked.push_back(part.contents[i]);
  }
  if (asked.empty()) return absl::OkStatus();
  std::vector<weights::Chunk> fetched(asked.size());
  const absl::Status status = FetchOnce(asked, endpoint, peer, fetched);
  for (size_t i = 0; i < places.size(); ++i) part.got[places[i]] = std::move(fetched[i]);
  return status;
}

// Asks the learner, a few times if it is away.
absl::Status ConditioningSource::Again(const std::function<absl::Status()>& ask) {
  const auto pause = [this](absl::Duration wait) {
    cancelled_.WaitForNotificationWithTimeout(wait);
  };
  const absl::Status status = rpc::Retry({.tries = options_.tries,
                                          .backoff_first = options_.backoff_first,
                                          .backoff_max = options_.backoff_max},
                                         ask, pause);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("conditioning: ", status.message()));
}

// A step's leases come at once, and a call costs more than the bytes of most prompts: those who
// come while a call is under way are in the next one.
absl::StatusOr<weights::Chunk> ConditioningSource::FetchFromLearner(const Content& content) {
  std::shared_ptr<Round> round;
  size_t place = 0;
  bool leads = false;
  {
    absl::MutexLock lock(&mutex_);
    leads = next_ == nullptr;
    if (leads) next_ = std::make_shared<Round>();
    round = next_;
    place = round->PlaceOf(content);
    const auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return round->done; };
    const auto free = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !fetching_; };
    if (!leads) {
      mutex_.Await(absl::Condition(&done));
    } else {
      mutex_.Await(absl::Condition(&free));
      fetching_ = true;
      next_.reset();  // From here on the round is this thread's own.
    }
  }
  if (leads) {
    FetchRound(*round);
    absl::MutexLock lock(&mutex_);
    fetching_ = false;
    round->done = true;
  }
  if (round->fetched[place] != nullptr) return round->fetched[place];
  // Alone, as often as is worth it: nobody waits for another one's failure, and each has its own.
  return FetchAlone(content);
}

void ConditioningSource::FetchRound(Round& round) {
  round.fetched.resize(round.contents.size());
  FetchOnce(round.contents, options_.learner, /*peer=*/false, round.fetched).IgnoreError();
}

absl::StatusOr<weights::Chunk> ConditioningSource::FetchAlone(const Content& content) {
  std::vector<weights::Chunk> fetched(1);
  OXBOW_RETURN_IF_ERROR(
      Again([&] { return FetchOnce({content}, options_.learner, /*peer=*/false, fetched); }));
  return fetched[0];
}

absl::Status ConditioningSource::FetchOnce(const std::vector<Content>& contents,
                                           const std::string& endpoint, bool peer,
                                           std::vector<weights::Chunk>& fetched) {
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(endpoint));
  const auto context = rpc::ContextWithDeadline(kFetchAtMost);
  if (cancelled_.HasBeenNotified()) return absl::CancelledError("stopping");
  rpc::SilenceGuard::Watched watched(guard_, *context,
                                     peer ? options_.peer_silence : options_.learner_silence);
  v1::FetchRequest request;
  request.set_epoch(options_.epoch.value);
  request.set_worker_id(options_.worker_id);
  for (const Content& content : contents) request.add_chunk_sha256(content.sha256);
  request.set_at_once(true);
  const auto reader = stub->Fetch(context.get(), request);
  Arriving arriving(contents);
  absl::Status taken;
  for (v1::FetchResponse message; taken.ok() && reader->Read(&message);) {
    watched.SignOfLife();
    taken = arriving.Take(message);
  }
  if (!taken.ok()) context->TryCancel();
  const absl::Status finished = rpc::FromGrpc(reader->Finish());
  absl::Status complete;
  for (size_t i = 0; i < contents.size(); ++i) {
    std::string& bytes = arriving.bytes()[i];
    if (Sha256(bytes) != contents[i].sha256) {
      complete = absl::DataLossError(absl::StrCat("bytes with another hash came from ", endpoint));
      continue;
    }
    metrics_.ConditioningFrom(peer ? "peer" : "learner", bytes.size());
    fetched[i] =
        held_.Put(contents[i].sha256, std::make_shared<const std::string>(std::move(bytes)));
  }
  if (!taken.ok()) return taken;
  if (watched.silent()) return absl::DeadlineExceededError(absl::StrCat("silent: ", endpoint));
  if (absl::IsCancelled(finished) && !cancelled_.HasBeenNotified()) {
    return absl::UnavailableError(std::string(finished.message()));  // The server shuts down.
  }
  return finished.ok() ? complete : finished;
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
