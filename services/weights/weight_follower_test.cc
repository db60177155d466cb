// SPDX-License-Identifier: Apache-2.0
// A follower against a real server on port 0 that drops, cuts and corrupts what
// it sends.
#include "services/weights/weight_follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/sha256.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "services/weights/manifest_delta.h"
#include "services/weights/snapshot_maker.h"
#include "services/weights/weight_channel_service.h"
#include "telemetry/metrics.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::weights {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kDeadline = absl::Seconds(20);
constexpr Epoch kEpoch{7};

io::TensorBytes Tensor(std::string data) {
  const int64_t size = static_cast<int64_t>(data.size());
  return {io::DType::kU8, {size}, std::move(data)};
}

// Three base chunks and one adapter chunk of 8 bytes each.
Snapshot Version(uint64_t version, const std::string& adapter) {
  return MakeSnapshot({kEpoch, PolicyVersion(version), LearnerStep(version)},
                      {{"base", Tensor("base-one"
                                       "base-two"
                                       "base-tri")}},
                      {{"adapter", Tensor(adapter)}}, /*chunk_bytes=*/8);
}

std::string DataOf(const VerifiedSnapshot& snapshot, const std::string& name) {
  return AssembleTensors(snapshot.manifest, snapshot.chunks).at(name).data;
}

// Serves as the product does, but for what the test plans for the next Fetch
// calls.
class FaultyService final : public WeightChannelService {
 public:
  struct Fault {
    std::string corrupt;       // Chunk content to send with its first byte altered.
    bool cut_in_half = false;  // End with UNAVAILABLE in the middle of the second chunk,
    bool away = false;         // or at once.
  };

  using WeightChannelService::WeightChannelService;

  absl::Status Prepare(v1::FetchRequest& request, FetchStream& stream) override {
    Fault fault;
    {
      absl::MutexLock lock(&mutex_);
      requests_.push_back(request);
      if (always_) fault = *always_;
      if (!faults_.empty()) {
        fault = faults_.front();
        faults_.pop_front();
      }
    }
    if (fault.away) return absl::UnavailableError("away");
    if (fault.cut_in_half) {
      Send(stream, request.chunk_sha256(0), "base-one");
      Send(stream, request.chunk_sha256(1), "base");
      return absl::UnavailableError("cut");
    }
    if (!fault.corrupt.empty()) {
      const std::string target = Sha256(fault.corrupt);
      if (request.chunk_sha256(0) != target) {
        auto& hashes = *request.mutable_chunk_sha256();
        hashes.erase(std::remove(hashes.begin(), hashes.end(), target), hashes.end());
        return absl::OkStatus();
      }
      fault.corrupt[0] ^= 1;
      Send(stream, target, fault.corrupt);
      request.clear_chunk_sha256();
    }
    return absl::OkStatus();
  }

  void Plan(Fault fault) {
    absl::MutexLock lock(&mutex_);
    faults_.push_back(std::move(fault));
  }
  void Always(Fault fault) {
    absl::MutexLock lock(&mutex_);
    always_ = std::move(fault);
  }
  std::vector<v1::FetchRequest> requests() {
    absl::MutexLock lock(&mutex_);
    return requests_;
  }

 private:
  static void Send(FetchStream& stream, const std::string& hash, const std::string& data) {
    stream.Send(FetchPiece{hash, 0, std::make_shared<const std::string>(data), data.size()});
  }

  absl::Mutex mutex_;
  std::deque<Fault> faults_ ABSL_GUARDED_BY(mutex_);
  std::optional<Fault> always_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::FetchRequest> requests_ ABSL_GUARDED_BY(mutex_);
};

class WeightFollowerTest : public ::testing::Test {
 protected:
  WeightFollowerTest() {
    auto server = rpc::Server::Start({}, {&service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~WeightFollowerTest() override {
    follower_.reset();
    service_.Stop();
  }

  void Follow() {
    follower_ = std::make_unique<WeightFollower>(
        WeightFollower::Options{.endpoints = {server_->endpoint()},
                                .epoch = kEpoch,
                                .worker_id = "w",
                                .tries = 3,
                                .backoff_first = absl::Milliseconds(1),
                                .backoff_max = absl::Milliseconds(5)},
        follow_metrics_, Clock::Steady(), [this] {
          absl::MutexLock lock(&mutex_);
          ++ready_;
        });
  }

  std::optional<VerifiedSnapshot> AwaitSnapshot() {
    absl::MutexLock lock(&mutex_);
    const auto ready = [this] { return ready_ > taken_; };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&ready), kDeadline)) return std::nullopt;
    taken_ = ready_;
    return follower_->TakeNewest();
  }

  v1::ReportAppliedRequest AwaitReport() {
    absl::MutexLock lock(&mutex_);
    const auto reported = [this] { return !reports_.empty(); };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&reported), kDeadline));
    return reports_.empty() ? v1::ReportAppliedRequest() : reports_.front();
  }

  prometheus::Registry registry_;
  PublishMetrics publish_metrics_{registry_};
  FollowMetrics follow_metrics_{registry_};
  absl::Mutex mutex_;
  int ready_ = 0;
  int taken_ = 0;
  std::vector<v1::ReportAppliedRequest> reports_;
  std::function<void()> on_report_;
  FaultyService service_{{.epoch = kEpoch, .snapshots_kept = 2},
                         publish_metrics_,
                         Clock::Steady(),
                         [this](const v1::ReportAppliedRequest& report) {
                           if (on_report_) on_report_();
                           absl::MutexLock lock(&mutex_);
                           reports_.push_back(report);
                         }};
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<WeightFollower> follower_;
};

TEST_F(WeightFollowerTest, FetchesOnlyTheChunksThatChanged) {
  ASSERT_TRUE(service_.Publish(Version(1, "adapter1")).ok());
  Follow();
  const auto first = AwaitSnapshot();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->fetched_bytes, 32u);
  ASSERT_TRUE(service_.Publish(Version(2, "adapter2")).ok());
  const auto second = AwaitSnapshot();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->fetched_bytes, 8u);
  EXPECT_EQ(second->manifest.policy_version(), 2u);
  EXPECT_EQ(DataOf(*second, "base"), "base-onebase-twobase-tri");
  EXPECT_EQ(DataOf(*second, "adapter"), "adapter2");
}

TEST_F(WeightFollowerTest, LateJoinerGetsTheNewestOnly) {
  for (uint64_t v = 1; v <= 3; ++v) {
    ASSERT_TRUE(service_.Publish(Version(v, "adapter" + std::to_string(v))).ok());
  }
  Follow();
  const auto snapshot = AwaitSnapshot();
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(snapshot->manifest.policy_version(), 3u);
  EXPECT_EQ(service_.requests().size(), 1u);
  EXPECT_FALSE(follower_->TakeNewest());
}

TEST_F(WeightFollowerTest, CorruptChunkIsFetchedAgain) {
  service_.Plan({.corrupt = "adapter1"});
  ASSERT_TRUE(service_.Publish(Version(1, "adapter1")).ok());
  Follow();
  const auto snapshot = AwaitSnapshot();
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(DataOf(*snapshot, "adapter"), "adapter1");
  EXPECT_THAT(telemetry::ScrapeText(registry_), HasSubstr("oxbow_weights_corrupt_chunks_total 1"));
}

// Promise: Weights are verified.
TEST_F(WeightFollowerTest, WeightsThatNeverVerifyAreReportedAndNeverHandedOut) {
  service_.Always({.corrupt = "adapter1"});
  ASSERT_TRUE(service_.Publish(Version(1, "adapter1")).ok());
  Follow();
  const v1::ReportAppliedRequest report = AwaitReport();
  EXPECT_EQ(report.policy_version(), 1u);
  EXPECT_THAT(report.failure(), HasSubstr("chunk does not match its checksum"));
  EXPECT_FALSE(follower_->TakeNewest());
  EXPECT_THAT(telemetry::ScrapeText(registry_), HasSubstr("outcome=\"refused\"} "));
}

// Promise: No byte of a model that changed under the run is sent.
TEST_F(WeightFollowerTest, AChunkWhoseFileHasChangedIsRefusedWithTheFilesName) {
  const testing::ScopedDirectory scratch;
  const std::string file = (scratch.path() / "base.safetensors").string();
  const auto write = [&](const std::string& bytes) { std::ofstream(file) << "head" << bytes; };
  write("base-onebase-twobase-tri");
  const auto place = PlaceInFile(OpenedFile::Open(file).value(), 4, 24);
  const TensorBytesByName base = {{"base", Tensor("base-onebase-twobase-tri")}};
  SnapshotMaker maker(SourceOf(base), /*chunk_bytes=*/8, /*threads=*/1,
                      [&](const std::string&) { return place; });
  const auto publish = [&](uint64_t version) {
    const TensorBytesByName trained = {{"adapter", Tensor("adapter" + std::to_string(version))}};
    return service_.Publish(
        maker.Make({kEpoch, PolicyVersion(version), LearnerStep(version)}, SourceOf(trained)));
  };
  write("base-oneBASE-twobase-tri");
  ASSERT_TRUE(publish(1).ok());
  Follow();
  EXPECT_THAT(AwaitReport().failure(), HasSubstr("bring its file back: " + file));
  EXPECT_FALSE(follower_->TakeNewest());
  write("base-onebase-twobase-tri");
  ASSERT_TRUE(publish(2).ok());
  const auto snapshot = AwaitSnapshot();
  ASSERT_TRUE(snapshot);
  EXPECT_EQ(DataOf(*snapshot, "base"), "base-onebase-twobase-tri");
}

// Promise: No byte of a model that changed under the run is sent.
TEST_F(WeightFollowerTest, EveryChangeOfAFileIsSaidOnceHoweverOftenItIsAskedFor) {
  const testing::ScopedDirectory scratch;
  const std::string file = (scratch.path() / "base.safetensors").string();
  const auto write = [&](const std::string& bytes) { std::ofstream(file) << bytes; };
  write("base-onebase-two");
  const auto place = PlaceInFile(OpenedFile::Open(file).value(), 0, 16);
  const TensorBytesByName base = {{"base", Tensor("base-onebase-two")}};
  SnapshotMaker maker(SourceOf(base), /*chunk_bytes=*/8, /*threads=*/1,
                      [&](const std::string&) { return place; });
  const TensorBytesByName trained = {};
  ASSERT_TRUE(
      service_.Publish(maker.Make({kEpoch, PolicyVersion(1), LearnerStep(1)}, SourceOf(trained)))
          .ok());
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(server_->endpoint()));
  const auto fetch = [&] {
    v1::FetchRequest request;
    request.set_epoch(kEpoch.value);
    for (const char* chunk : {"base-one", "base-two"}) request.add_chunk_sha256(Sha256(chunk));
    const auto context = rpc::ContextWithDeadline(kDeadline);
    const auto reader = stub->Fetch(context.get(), request);
    for (v1::FetchResponse message; reader->Read(&message);) {
    }
    return reader->Finish().ok();
  };
  for (int change = 1; change <= 2; ++change) {
    SCOPED_TRACE(change);
    ::testing::internal::CaptureStderr();
    write("base-oneBASE-two");
    for (int asked = 0; asked < 3; ++asked) EXPECT_FALSE(fetch());
    const std::string said = ::testing::internal::GetCapturedStderr();
    constexpr char kError[] = "frozen weights cannot be sent to workers";
    EXPECT_THAT(said, HasSubstr(kError));
    EXPECT_EQ(said.find(kError), said.rfind(kError)) << "once: " << said;
    write("base-onebase-two");
    EXPECT_TRUE(fetch());
  }
}

// Promise: Weights are verified.
TEST_F(WeightFollowerTest, AlteredManifestIsRefused) {
  Snapshot snapshot = Version(1, "adapter1");
  snapshot.manifest.mutable_tensors(0)->set_name("other");
  ASSERT_TRUE(service_.Publish(std::move(snapshot)).ok());
  Follow();
  EXPECT_THAT(AwaitReport().failure(), HasSubstr("manifest does not match its hash"));
  EXPECT_FALSE(follower_->TakeNewest());
  EXPECT_TRUE(service_.requests().empty());
}

TEST_F(WeightFollowerTest, LostStreamResumesInTheMiddleOfTheChunk) {
  Snapshot snapshot = MakeSnapshot({kEpoch, PolicyVersion(1), LearnerStep(1)},
                                   {{"base", Tensor("base-one"
                                                    "base-two")}},
                                   {}, 8);
  service_.Plan({.cut_in_half = true});
  ASSERT_TRUE(service_.Publish(std::move(snapshot)).ok());
  Follow();
  const auto taken = AwaitSnapshot();
  ASSERT_TRUE(taken);
  EXPECT_EQ(DataOf(*taken, "base"), "base-onebase-two");
  EXPECT_EQ(taken->fetched_bytes, 16u);  // No byte twice.
  const auto requests = service_.requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[1].chunk_sha256_size(), 1);
  EXPECT_EQ(requests[1].first_offset(), 4u);
}

// A snapshot that has not come is no wrong one.
TEST_F(WeightFollowerTest, ALearnerThatIsAwayIsAskedAgainAndNothingIsRefused) {
  for (int i = 0; i < 3; ++i) service_.Plan({.away = true});
  ASSERT_TRUE(service_.Publish(Version(1, "adapter1")).ok());
  Follow();
  ASSERT_TRUE(AwaitSnapshot());
  EXPECT_EQ(service_.requests().size(), 4u);
  EXPECT_THAT(telemetry::ScrapeText(registry_), HasSubstr("oxbow_weights_refused_total 0"));
}

TEST_F(WeightFollowerTest, StopEndsAReportThatNobodyAnswers) {
  absl::Notification arrived;
  absl::Notification release;
  on_report_ = [&] {
    arrived.Notify();
    release.WaitForNotificationWithTimeout(kDeadline);
  };
  Follow();
  absl::Status reported;
  std::thread reporter([&] { reported = follower_->Report({}); });
  EXPECT_TRUE(arrived.WaitForNotificationWithTimeout(kDeadline));
  follower_->Stop();
  reporter.join();
  EXPECT_EQ(reported.code(), absl::StatusCode::kCancelled) << reported;
  EXPECT_EQ(follower_->Report({}).code(), absl::StatusCode::kCancelled);
  release.Notify();
  AwaitReport();  // The server has done with both notifications.
}

// Promise: A watcher is told what differs.
TEST_F(WeightFollowerTest, AWatcherIsToldWhatDiffersFromTheManifestThatItHas) {
  const Snapshot first = Version(1, "adapter1");
  ASSERT_TRUE(service_.Publish(first).ok());
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(server_->endpoint()));
  const auto watch = [&](const std::string& has, grpc::ClientContext& context) {
    v1::WatchRequest request;
    request.set_manifest_sha256(has);
    return stub->Watch(&context, request);
  };
  const auto next = [](auto& reader) {
    v1::WatchResponse told;
    EXPECT_TRUE(reader->Read(&told));
    return told;
  };
  const auto without = rpc::ContextWithDeadline(kDeadline);
  const auto knows_nothing = watch("", *without);
  EXPECT_EQ(next(knows_nothing).manifest().tensors_size(), 2);
  ASSERT_TRUE(service_.Publish(Version(2, "adapter2")).ok());
  const v1::WatchResponse second = next(knows_nothing);
  EXPECT_FALSE(second.has_manifest());
  EXPECT_EQ(second.delta().from_sha256(), first.manifest.sha256());
  ASSERT_EQ(second.delta().changed().tensors_size(), 1);
  EXPECT_EQ(second.delta().changed().tensors(0).name(), "adapter");
  const auto made = ManifestFrom(first.manifest, second.delta());
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(CheckManifest(*made, 1 << 20).ok());
  const auto with = rpc::ContextWithDeadline(kDeadline);
  const auto comes_back = watch(first.manifest.sha256(), *with);
  EXPECT_EQ(next(comes_back).delta().changed().policy_version(), 2u);
  for (uint64_t v = 3; v <= 4; ++v) ASSERT_TRUE(service_.Publish(Version(v, "adapterX")).ok());
  const auto late = rpc::ContextWithDeadline(kDeadline);
  const auto comes_late = watch(first.manifest.sha256(), *late);
  EXPECT_TRUE(next(comes_late).has_manifest()) << "two snapshots are kept";
  for (const auto& context : {&without, &with, &late}) (*context)->TryCancel();
}

// Promise: A watcher is told what differs.
TEST_F(WeightFollowerTest, AfterAManifestThatWasRefusedTheNextOneIsTaken) {
  ASSERT_TRUE(service_.Publish(Version(1, "adapter1")).ok());
  Follow();
  ASSERT_TRUE(AwaitSnapshot());
  Snapshot altered = Version(2, "adapter2");
  altered.manifest.mutable_tensors(1)->set_name("other");
  ASSERT_TRUE(service_.Publish(std::move(altered)).ok());
  EXPECT_THAT(AwaitReport().failure(), HasSubstr("manifest does not match its hash"));
  ASSERT_TRUE(service_.Publish(Version(3, "adapter3")).ok());
  const auto third = AwaitSnapshot();
  ASSERT_TRUE(third);
  EXPECT_EQ(third->manifest.policy_version(), 3u);
  EXPECT_EQ(DataOf(*third, "adapter"), "adapter3");
}

// Chunks of random sizes around both limits: all come, whole and in the order asked for, and runs
// of small ones need few messages.
TEST_F(WeightFollowerTest, SmallChunksTravelTogether) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::map<std::string, io::TensorBytes> tensors;
  size_t large = 0, bytes = 0;
  for (int i = 0; i < 200; ++i) {
    const bool small = random() % 8 != 0;
    const size_t size = 1 + random() % (small ? 2'000 : 400'000);
    std::string data(size, static_cast<char>(random()));
    data.replace(0, 8, std::to_string(random()));
    large += size > 128 << 10;
    bytes += data.size();
    tensors.emplace(absl::StrCat("t", i), Tensor(std::move(data)));
  }
  const Snapshot snapshot = MakeSnapshot({kEpoch, PolicyVersion(1), LearnerStep(1)}, {}, tensors);
  ASSERT_TRUE(service_.Publish(snapshot).ok());
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(server_->endpoint()));
  v1::FetchRequest request;
  request.set_epoch(kEpoch.value);
  for (const ChunkSize& chunk : ChunksOf(snapshot.manifest)) {
    request.add_chunk_sha256(chunk.sha256);
  }
  const auto context = rpc::ContextWithDeadline(kDeadline);
  const auto reader = stub->Fetch(context.get(), request);
  ChunkStore store(2, uint64_t{1} << 30);
  Download download = Download::Start(snapshot.manifest, store).value();
  size_t messages = 0;
  for (v1::FetchResponse message; reader->Read(&message); ++messages) {
    const absl::Status taken = download.Take(message);
    ASSERT_TRUE(taken.ok()) << taken;
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(download.complete());
  EXPECT_EQ(download.bytes(), bytes);
  for (const auto& [name, tensor] : AssembleTensors(snapshot.manifest, download.verified())) {
    EXPECT_EQ(tensor.data, tensors.at(name).data) << name;
  }
  // One for each large chunk and one before it, and one for each MiB of small ones.
  EXPECT_LE(messages, 2 * large + 1 + (bytes >> 20));
}

// Promise: Calls may be repeated.
TEST_F(WeightFollowerTest, AnotherEpochIsAborted) {
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(server_->endpoint()));
  v1::FetchRequest request;
  request.set_epoch(kEpoch.value + 1);
  const auto context = rpc::ContextWithDeadline(kDeadline);
  const auto reader = stub->Fetch(context.get(), request);
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::ABORTED);
}

}  // namespace
}  // namespace oxbow::weights
