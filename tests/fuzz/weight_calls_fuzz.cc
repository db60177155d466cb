// SPDX-License-Identifier: Apache-2.0
// For any calls of watchers: the learner's weight channel tells them of what it published, and
// sends the bytes of its own chunks and no others.
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/check.h"
#include "services/weights/manifest_delta.h"
#include "services/weights/snapshot_maker.h"
#include "services/weights/weight_channel_service.h"
#include "telemetry/metrics.h"
#include "tests/fuzz/call_script.h"
#include "tests/fuzz/served_stream.h"

namespace oxbow::weights {
namespace {

constexpr Epoch kEpoch{7};
constexpr uint64_t kChunk = 16, kPiece = 8;
constexpr size_t kWatchersMax = 8;

enum Call : uint8_t { kWatch, kFetch, kApplied, kPeer, kPublish, kLeave, kCalls };

Snapshot Version(uint64_t version) {
  const auto bytes = [](std::string data) {
    const auto size = static_cast<int64_t>(data.size());
    return io::TensorBytes{io::DType::kU8, {size}, std::move(data)};
  };
  return MakeSnapshot({kEpoch, PolicyVersion(version), LearnerStep(version)},
                      {{"base", bytes(std::string(40, 'b'))}},
                      {{"adapter", bytes(std::string(40, static_cast<char>(version)))}}, kChunk);
}

class Channel {
 public:
  Channel()
      : metrics_(registry_),
        service_({.epoch = kEpoch,
                  .snapshots_kept = 2,
                  .bytes_max = 1 << 10,
                  .piece_bytes = kPiece,
                  .streams = fuzz::NoThreads()},
                 metrics_, clock_, [](const v1::ReportAppliedRequest&) {}) {
    Publish();
  }
  ~Channel() {
    service_.Stop();
    watchers_.clear();
  }

  void Do(const fuzz::CallStep& step) {
    switch (step.call) {
      case kWatch:
        Watch(step);
        break;
      case kFetch:
        Fetch(step);
        break;
      case kApplied:
        Unary(step, &WeightChannelService::ReportApplied);
        break;
      case kPeer:
        Unary(step, &WeightChannelService::ReportPeer);
        break;
      case kPublish:
        Publish();
        break;
      default:
        if (!watchers_.empty()) watchers_.pop_front();
    }
    for (auto& watcher : watchers_) watcher->Serve();
  }

 private:
  using Watcher = fuzz::ServedWriter<WatchMessage>;
  using FetchCall = fuzz::ServedStream<v1::FetchRequest, FetchPiece>;

  void Publish() {
    const Snapshot snapshot = Version(++version_);
    OXBOW_CHECK(service_.Publish(snapshot).ok());
    for (const auto& [hash, chunk] : snapshot.chunks) published_[hash] = *chunk;
    manifests_[snapshot.manifest.sha256()] = snapshot.manifest;
  }

  // The manifest that a watcher makes of what it is told; nothing if it is told none.
  std::optional<v1::SnapshotManifest> ManifestOf(const WatchMessage& message) const {
    if (message.manifest == nullptr) return std::nullopt;
    v1::WatchResponse told;
    OXBOW_CHECK(told.ParseFromString(*message.manifest));
    if (told.has_manifest()) return told.manifest();
    return ManifestFrom(manifests_.at(told.delta().from_sha256()), told.delta()).value();
  }

  void Watch(const fuzz::CallStep& step) {
    v1::WatchRequest request;
    if (!fuzz::Parse(step.message, request)) return;
    if (watchers_.size() == kWatchersMax) watchers_.pop_front();
    watchers_.push_back(std::make_unique<Watcher>(
        service_.Watch(&contexts_.emplace_back(), &request), [this](const WatchMessage& message) {
          const std::optional<v1::SnapshotManifest> told = ManifestOf(message);
          if (!told.has_value()) return;
          OXBOW_CHECK(told->policy_version() <= version_);
          OXBOW_CHECK(CheckManifest(*told, UINT64_MAX).ok());
        }));
  }

  void Fetch(const fuzz::CallStep& step) {
    FetchCall call(
        FetchStream::Start(
            contexts_.emplace_back(), service_.streams(),
            [this](FetchStream& stream) { return service_.Fetch(stream); }, std::nullopt),
        fuzz::RunnerOf(service_.streams()), [this](const FetchPiece& piece) {
          OXBOW_CHECK(piece.bytes <= kPiece) << piece.bytes;
          OXBOW_CHECK(published_.at(piece.sha256) == *piece.chunk);
          OXBOW_CHECK(piece.offset + piece.bytes <= piece.chunk->size()) << piece.offset;
        });
    call.Send(step.message);
  }

  template <typename Request, typename Response>
  void Unary(const fuzz::CallStep& step,
             grpc::Status (WeightChannelService::*method)(grpc::ServerContext*, const Request*,
                                                          Response*)) {
    Request request;
    Response response;
    grpc::ServerContext context;
    if (fuzz::Parse(step.message, request)) (service_.*method)(&context, &request, &response);
  }

  FakeClock clock_;
  prometheus::Registry registry_;
  PublishMetrics metrics_;
  std::list<grpc::CallbackServerContext> contexts_;
  uint64_t version_ = 0;
  std::map<std::string, std::string> published_;
  std::map<std::string, v1::SnapshotManifest> manifests_;  // By hash.
  WeightChannelService service_;
  std::list<std::unique_ptr<Watcher>> watchers_;
};

}  // namespace
}  // namespace oxbow::weights

std::vector<const google::protobuf::Message*> oxbow::fuzz::CallMessages() {
  return {&v1::WatchRequest::default_instance(),
          &v1::FetchRequest::default_instance(),
          &v1::ReportAppliedRequest::default_instance(),
          &v1::ReportPeerRequest::default_instance(),
          nullptr,
          nullptr};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  fuzz::BeQuiet();
  weights::Channel channel;
  for (const fuzz::CallStep& step : fuzz::Script(data, size, weights::kCalls)) channel.Do(step);
  return 0;
}
