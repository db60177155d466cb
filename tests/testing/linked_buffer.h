// SPDX-License-Identifier: Apache-2.0
// Replay buffers for tests of the link: real stores over real connections, each behind a door that
// can be shut.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rpc/server.h"
#include "rpc/status.h"
#include "services/buffer/replay_service.h"
#include "services/learner/replay/replay_link.h"
#include "telemetry/metrics.h"
#include "tests/testing/replay_entries.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::learner {

inline constexpr Epoch kEpoch(4);
inline constexpr uint64_t kSchedule = 77;
inline constexpr uint64_t kLatentBytes = 40;
inline constexpr uint32_t kKept = 1;
inline constexpr int kSteps = 5;

// A replay service that is away while its door is shut, and a journal of what took effect.
class Door final : public buffer::ReplayService {
 public:
  using ReplayService::ReplayService;

  void Shut(bool shut) {
    absl::MutexLock lock(&mutex_);
    shut_ = shut;
  }
  // Shuts by itself behind the next call that takes effect.
  void ShutAfterOne() {
    absl::MutexLock lock(&mutex_);
    shuts_ = true;
  }
  // Opens by itself once it has refused so many calls.
  void OpenAfter(int refusals) {
    absl::MutexLock lock(&mutex_);
    refusals_ = refusals;
  }
  std::vector<std::string> journal() const {
    absl::MutexLock lock(&mutex_);
    return journal_;
  }

  // While it hangs, calls neither take effect nor end.
  void Hang(bool hangs) {
    absl::MutexLock lock(&mutex_);
    hangs_ = hangs;
  }
  // Hangs by itself behind the next call that takes effect.
  void HangAfterOne() {
    absl::MutexLock lock(&mutex_);
    hangs_next_ = true;
  }
  // Calls that came and would change something, ended or not.
  int calls() const { return calls_; }

  // Entries that List has sent since ForgetListed.
  uint64_t listed() const { return listed_; }
  void ForgetListed() { listed_ = 0; }

  void Store(const std::shared_ptr<buffer::OfferAssembly>& batch, absl::Duration start,
             Answer answer) override {
    ++calls_;
    if (shut()) return answer(absl::UnavailableError("away"));
    ReplayService::Store(batch, start, [this, answer](absl::StatusOr<v1::OfferResponse> response) {
      if (response.ok()) {
        std::string line = "offer";
        for (const auto& result : response->results()) {
          absl::StrAppend(&line, " ", result.entry_id());
        }
        TookEffect(line);
      }
      answer(std::move(response));
    });
  }
  grpc::Status Draw(grpc::ServerContext* context, const v1::DrawRequest* request,
                    v1::DrawResponse* response) override {
    return Pass([&] { return ReplayService::Draw(context, request, response); },
                [&] { return absl::StrCat("draw ", request->step()); });
  }
  grpc::Status Advance(grpc::ServerContext* context, const v1::AdvanceRequest* request,
                       v1::AdvanceResponse* response) override {
    return Pass([&] { return ReplayService::Advance(context, request, response); },
                [&] { return absl::StrCat("advance ", request->step()); });
  }
  grpc::Status Checkpoint(grpc::ServerContext* context, const v1::CheckpointRequest* request,
                          v1::CheckpointResponse* response) override {
    return Pass([&] { return ReplayService::Checkpoint(context, request, response); },
                [&] { return absl::StrCat("checkpoint ", request->name()); });
  }
  grpc::Status Restore(grpc::ServerContext* context, const v1::RestoreRequest* request,
                       v1::RestoreResponse* response) override {
    return Pass([&] { return ReplayService::Restore(context, request, response); },
                [&] { return absl::StrCat("restore ", request->name()); });
  }
  absl::StatusOr<v1::ReadResponse> HeaderOf(const v1::ReadRequest& request, Range& range) override {
    absl::StatusOr<v1::ReadResponse> header;
    const absl::Status status = rpc::FromGrpc(Pass(
        [&] {
          header = ReplayService::HeaderOf(request, range);
          return rpc::ToGrpc(header.status());
        },
        nullptr));
    if (!status.ok()) return status;
    return header;
  }
  grpc::Status List(grpc::ServerContext* context, const v1::ListRequest* request,
                    v1::ListResponse* response) override {
    const grpc::Status status =
        Pass([&] { return ReplayService::List(context, request, response); }, nullptr);
    listed_ += static_cast<uint64_t>(response->entries_size());
    return status;
  }
  grpc::Status Info(grpc::ServerContext* context, const v1::InfoRequest* request,
                    v1::InfoResponse* response) override {
    return Pass([&] { return ReplayService::Info(context, request, response); }, nullptr);
  }

 private:
  grpc::Status Pass(const std::function<grpc::Status()>& call,
                    const std::function<std::string()>& line) {
    if (line != nullptr) ++calls_;
    if (shut()) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "away");
    grpc::Status status = call();
    if (status.ok() && line != nullptr) TookEffect(line());
    return status;
  }
  bool shut() {
    absl::MutexLock lock(&mutex_);
    const auto goes = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !hangs_; };
    mutex_.Await(absl::Condition(&goes));
    const bool refused = shut_;
    if (refused && refusals_ > 0 && --refusals_ == 0) shut_ = false;
    return refused;
  }
  void TookEffect(std::string line) {
    absl::MutexLock lock(&mutex_);
    journal_.push_back(std::move(line));
    shut_ = std::exchange(shuts_, false);
    hangs_ |= std::exchange(hangs_next_, false);
  }

  std::atomic<uint64_t> listed_ = 0;
  std::atomic<int> calls_ = 0;
  mutable absl::Mutex mutex_;
  bool shut_ ABSL_GUARDED_BY(mutex_) = false;
  bool hangs_ ABSL_GUARDED_BY(mutex_) = false;
  bool hangs_next_ ABSL_GUARDED_BY(mutex_) = false;
  bool shuts_ ABSL_GUARDED_BY(mutex_) = false;
  int refusals_ ABSL_GUARDED_BY(mutex_) = 0;  // Until it opens; 0: it stays shut.
  std::vector<std::string> journal_ ABSL_GUARDED_BY(mutex_);
};

inline std::vector<replay::TablePolicy> TestTables() {
  std::vector<replay::TablePolicy> tables =
      replay::AdaptationTables(/*prompts=*/8, /*groups=*/8, /*steps=*/3);
  tables.insert(tables.begin(), replay::BestTable(100));
  return tables;
}

struct Shard {
  explicit Shard(uint64_t offer_bytes_max, uint64_t remembered_max = 1'000'000)
      : offer_bytes_max(offer_bytes_max), remembered_max(remembered_max) {}

  // The visible content: every entry, and the age.
  std::pair<std::vector<buffer::Entry>, LearnerStep> Content() const {
    return {store->List(1000, EntryId(0)).value(), store->Info().step};
  }

  const uint64_t offer_bytes_max;
  const uint64_t remembered_max;
  const oxbow::testing::ScopedDirectory directory{oxbow::testing::ScopedDirectory::Memory()};
  const std::unique_ptr<buffer::ReplayStore> store =
      buffer::ReplayStore::Open(
          {.directory = directory.path(), .tables = TestTables(), .remembered_max = remembered_max})
          .value();
  prometheus::Registry registry;
  buffer::ReplayMetrics metrics{registry};
  Door door{{.offer_bytes_max = offer_bytes_max}, *store, metrics, Clock::Steady()};
  const std::unique_ptr<rpc::Server> server = rpc::Server::Start({}, {&door}).value();
};

// A link and the shards it is linked to.
struct Linked {
  explicit Linked(size_t shard_count = 1, size_t commits_max = 64, uint32_t kept_steps = kKept,
                  uint64_t call_bytes_max = buffer::kOfferCallBytes,
                  uint64_t offer_bytes_max = buffer::kOfferBytesMax,
                  uint64_t backlog_bytes_max = uint64_t{1} << 30,
                  uint64_t remembered_max = 1'000'000) {
    options = ReplayLink::Options{.endpoints = {},
                                  .each = {.timeout = absl::Seconds(20),
                                           .probe_every = absl::Milliseconds(100),
                                           .call_bytes_max = call_bytes_max,
                                           .commits_max = commits_max,
                                           .backlog_bytes_max = backlog_bytes_max,
                                           .epoch = kEpoch},
                                  .seed = 3,
                                  .form = {.kept_steps = kept_steps,
                                           .schedule_id = kSchedule,
                                           .latent_bytes = kLatentBytes,
                                           .latent_shape = {kLatentBytes / 4}}};
    for (size_t i = 0; i < shard_count; ++i) {
      shards.push_back(std::make_unique<Shard>(offer_bytes_max, remembered_max));
      options.endpoints.push_back(shards.back()->server->endpoint());
    }
    link = std::make_unique<ReplayLink>(options, metrics);
  }

  // The link notices at its next call.
  void GoAway() { shards[0]->door.Shut(true); }
  void ComeBack() {
    shards[0]->door.Shut(false);
    ASSERT_TRUE(link->AwaitAttachedForTest(absl::Seconds(20)));
  }
  std::string Metrics() const { return telemetry::ScrapeText(registry); }

  // Makes the link one that waits for a shard that is away.
  void Awaiting(absl::Duration await_back) {
    link.reset();
    options.each.await_back = await_back;
    link = std::make_unique<ReplayLink>(options, metrics);
  }

  // Makes the link one that has so much time for the calls of a step.
  void Within(absl::Duration step_budget) {
    link.reset();
    options.each.step_budget = step_budget;
    options.each.rest_least = absl::Milliseconds(300);
    link = std::make_unique<ReplayLink>(options, metrics);
  }

  // Another link to the same shards: of another run, or of another start.
  std::unique_ptr<ReplayLink> Another(const std::string& run, Epoch epoch) {
    ReplayLink::Options other = options;
    other.each.run = run;
    other.each.epoch = epoch;
    return std::make_unique<ReplayLink>(other, metrics);
  }

  ReplayLink::Options options;
  std::vector<std::unique_ptr<Shard>> shards;
  prometheus::Registry registry;
  LearnerMetrics metrics{registry};
  std::unique_ptr<ReplayLink> link;
};

inline v1::ReplayEntry Entry(uint64_t id, uint64_t prompt, uint64_t birth, double reward) {
  v1::ReplayEntry entry = buffer::TestMessage(id, prompt, birth, reward, kLatentBytes);
  entry.mutable_trajectory()->set_schedule_id(kSchedule);
  entry.mutable_trajectory()->set_reward(reward);
  for (int step = 0; step < kSteps; ++step) entry.mutable_trajectory()->add_sde(step < 2);
  return entry;
}

inline PlannedGroup PlannedOf(uint64_t group, uint64_t prompt, uint64_t step) {
  PlannedGroup planned;
  planned.id = GroupId(group);
  planned.step = LearnerStep(step);
  planned.prompt.set_id(prompt);
  return planned;
}

}  // namespace oxbow::learner
