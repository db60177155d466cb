// SPDX-License-Identifier: Apache-2.0
#include "bench/coordinator_egress.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/sha256.h"
#include "metrics/exported_metrics.h"
#include "oxbow/v1/weight_channel.grpc.pb.h"
#include "telemetry/metrics.h"

namespace oxbow::bench {
namespace {

constexpr uint64_t kChunkBytes = 1024;  // A thousandth of the product's.

// Bytes that differ in each chunk and between seeds.
std::string Noise(uint64_t chunks, uint64_t seed) {
  std::string bytes(chunks * kChunkBytes, '\0');
  for (uint64_t i = 0; i < chunks; ++i) {
    const std::string mark = absl::StrCat(seed, " ", i, " ");
    bytes.replace(i * kChunkBytes, mark.size(), mark);
  }
  return bytes;
}

// Tensors of 64 chunks, as a transformer's matrices of 64 MiB have.
weights::TensorBytesByName Tensors(const std::string& name, uint64_t chunks, uint64_t seed) {
  constexpr uint64_t kChunksOfTensor = 64;
  weights::TensorBytesByName tensors;
  for (uint64_t first = 0; first < chunks; first += kChunksOfTensor) {
    std::string bytes = Noise(std::min(kChunksOfTensor, chunks - first), seed + first);
    const auto size = static_cast<int64_t>(bytes.size());
    tensors[absl::StrCat(name, ".blocks.", 100'000 + first, ".weight")] = {
        io::DType::kU8, {size}, std::move(bytes)};
  }
  return tensors;
}

}  // namespace

Prompts::Prompts(uint64_t count, uint64_t bytes) {
  for (uint64_t i = 0; i < count; ++i) {
    std::string text = absl::StrCat("conditioning ", i, " ");
    text.resize(std::max<uint64_t>(bytes, text.size()), 'c');
    auto shared = std::make_shared<const std::string>(std::move(text));
    sent_.push_back({.sha256 = Sha256(*shared), .bytes = shared});
    content_.Put(sent_.back().sha256, std::move(shared));
  }
}

Adapter::Adapter(uint64_t base_chunks, uint64_t adapter_chunks, Epoch epoch)
    : adapter_chunks_(adapter_chunks),
      epoch_(epoch),
      maker_(std::make_unique<weights::SnapshotMaker>(
          weights::SourceOf(Tensors("base", base_chunks, 0)), kChunkBytes)) {}

weights::Snapshot Adapter::Next() {
  ++version_;
  const weights::TensorBytesByName tensors = Tensors("adapter", adapter_chunks_, version_ << 32);
  return maker_->Make({epoch_, PolicyVersion(version_), LearnerStep(version_)},
                      weights::SourceOf(tensors));
}

Conditionings::Conditionings(int workers, size_t held_max, Epoch epoch)
    : held_max_(held_max), epoch_(epoch), held_(static_cast<size_t>(workers)) {
  auto relay =
      weights::WeightRelay::Start({.content_bytes_max = uint64_t{8} << 30}, follow_metrics_);
  OXBOW_CHECK(relay.ok()) << relay.status();
  relay_ = *std::move(relay);
}

void Conditionings::Begin(const std::string& learner) {
  source_ = std::make_unique<rollout::ConditioningSource>(
      rollout::ConditioningSource::Options{
          .learner = learner, .epoch = epoch_, .worker_id = "all workers"},
      relay_->content(), metrics_, follow_metrics_, Clock::Steady());
}

void Conditionings::Get(int worker, const v1::Lease& lease) {
  if (lease.conditioning_sha256().empty()) return;
  {
    absl::MutexLock lock(&mutex_);
    std::vector<std::string>& held = held_[static_cast<size_t>(worker)];
    const auto found = std::find(held.begin(), held.end(), lease.conditioning_sha256());
    const bool has = found != held.end();
    if (has) held.erase(found);
    held.push_back(lease.conditioning_sha256());
    if (held.size() > held_max_) held.erase(held.begin());
    if (has) return metrics_.ConditioningFrom("held", lease.conditioning_bytes());
  }
  const auto fetched = source_->Fetch(lease);
  OXBOW_CHECK(fetched.ok()) << fetched.status();
}

Conditionings::Count Conditionings::count() const {
  const std::string text = telemetry::ScrapeText(registry_);
  const auto bytes = [&](const char* source) {
    const std::string line =
        absl::StrCat(exported::kRolloutConditioningBytesTotal.name, "{source=\"", source, "\"} ");
    const size_t at = text.find(line);
    OXBOW_CHECK(at != std::string::npos) << line;
    return std::stod(text.substr(at + line.size()));
  };
  return {.learner = bytes("learner"), .peer = bytes("peer"), .held = bytes("held")};
}

void Conditionings::PrintSince(const Count& before) const {
  const Count now = count();
  const double learner = now.learner - before.learner;
  const double peer = now.peer - before.peer;
  const double held = now.held - before.held;
  const double all = std::max(1.0, learner + peer + held);
  std::printf(
      "conditioning: %.1f MB leased; %.2f %% from the learner, %.1f %% from other workers, "
      "%.1f %% held\n",
      all / 1e6, 100 * learner / all, 100 * peer / all, 100 * held / all);
}

void Watchers::PrintSince(const Count& before) const {
  const Count now = count();
  const uint64_t messages = now.messages - before.messages;
  std::printf("manifests: %lu sent, %.0f bytes each; whole: %lu bytes\n", messages,
              static_cast<double>(now.bytes - before.bytes) /
                  static_cast<double>(std::max<uint64_t>(1, messages)),
              largest_.load());
}

// Messages stay bytes: a thousand decoded manifests would fill the machine.
class Watchers::Watcher final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Watcher(Watchers& all, const std::shared_ptr<grpc::Channel>& channel, int number,
          const std::string& relay, Epoch epoch)
      : all_(all), stub_(channel) {
    v1::WatchRequest request;
    request.set_epoch(epoch.value);
    request.set_worker_id(absl::StrCat("w", number));
    request.set_relay_endpoint(relay);
    const grpc::Slice bytes(request.SerializeAsString());
    request_ = grpc::ByteBuffer(&bytes, 1);
    stub_.PrepareBidiStreamingCall(&context_, "/oxbow.v1.WeightChannel/Watch", {}, this);
    StartWriteLast(&request_, grpc::WriteOptions());
    StartRead(&response_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    const uint64_t bytes = response_.Length();
    all_.bytes_ += bytes;
    ++all_.messages_;
    uint64_t largest = all_.largest_;
    while (bytes > largest && !all_.largest_.compare_exchange_weak(largest, bytes)) {
    }
    if (all_.reads_) Note();
    StartRead(&response_);
  }

  Told told() const {
    absl::MutexLock lock(&mutex_);
    return told_;
  }

  void OnDone(const grpc::Status&) override {
    absl::MutexLock lock(&mutex_);
    done_ = true;
  }

  void End() { context_.TryCancel(); }
  void AwaitDone() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&done_));
  }

 private:
  void Note() {
    v1::WatchResponse message;
    using Reader = grpc::ProtoBufferReader;
    const grpc::Status read =
        grpc::GenericDeserialize<Reader, v1::WatchResponse>(&response_, &message);
    OXBOW_CHECK(read.ok()) << "a message of the weight channel";
    if (!message.has_manifest() && !message.has_delta()) return;
    const v1::SnapshotManifest& manifest =
        message.has_delta() ? message.delta().changed() : message.manifest();
    absl::MutexLock lock(&mutex_);
    told_ = {.version = manifest.policy_version(), .when = Clock::Steady().Now()};
  }

  Watchers& all_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  mutable absl::Mutex mutex_;
  Told told_ ABSL_GUARDED_BY(mutex_);
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

Watchers::Told Watchers::told() const {
  Told all = watchers_.front()->told();
  for (const auto& watcher : watchers_) {
    const Told told = watcher->told();
    all.version = std::min(all.version, told.version);
    all.when = std::max(all.when, told.when);
  }
  return all;
}

Watchers::Watchers(const std::vector<std::shared_ptr<grpc::Channel>>& channels, Names names,
                   const std::string& relay, Epoch epoch, bool reads)
    : reads_(reads) {
  for (int i = 0; i < names.count; ++i) {
    watchers_.push_back(std::make_unique<Watcher>(
        *this, channels[static_cast<size_t>(i) % channels.size()], names.first + i, relay, epoch));
  }
}

Watchers::~Watchers() {
  for (const auto& watcher : watchers_) watcher->End();
  for (const auto& watcher : watchers_) watcher->AwaitDone();
}

}  // namespace oxbow::bench
