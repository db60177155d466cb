// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/conditioning_source.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "services/weights/snapshot.h"

namespace oxbow::rollout {
namespace {

constexpr size_t kSha256Bytes = 32;
// Limits of one call of GetAll: peers that fetch the same have more of it by the next one.
constexpr size_t kContentsOfCall = 512;
constexpr uint64_t kBytesOfCall = uint64_t{64} << 20;
constexpr char kWhat[] = "conditioning";

// Contents that one call may bring, of those still missing from `next` on, which moves past them.
std::vector<weights::ChunkSize> NextPart(const std::vector<weights::ChunkSize>& contents,
                                         const weights::ChunksByHash& got, size_t& next) {
  std::vector<weights::ChunkSize> part;
  for (uint64_t bytes = 0; next < contents.size() && part.size() < kContentsOfCall; ++next) {
    if (got.contains(contents[next].sha256)) continue;
    bytes += contents[next].bytes;
    if (!part.empty() && bytes > kBytesOfCall) break;
    part.push_back(contents[next]);
  }
  return part;
}

constexpr uint64_t kBytesMax = uint64_t{1} << 40;
constexpr int kAppliedMax = 2;

}  // namespace

struct ConditioningSource::Round {
  std::vector<Content> contents;
  std::optional<weights::Download> download;  // Holds what has come until all have taken it.
  bool done = false;
};

ConditioningSource::ConditioningSource(Options options, weights::ContentStore& held,
                                       RolloutMetrics& metrics,
                                       weights::FollowMetrics& follow_metrics, const Clock& clock)
    : options_(std::move(options)),
      held_(held),
      metrics_(metrics),
      fetcher_({.epoch = options_.epoch,
                .worker_id = options_.worker_id,
                .learner_silence = options_.learner_silence,
                .tries = options_.tries,
                .backoff_first = options_.backoff_first,
                .backoff_max = options_.backoff_max,
                .at_once = true,
                .received =
                    [&metrics](uint64_t bytes, weights::Source source) {
                      const bool peer = source == weights::Source::kPeer;
                      metrics.ConditioningFrom(peer ? "peer" : "learner", bytes);
                    }},
               follow_metrics, clock) {}

ConditioningSource::Content ConditioningSource::ConditioningOf(const v1::Lease& lease) {
  return {.sha256 = lease.conditioning_sha256(), .bytes = lease.conditioning_bytes(), .xxh3 = ""};
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
  if (content.bytes > 0 && content.bytes <= options_.bytes_max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot be fetched: ", content.bytes, " bytes, limit ", options_.bytes_max));
}

std::vector<weights::Peer> ConditioningSource::Others(const Peers& peers) const {
  std::vector<weights::Peer> others;
  for (const v1::Lease::Peer& peer : peers) {
    if (peer.worker_id() == options_.worker_id) continue;
    others.emplace_back().set_worker_id(peer.worker_id());
    others.back().set_endpoint(peer.endpoint());
  }
  return others;
}

absl::StatusOr<weights::Chunk> ConditioningSource::Get(const Content& content, const Peers& peers) {
  if (weights::Chunk held = Held(content); held != nullptr) return held;
  return Fetch(content, peers);
}

absl::StatusOr<weights::Chunk> ConditioningSource::Fetch(const Content& content,
                                                         const Peers& peers) {
  OXBOW_RETURN_IF_ERROR(Check(content));
  weights::Download download = weights::Download::Of({content}, held_);
  weights::PeerFaults faults;
  OXBOW_RETURN_IF_ERROR(fetcher_.FetchFromPeers(download, Others(peers), faults));
  fetcher_.Report(options_.learner, std::move(faults));
  if (!download.complete()) {
    const std::shared_ptr<const Round> round = FetchTogether(content);
    // The call may have failed. Then each fetches alone, as often as is worth it: nobody waits for
    // another one's failure, and each has its own.
    download = weights::Download::Of({content}, held_);
    weights::PeerFaults none;
    OXBOW_RETURN_IF_ERROR(Annotate(fetcher_.Fetch(download, {}, options_.learner, none), kWhat));
  }
  return download.verified().begin()->second;
}

// A step's leases come at once, and a call costs more than the bytes of most prompts: those who
// come while a call is under way are in the next one. Returns what holds its contents.
std::shared_ptr<const ConditioningSource::Round> ConditioningSource::FetchTogether(
    const Content& content) {
  std::shared_ptr<Round> round;
  {
    absl::MutexLock lock(&mutex_);
    const bool leads = next_ == nullptr;
    if (leads) next_ = std::make_shared<Round>();
    round = next_;
    round->contents.push_back(content);
    const auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return round->done; };
    const auto free = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !fetching_; };
    if (!leads) {
      mutex_.Await(absl::Condition(&done));
      return round;
    }
    mutex_.Await(absl::Condition(&free));
    fetching_ = true;
    next_.reset();  // From here on the round is this thread's own.
  }
  round->download = weights::Download::Of(round->contents, held_);
  fetcher_.Ask(*round->download, options_.learner, weights::Source::kLearner).IgnoreError();
  absl::MutexLock lock(&mutex_);
  fetching_ = false;
  round->done = true;
  return round;
}

absl::StatusOr<weights::ChunksByHash> ConditioningSource::GetAll(
    const std::vector<Content>& contents, const Peers& peers) {
  weights::ChunksByHash got;
  for (const Content& content : contents) {
    OXBOW_RETURN_IF_ERROR(Check(content));
    if (weights::Chunk held = Held(content); held != nullptr) got.emplace(content.sha256, held);
  }
  std::vector<weights::Peer> asked = Others(peers);
  for (size_t next = 0; next < contents.size();) {
    weights::Download download = weights::Download::Of(NextPart(contents, got, next), held_);
    weights::PeerFaults faults;
    const absl::Status status = fetcher_.Fetch(download, asked, options_.learner, faults);
    // A peer may lack what comes last, since it fetches the same at the same time. Those that fail
    // are asked no more.
    for (const v1::ReportPeerRequest& fault : faults) {
      std::erase_if(asked, [&](const weights::Peer& peer) {
        return peer.endpoint() == fault.peer().endpoint();
      });
    }
    fetcher_.Report(options_.learner, std::move(faults));
    OXBOW_RETURN_IF_ERROR(Annotate(status, kWhat));
    got.insert(download.verified().begin(), download.verified().end());
  }
  return got;
}

EvaluatedWeights::EvaluatedWeights(ConditioningSource& source,
                                   std::function<weights::Chunk(const std::string&)> held)
    : source_(source), held_(std::move(held)) {}

absl::StatusOr<EvaluatedWeights::Weights> EvaluatedWeights::Get(
    const v1::Lease::Pictures& pictures) {
  absl::MutexLock one(&fetching_);  // The next caller finds what this one has fetched.
  {
    absl::MutexLock lock(&mutex_);
    applied_ = 0;
    if (last_ != nullptr && sha256_ == pictures.weights().sha256()) return last_;
    last_.reset();
  }
  OXBOW_ASSIGN_OR_RETURN(Weights fetched, Fetch(pictures));
  absl::MutexLock lock(&mutex_);
  sha256_ = pictures.weights().sha256();
  last_ = fetched;
  return fetched;
}

absl::StatusOr<EvaluatedWeights::Weights> EvaluatedWeights::Fetch(
    const v1::Lease::Pictures& pictures) {
  OXBOW_ASSIGN_OR_RETURN(
      const weights::Chunk manifest,
      source_.Get(
          {.sha256 = pictures.weights().sha256(), .bytes = pictures.weights().bytes(), .xxh3 = ""},
          pictures.peers()));
  auto fetched = std::make_shared<weights::VerifiedSnapshot>();
  if (!fetched->manifest.ParseFromString(*manifest)) {
    return absl::DataLossError("the manifest of an evaluation's weights is no message");
  }
  OXBOW_RETURN_IF_ERROR(weights::CheckManifest(fetched->manifest, kBytesMax));
  std::vector<ConditioningSource::Content> wanted;
  for (const weights::ChunkSize& chunk : weights::ChunksOf(fetched->manifest)) {
    if (weights::Chunk bytes = held_(chunk.sha256); bytes != nullptr) {
      fetched->chunks.emplace(chunk.sha256, std::move(bytes));
    } else {
      wanted.push_back(chunk);
    }
  }
  OXBOW_ASSIGN_OR_RETURN(weights::ChunksByHash chunks, source_.GetAll(wanted, pictures.peers()));
  fetched->chunks.merge(chunks);
  return fetched;
}

void EvaluatedWeights::Applied() {
  absl::MutexLock lock(&mutex_);
  if (++applied_ >= kAppliedMax) last_.reset();
}

}  // namespace oxbow::rollout
