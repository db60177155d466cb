#include "services/weights/weight_follower.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "rpc/channel.h"
#include "rpc/status.h"

namespace oxbow::weights {
namespace {

// A watch lives until someone ends it; the deadline only bounds a connection
// nobody noticed dying.
constexpr absl::Duration kWatchAtMost = absl::Hours(1);

}  // namespace

// The chunks of one manifest on their way: verified ones, the list still
// lacking, the partial first.
class WeightFollower::Download {
 public:
  Download(const v1::SnapshotManifest& manifest, const ChunksByHash& cache) {
    for (ChunkSize& chunk : ChunksOf(manifest)) {
      const auto cached = cache.find(chunk.sha256);
      if (cached != cache.end()) {
        verified_.emplace(chunk.sha256, cached->second);
      } else {
        lacking_.push_back(std::move(chunk));
      }
    }
  }

  bool complete() const { return lacking_.empty(); }
  size_t lacking() const { return lacking_.size(); }
  uint64_t bytes() const { return bytes_; }
  size_t progress() const { return verified_.size(); }
  ChunksByHash& verified() { return verified_; }

  v1::FetchRequest Request(uint64_t first_offset_unless_zero) const {
    v1::FetchRequest request;
    for (const ChunkSize& chunk : lacking_) request.add_chunk_sha256(chunk.sha256);
    request.set_first_offset(first_offset_unless_zero);
    return request;
  }
  uint64_t resume_offset() const { return partial_.size(); }

  // Takes a piece of the first chunk that is still lacking. kDataLoss: that
  // chunk's hash was wrong; it goes to the end of the list. kInvalidArgument: a
  // piece nobody asked for.
  absl::Status Take(const v1::FetchResponse& piece) {
    if (lacking_.empty()) return absl::InvalidArgumentError("more chunks than were asked for");
    const ChunkSize& chunk = lacking_.front();
    if (piece.chunk_sha256() != chunk.sha256 || piece.offset() != partial_.size() ||
        piece.data().empty() || piece.data().size() > chunk.bytes - partial_.size()) {
      partial_.clear();
      return absl::InvalidArgumentError(
          absl::StrCat("piece does not continue the chunk: offset ", piece.offset()));
    }
    partial_ += piece.data();
    bytes_ += piece.data().size();
    if (partial_.size() < chunk.bytes) return absl::OkStatus();
    std::string whole = std::exchange(partial_, {});
    if (Sha256(whole) != chunk.sha256) {
      std::rotate(lacking_.begin(), lacking_.begin() + 1, lacking_.end());
      return absl::DataLossError("chunk does not match its hash");
    }
    verified_.emplace(chunk.sha256, std::make_shared<const std::string>(std::move(whole)));
    lacking_.erase(lacking_.begin());
    return absl::OkStatus();
  }

 private:
  ChunksByHash verified_;
  std::vector<ChunkSize> lacking_;
  std::string partial_;  // Of lacking_.front().
  uint64_t bytes_ = 0;
};

WeightFollower::WeightFollower(Options options, FollowMetrics& metrics, const Clock& clock,
                               std::function<void()> on_ready)
    : options_(std::move(options)),
      metrics_(metrics),
      clock_(clock),
      on_ready_(std::move(on_ready)) {
  OXBOW_CHECK(!options_.endpoints.empty()) << "weight endpoints";
  thread_ = std::thread([this] { WatchLoop(); });
}

WeightFollower::~WeightFollower() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    if (watch_call_ != nullptr) watch_call_->TryCancel();
    if (fetch_call_ != nullptr) fetch_call_->TryCancel();
  }
  thread_.join();
}

std::optional<VerifiedSnapshot> WeightFollower::TakeNewest() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(ready_, std::nullopt);
}

bool WeightFollower::Sleep(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  return !mutex_.AwaitWithTimeout(absl::Condition(&stopping_), duration);
}

bool WeightFollower::BeginCall(grpc::ClientContext* context) {
  absl::MutexLock lock(&mutex_);
  fetch_call_ = stopping_ ? nullptr : context;
  return !stopping_;
}

void WeightFollower::EndCall() {
  absl::MutexLock lock(&mutex_);
  fetch_call_ = nullptr;
}

void WeightFollower::WatchLoop() {
  absl::Duration backoff = options_.backoff_first;
  bool said = false;  // Since a snapshot came last.
  for (size_t turn = 0;; ++turn) {
    const uint64_t before = have_version_;
    const std::string& endpoint = options_.endpoints[turn % options_.endpoints.size()];
    const absl::Status ended = WatchOnce(endpoint);
    if (before != have_version_) {
      backoff = options_.backoff_first;
      said = false;
    }
    if (!Sleep(backoff)) return;
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
  const auto context = rpc::ContextWithDeadline(kWatchAtMost);
  v1::WatchRequest request;
  request.set_epoch(options_.epoch.value);
  request.set_worker_id(options_.worker_id);
  request.set_have_any(have_any_);
  request.set_have_version(have_version_);
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError("stopping");
    watch_call_ = context.get();
    endpoint_ = endpoint;
  }
  const auto reader = stub->Watch(context.get(), request);
  v1::SnapshotManifest manifest;
  absl::Status outcome;
  while (outcome.ok() && reader->Read(&manifest)) {
    metrics_.Announced(PolicyVersion(manifest.policy_version()));
    outcome = Obtain(manifest, *stub);
    if (outcome.code() == absl::StatusCode::kDataLoss ||
        outcome.code() == absl::StatusCode::kInvalidArgument) {
      ReportRefused(manifest, outcome);
    }
  }
  context->TryCancel();
  const absl::Status ended = rpc::FromGrpc(reader->Finish());
  absl::MutexLock lock(&mutex_);
  watch_call_ = nullptr;
  return outcome.ok() ? ended : outcome;
}

absl::Status WeightFollower::Obtain(const v1::SnapshotManifest& manifest,
                                    v1::WeightChannel::Stub& stub) {
  OXBOW_RETURN_IF_ERROR(CheckManifest(manifest, options_.bytes_max));
  const absl::Duration start = clock_.Now();
  Download download(manifest, cache_);
  absl::Duration backoff = options_.backoff_first;
  for (int tries = 0; !download.complete();) {
    const size_t before = download.progress();
    const absl::Status fetched = FetchOnce(download, stub);
    if (fetched.code() == absl::StatusCode::kNotFound ||
        fetched.code() == absl::StatusCode::kAborted) {
      return fetched;
    }
    tries = download.progress() > before ? 0 : tries + 1;
    if (tries >= options_.tries) {
      return absl::DataLossError(absl::StrCat("weights could not be fetched: ", download.lacking(),
                                              " chunks lack, last: ", fetched.ToString()));
    }
    if (tries > 0) {
      if (!Sleep(backoff)) return absl::CancelledError("stopping");
      backoff = std::min(2 * backoff, options_.backoff_max);
    }
  }
  cache_ = std::move(download.verified());
  have_any_ = true;
  have_version_ = manifest.policy_version();
  const absl::Duration took = clock_.Now() - start;
  metrics_.Fetched(took, download.bytes());
  VerifiedSnapshot verified{manifest, AssembleTensors(manifest, cache_), download.bytes(), took};
  {
    absl::MutexLock lock(&mutex_);
    ready_ = std::move(verified);
  }
  if (on_ready_) on_ready_();
  return absl::OkStatus();
}

absl::Status WeightFollower::FetchOnce(Download& download, v1::WeightChannel::Stub& stub) {
  const auto context = rpc::ContextWithDeadline(options_.timeout);
  if (!BeginCall(context.get())) return absl::CancelledError("stopping");
  v1::FetchRequest request = download.Request(download.resume_offset());
  request.set_epoch(options_.epoch.value);
  request.set_worker_id(options_.worker_id);
  const auto reader = stub.Fetch(context.get(), request);
  v1::FetchResponse piece;
  absl::Status taken;
  while (taken.ok() && reader->Read(&piece)) {
    taken = download.Take(piece);
    if (taken.code() == absl::StatusCode::kDataLoss) {
      metrics_.ChunkCorrupt();
      OXBOW_LOG(Warning) << "weight chunk corrupt, fetching again"
                         << Field("sha256", HexOf(piece.chunk_sha256()));
    }
  }
  if (!taken.ok()) context->TryCancel();
  const absl::Status finished = rpc::FromGrpc(reader->Finish());
  EndCall();
  return taken.ok() ? finished : taken;
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
    endpoint = endpoint_.empty() ? options_.endpoints.front() : endpoint_;
  }
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(endpoint));
  return rpc::Retry({.tries = 2}, [&] {
    v1::ReportAppliedResponse response;
    const auto context = rpc::ContextWithDeadline(std::min(options_.timeout, absl::Seconds(5)));
    return rpc::FromGrpc(stub->ReportApplied(context.get(), report, &response));
  });
}

}  // namespace oxbow::weights
