// The link over real connections to real stores, each behind a door that can be shut. The oracle of
// an absence is a store that nobody was ever away from.
#include "services/learner/desk/replay_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/flow/window.h"
#include "rpc/server.h"
#include "run/prompt.h"
#include "services/buffer/offer_limits.h"
#include "services/buffer/replay_entries.h"
#include "services/buffer/replay_service.h"
#include "services/learner/desk/group_tables.h"
#include "telemetry/metrics.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::learner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Epoch kEpoch(4);
constexpr uint64_t kSchedule = 77;
constexpr uint64_t kLatentBytes = 40;
constexpr uint32_t kKept = 1;
constexpr int kSteps = 5;

// A replay service that is away while its door is shut, and a journal of what took effect.
class Door final : public v1::ReplayBuffer::Service {
 public:
  explicit Door(buffer::ReplayService& inner) : inner_(inner) {}

  void Shut(bool shut) {
    absl::MutexLock lock(&mutex_);
    shut_ = shut;
  }
  // Shuts by itself behind the next call that takes effect.
  void ShutAfterOne() {
    absl::MutexLock lock(&mutex_);
    shuts_ = true;
  }
  std::vector<std::string> journal() const {
    absl::MutexLock lock(&mutex_);
    return journal_;
  }

  grpc::Status Offer(grpc::ServerContext* context, grpc::ServerReader<v1::OfferRequest>* reader,
                     v1::OfferResponse* response) override {
    return Pass([&] { return inner_.Offer(context, reader, response); },
                [&] {
                  std::string line = "offer";
                  for (const auto& result : response->results()) {
                    absl::StrAppend(&line, " ", result.entry_id());
                  }
                  return line;
                });
  }
  grpc::Status Draw(grpc::ServerContext* context, const v1::DrawRequest* request,
                    v1::DrawResponse* response) override {
    return Pass([&] { return inner_.Draw(context, request, response); },
                [&] { return absl::StrCat("draw ", request->step()); });
  }
  grpc::Status Advance(grpc::ServerContext* context, const v1::AdvanceRequest* request,
                       v1::AdvanceResponse* response) override {
    return Pass([&] { return inner_.Advance(context, request, response); },
                [&] { return absl::StrCat("advance ", request->step()); });
  }
  grpc::Status Checkpoint(grpc::ServerContext* context, const v1::CheckpointRequest* request,
                          v1::CheckpointResponse* response) override {
    return Pass([&] { return inner_.Checkpoint(context, request, response); },
                [&] { return absl::StrCat("checkpoint ", request->name()); });
  }
  grpc::Status Restore(grpc::ServerContext* context, const v1::RestoreRequest* request,
                       v1::RestoreResponse* response) override {
    return Pass([&] { return inner_.Restore(context, request, response); },
                [&] { return absl::StrCat("restore ", request->name()); });
  }
  grpc::Status Read(grpc::ServerContext* context, const v1::ReadRequest* request,
                    grpc::ServerWriter<v1::ReadResponse>* writer) override {
    return Pass([&] { return inner_.Read(context, request, writer); }, nullptr);
  }
  grpc::Status List(grpc::ServerContext* context, const v1::ListRequest* request,
                    v1::ListResponse* response) override {
    return Pass([&] { return inner_.List(context, request, response); }, nullptr);
  }
  grpc::Status Info(grpc::ServerContext* context, const v1::InfoRequest* request,
                    v1::InfoResponse* response) override {
    return Pass([&] { return inner_.Info(context, request, response); }, nullptr);
  }

 private:
  grpc::Status Pass(const std::function<grpc::Status()>& call,
                    const std::function<std::string()>& line) {
    {
      absl::MutexLock lock(&mutex_);
      if (shut_) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "away");
    }
    grpc::Status status = call();
    absl::MutexLock lock(&mutex_);
    if (status.ok() && line != nullptr) {
      journal_.push_back(line());
      shut_ = std::exchange(shuts_, false);
    }
    return status;
  }

  buffer::ReplayService& inner_;
  mutable absl::Mutex mutex_;
  bool shut_ ABSL_GUARDED_BY(mutex_) = false;
  bool shuts_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::string> journal_ ABSL_GUARDED_BY(mutex_);
};

struct Shard {
  explicit Shard(uint64_t offer_bytes_max) : offer_bytes_max(offer_bytes_max) {}

  // What can be seen of the content: every entry, and the age.
  std::pair<std::vector<replay::EntryFacts>, LearnerStep> Content() const {
    std::vector<replay::EntryFacts> facts;
    const std::vector<buffer::EntryView> entries = store->List(1000, EntryId(0)).value();
    for (const buffer::EntryView& entry : entries) facts.push_back(entry.facts);
    return {facts, store->Info().step};
  }

  const uint64_t offer_bytes_max;
  const oxbow::testing::ScopedDirectory directory{oxbow::testing::ScopedDirectory::Memory()};
  const std::unique_ptr<buffer::ReplayStore> store =
      buffer::ReplayStore::Open({.directory = directory.path(),
                                 .capacity = 100,
                                 .queues = replay::AdaptationTables(/*prompts=*/8, 8, 3)})
          .value();
  prometheus::Registry registry;
  buffer::ReplayMetrics metrics{registry};
  buffer::ReplayService service{
      {.offer_bytes_max = offer_bytes_max}, *store, metrics, Clock::Steady()};
  Door door{service};
  const std::unique_ptr<rpc::Server> server = rpc::Server::Start({}, {&door}).value();
};

// A link and the shards it is linked to.
struct Linked {
  explicit Linked(size_t shard_count = 1, size_t commits_max = 64, bool same_window = false,
                  uint32_t kept_steps = kKept, uint64_t call_bytes_max = buffer::kOfferCallBytes,
                  uint64_t offer_bytes_max = buffer::kOfferBytesMax) {
    ReplayLink::Options options{.timeout = absl::Seconds(20),
                                .probe_every = absl::Milliseconds(100),
                                .call_bytes_max = call_bytes_max,
                                .commits_max = commits_max,
                                .epoch = kEpoch,
                                .seed = 3,
                                .kept_steps = kept_steps,
                                .schedule_id = kSchedule,
                                .latent_bytes = kLatentBytes,
                                .same_window = same_window};
    for (size_t i = 0; i < shard_count; ++i) {
      shards.push_back(std::make_unique<Shard>(offer_bytes_max));
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

  std::vector<std::unique_ptr<Shard>> shards;
  prometheus::Registry registry;
  LearnerMetrics metrics{registry, {}};
  std::unique_ptr<ReplayLink> link;
};

buffer::EntryWithLatents Entry(uint64_t id, uint64_t prompt, uint64_t birth, double reward) {
  buffer::EntryWithLatents entry = buffer::TestMessage(id, prompt, birth, reward, kLatentBytes);
  entry.header.mutable_trajectory()->set_schedule_id(kSchedule);
  for (int step = 0; step < kSteps; ++step) entry.header.mutable_trajectory()->add_sde(step < 2);
  return entry;
}

// Three latents from x_{window.front()} on, under a window of kSteps flags.
buffer::EntryWithLatents WindowEntry(uint64_t id, const std::vector<int>& window) {
  buffer::EntryWithLatents entry = Entry(id, id, 0, 1);
  v1::Trajectory& trajectory = *entry.header.mutable_trajectory();
  trajectory.set_first_latent(static_cast<uint32_t>(window.front()));
  trajectory.clear_sde();
  for (const bool sde : flow::StepFlags(window, kSteps)) trajectory.add_sde(sde);
  return entry;
}

// Step n offers entry 100 + n of prompt n % 3, sometimes better than what is there, and uses and
// drops what earlier steps left: an order other than 0, 1, 2 ... leaves another content.
ReplayLink::StepCommit CommitOf(uint64_t step) {
  ReplayLink::StepCommit commit{.step = LearnerStep(step)};
  commit.offers.push_back(Entry(100 + step, step % 3, step, static_cast<double>(step % 5)));
  if (step >= 2) commit.used.push_back(EntryId(100 + step - 2));
  if (step % 4 == 3) commit.evict.push_back(EntryId(100 + step - 1));
  return commit;
}

TEST(ReplayLinkTest, AnAbsenceLeavesTheContentThatNoAbsenceWouldHaveLeft) {
  Linked always, sometimes;
  for (uint64_t step = 0; step < 10; ++step) {
    if (step == 3) sometimes.GoAway();
    if (step == 7) sometimes.ComeBack();
    always.link->Commit(CommitOf(step));
    sometimes.link->Commit(CommitOf(step));
    EXPECT_EQ(sometimes.link->attached(), step < 3 || step >= 7) << step;
  }
  EXPECT_EQ(sometimes.shards[0]->door.journal(), always.shards[0]->door.journal());
  EXPECT_EQ(sometimes.shards[0]->Content(), always.shards[0]->Content());
  EXPECT_THAT(always.shards[0]->Content().first, SizeIs(3));
  EXPECT_THAT(sometimes.Metrics(), HasSubstr("oxbow_learner_buffer_commits_dropped_total 0\n"));
  EXPECT_THAT(sometimes.Metrics(), HasSubstr("oxbow_learner_buffer_attached 1\n"));
}

TEST(ReplayLinkTest, TheBacklogKeepsTheNewestOffersAndCountsWhatItDrops) {
  Linked linked(/*shard_count=*/1, /*commits_max=*/3);
  linked.link->Commit({.step = LearnerStep(0), .offers = {Entry(1, 1, 0, 1)}});
  linked.GoAway();
  linked.link->Commit(
      {.step = LearnerStep(1), .offers = {Entry(2, 2, 1, 1)}, .used = {EntryId(1)}});
  for (uint64_t step = 2; step < 9; ++step) {
    linked.link->Commit(
        {.step = LearnerStep(step), .offers = {Entry(step + 1, step + 1, step, 1)}});
  }
  EXPECT_THAT(linked.Metrics(), HasSubstr("oxbow_learner_buffer_commits_dropped_total 5\n"));
  EXPECT_THAT(linked.Metrics(), HasSubstr("oxbow_learner_buffer_attached 0\n"));

  linked.ComeBack();
  linked.link->Commit({.step = LearnerStep(9)});
  // Uses are never dropped; a step with nothing left to say is not said.
  EXPECT_THAT(linked.shards[0]->door.journal(),
              ElementsAre("offer 1", "advance 0", "advance 1", "offer 7", "advance 6", "offer 8",
                          "advance 7", "offer 9", "advance 8", "advance 9"));
  EXPECT_EQ(linked.shards[0]->store->Find(EntryId(1))->facts.uses, 1u);
  EXPECT_EQ(linked.shards[0]->store->Info().step, LearnerStep(10));
}

TEST(ReplayLinkTest, NothingIsDrawnWhileTheBufferIsAwayAndWaitingCommitsComeBeforeADraw) {
  Linked linked;
  linked.link->Commit({.step = LearnerStep(0), .offers = {Entry(1, 1, 0, 1)}});
  linked.GoAway();
  EXPECT_THAT(linked.link->Draw(LearnerStep(1), 4), IsEmpty());
  EXPECT_FALSE(linked.link->attached());
  EXPECT_FALSE(linked.link->Info().has_value());
  EXPECT_EQ(linked.link->Checkpoint("late", 2).code(), absl::StatusCode::kUnavailable);
  linked.link->Commit({.step = LearnerStep(1), .offers = {Entry(2, 2, 1, 1)}});
  EXPECT_THAT(linked.shards[0]->door.journal(), ElementsAre("offer 1", "advance 0"));

  linked.ComeBack();
  EXPECT_THAT(linked.link->Draw(LearnerStep(2), 4), SizeIs(2));
  EXPECT_THAT(linked.shards[0]->door.journal(),
              ElementsAre("offer 1", "advance 0", "offer 2", "advance 1", "draw 2"));
}

TEST(ReplayLinkTest, AHeadIsTheEntryUpToTheLastKeptTransition) {
  Linked linked;
  const buffer::EntryWithLatents entry = Entry(1, 9, 0, 0.5);
  buffer::EntryWithLatents other_schedule = Entry(2, 2, 0, 1);
  other_schedule.header.mutable_trajectory()->set_schedule_id(kSchedule + 1);
  buffer::EntryWithLatents other_size = buffer::TestMessage(3, 3, 0, 1, 2 * kLatentBytes);
  other_size.header.mutable_trajectory()->set_schedule_id(kSchedule);
  other_size.header.mutable_trajectory()->add_sde(true);
  linked.link->Commit({.step = LearnerStep(0), .offers = {entry, other_schedule, other_size}});
  linked.link->Commit({.step = LearnerStep(1), .used = {EntryId(1)}});

  const std::vector<DrawnHead> drawn = linked.link->Draw(LearnerStep(5), 3);
  ASSERT_THAT(drawn, SizeIs(1));
  const ReplayHead& head = drawn[0].head;
  EXPECT_EQ(drawn[0].prompt.id(), 9u);
  EXPECT_EQ(head.entry, EntryId(1));
  EXPECT_EQ(head.kept_steps, kKept);
  EXPECT_EQ(head.stored_reward, 0.5);
  EXPECT_EQ(head.age, 5u);
  EXPECT_EQ(head.uses, 1u);
  EXPECT_EQ(head.trajectory.latents().shape(0), kKept + 1);
  EXPECT_EQ(head.trajectory.latents().data(), entry.latents.substr(0, (kKept + 1) * kLatentBytes));
}

// Windows move from step to step: a head brings its own stochastic steps, those before i_off count.
TEST(ReplayLinkTest, AHeadOfAnotherWindowKeepsItsOwnStochasticSteps) {
  Linked linked(/*shard_count=*/1, /*commits_max=*/64, /*same_window=*/false, /*kept_steps=*/2);
  const buffer::EntryWithLatents early = WindowEntry(1, {0, 1});
  const buffer::EntryWithLatents across = WindowEntry(2, {1, 2});
  linked.link->Commit({.step = LearnerStep(0), .offers = {early, across, WindowEntry(3, {2, 3})}});
  std::map<uint64_t, ReplayHead> heads;
  for (const DrawnHead& drawn :
       linked.link->Draw(LearnerStep(1), 3, flow::StepFlags({1, 2}, kSteps))) {
    EXPECT_EQ(drawn.head.kept_steps, 2u);
    heads[drawn.head.entry.value] = drawn.head;
  }
  ASSERT_THAT(heads, SizeIs(2)) << "entry 3 has no density before i_off";
  EXPECT_TRUE(heads[1].other_window);
  EXPECT_FALSE(heads[2].other_window);
  EXPECT_EQ(heads[1].trajectory.first_latent(), 0u);
  EXPECT_EQ(heads[1].trajectory.latents().data(), early.latents);
  EXPECT_EQ(heads[2].trajectory.first_latent(), 1u);
  EXPECT_EQ(heads[2].trajectory.latents().data(), across.latents.substr(0, 2 * kLatentBytes));
  EXPECT_EQ(linked.link->heads_refused(), 1u);
  EXPECT_THAT(linked.Metrics(),
              HasSubstr("oxbow_learner_heads_refused_total{reason=\"no_density\"} 1\n"));
}

TEST(ReplayLinkTest, ARunMayAskForHeadsOfItsOwnWindowOnly) {
  Linked linked(/*shard_count=*/1, /*commits_max=*/64, /*same_window=*/true);
  linked.link->Commit(
      {.step = LearnerStep(0), .offers = {WindowEntry(1, {0, 1}), WindowEntry(2, {0, 2})}});
  const auto drawn = linked.link->Draw(LearnerStep(1), 2, flow::StepFlags({0, 2}, kSteps));
  ASSERT_THAT(drawn, SizeIs(1));
  EXPECT_EQ(drawn[0].head.entry, EntryId(2));
  EXPECT_THAT(linked.Metrics(),
              HasSubstr("oxbow_learner_heads_refused_total{reason=\"window\"} 1\n"));
}

TEST(ReplayLinkTest, PromptsLiveOnTheirShardAndDrawsTakeEqualShares) {
  Linked linked(/*shard_count=*/2);
  ReplayLink::StepCommit commit{.step = LearnerStep(0)};
  for (uint64_t id = 1; id <= 12; ++id) commit.offers.push_back(Entry(id, id, 0, 1));
  linked.link->Commit(commit);
  EXPECT_EQ(linked.link->Info()->entries(), 12u);
  for (uint64_t step = 1; step <= 4; ++step) {
    std::vector<int> of_shard(2);
    for (const DrawnHead& drawn : linked.link->Draw(LearnerStep(step), 3)) {
      EXPECT_EQ(drawn.prompt.id() % 2, drawn.head.shard);
      ++of_shard[drawn.head.shard];
    }
    EXPECT_EQ(of_shard[0] + of_shard[1], 3);
    EXPECT_EQ(of_shard[0], step % 2 == 0 ? 2 : 1) << "the larger share goes round";
    linked.link->Commit({.step = LearnerStep(step)});
  }
}

TEST(ReplayLinkTest, ARestoreThatFoundNoBufferIsDoneFirstWhenItIsBack) {
  Linked linked;
  linked.link->Commit({.step = LearnerStep(0), .offers = {Entry(1, 1, 0, 1)}});
  ASSERT_TRUE(linked.link->Checkpoint("one", 2).ok());
  linked.link->Commit({.step = LearnerStep(1), .offers = {Entry(2, 2, 1, 1)}});
  linked.GoAway();
  linked.link->Commit({.step = LearnerStep(2), .offers = {Entry(3, 3, 2, 1)}});  // Of the old past.
  linked.link->Restore("one");
  EXPECT_FALSE(linked.link->attached());
  linked.link->Commit({.step = LearnerStep(1), .offers = {Entry(4, 4, 1, 1)}});

  linked.ComeBack();
  linked.link->Commit({.step = LearnerStep(2)});
  EXPECT_THAT(linked.shards[0]->door.journal(),
              ElementsAre("offer 1", "advance 0", "checkpoint one", "offer 2", "advance 1",
                          "restore one", "offer 4", "advance 1", "advance 2"));
  const auto [entries, age] = linked.shards[0]->Content();
  std::vector<uint64_t> ids;
  for (const replay::EntryFacts& facts : entries) ids.push_back(facts.id.value);
  EXPECT_THAT(ids, ElementsAre(1, 4));
  EXPECT_EQ(age, LearnerStep(3));
}

// Otherwise a buffer that is ahead of the learner would refuse every step to come.
TEST(ReplayLinkTest, ACheckpointTheBufferDoesNotHaveEmptiesIt) {
  Linked linked;
  for (uint64_t step = 0; step < 5; ++step) linked.link->Commit(CommitOf(step));
  linked.link->Restore("gone");
  EXPECT_TRUE(linked.link->attached());
  EXPECT_THAT(linked.shards[0]->Content().first, IsEmpty());
  EXPECT_THAT(linked.Metrics(),
              HasSubstr("oxbow_learner_buffer_failures_total{call=\"restore\"} 1\n"));
  linked.link->Commit({.step = LearnerStep(1), .offers = {Entry(7, 7, 1, 1)}});
  EXPECT_THAT(linked.link->Draw(LearnerStep(2), 1), SizeIs(1));
}

PlannedGroup PlannedOf(uint64_t group, uint64_t prompt, uint64_t step) {
  PlannedGroup planned;
  planned.id = GroupId(group);
  planned.step = LearnerStep(step);
  planned.prompt.set_id(prompt);
  return planned;
}

TEST(ReplayLinkTest, PromptsThatFailedLongestAgoComeFirstFromAllShards) {
  Linked linked(/*shard_count=*/2);
  for (uint64_t step = 0; step < 3; ++step) {
    ReplayLink::StepCommit commit{.step = LearnerStep(step)};
    for (const uint64_t prompt : {10 + step, 21 + step}) {
      commit.offers.push_back(HardPromptEntry(PlannedOf(prompt, prompt, step), 0, {}));
    }
    linked.link->Commit(commit);
  }
  const std::vector<WaitingPrompt> waiting = linked.link->DrawHardPrompts(LearnerStep(3), 3);
  ASSERT_THAT(waiting, SizeIs(3));
  EXPECT_EQ(waiting[0].prompt.id() % 11, 10u) << "10 and 21 failed in step 0";
  EXPECT_EQ(waiting[1].prompt.id() % 11, 10u);
  linked.link->Commit({.step = LearnerStep(3), .evict = {waiting[0].entry, waiting[1].entry}});
  EXPECT_THAT(linked.link->DrawHardPrompts(LearnerStep(4), 9), SizeIs(4));
  linked.GoAway();
  EXPECT_THAT(linked.link->DrawHardPrompts(LearnerStep(4), 9), IsEmpty());
}

TEST(ReplayLinkTest, GroupsComeBackWholeForSomeSteps) {
  Linked linked(/*shard_count=*/2);
  v1::Group group;
  for (uint32_t sample = 0; sample < 2; ++sample) {
    const buffer::EntryWithLatents entry = Entry(1 + sample, 9, 0, 0.5);
    *group.add_trajectories() = entry.header.trajectory();
    group.mutable_trajectories(static_cast<int>(sample))
        ->mutable_latents()
        ->set_data(entry.latents);
  }
  ReplayLink::StepCommit commit{.step = LearnerStep(0)};
  commit.groups.push_back(*GroupEntry(group, PlannedOf(1, 9, 0), 0.5, {}));
  linked.link->Commit(commit);
  const std::vector<v1::ReplayEntry> recent = linked.link->RecentGroups();
  ASSERT_THAT(recent, SizeIs(1));
  EXPECT_EQ(recent[0].raw_reward(), 0.5);
  const auto back = linked.link->ReadGroup(recent[0]);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->SerializeAsString(), group.SerializeAsString());
  linked.link->Commit({.step = LearnerStep(1), .used = {EntryId(recent[0].entry_id())}});
  EXPECT_EQ(linked.link->RecentGroups()[0].uses(), 1u);
  linked.link->Commit({.step = LearnerStep(2)});
  EXPECT_THAT(linked.link->RecentGroups(), SizeIs(1)) << "three steps: those before step 3";
  linked.link->Commit({.step = LearnerStep(3)});
  EXPECT_THAT(linked.link->RecentGroups(), IsEmpty());
  EXPECT_FALSE(linked.link->ReadGroup(recent[0]).has_value());
  EXPECT_TRUE(linked.link->attached()) << "a group that is gone is no absence";
}

// Of its trajectories the buffer knows no noise levels: a group's are those of its schedule.
TEST(ReplayLinkTest, AGroupThatIsKeptIsSoundToItsBuffer) {
  Linked linked;
  PlannedGroup planned = PlannedOf(1, 0, 0);
  planned.prompt = run::MakePrompt("digits", "{}");
  v1::Group group;
  for (int sample = 0; sample < 2; ++sample) {
    v1::Trajectory& member = *group.add_trajectories();
    member = Entry(1, 1, 0, 0.5).header.trajectory();
    member.mutable_latents()->set_data(std::string(3 * kLatentBytes, '\0'));
    for (int step = 0; step < kSteps; ++step) {
      member.add_log_prob(-1);
      member.add_behaviour_version(1);
    }
  }
  linked.link->Commit({.step = LearnerStep(0), .groups = {*GroupEntry(group, planned, 0.5, {})}});
  group.mutable_trajectories(1)->set_log_prob(0, std::numeric_limits<float>::quiet_NaN());
  planned.id = GroupId(2);
  linked.link->Commit({.step = LearnerStep(1), .groups = {*GroupEntry(group, planned, 0.5, {})}});
  std::vector<std::string> problems;
  const buffer::VerifiedPage page = linked.shards[0]->store->Verify("", 100).value();
  ASSERT_THAT(page.entries, SizeIs(2));
  for (const buffer::VerifiedRecord& record : page.entries) {
    problems.insert(problems.end(), record.problems.begin(), record.problems.end());
  }
  EXPECT_THAT(problems, ElementsAre("log-probs or rewards are not finite"));
}

// A link whose calls have at most `bytes`, to a buffer that takes no more at a time.
std::unique_ptr<Linked> LinkedBy(uint64_t call_bytes, uint64_t offer_bytes) {
  return std::make_unique<Linked>(/*shard_count=*/1, /*commits_max=*/64, /*same_window=*/false,
                                  kKept, call_bytes, offer_bytes);
}

// Seven entries of which conditioning is the larger part, as it is of real models. The last one is
// of the second one's prompt.
ReplayLink::StepCommit LargeCommit(uint64_t& entry_bytes) {
  ReplayLink::StepCommit commit{.step = LearnerStep(1)};
  for (uint64_t id = 1; id <= 7; ++id) {
    commit.offers.push_back(Entry(id, id == 7 ? 2 : id, 1, static_cast<double>(id)));
    v1::ReplayEntry& header = commit.offers.back().header;
    header.mutable_conditioning()->mutable_tokens()->set_data(std::string(1000, 'c'));
    header.mutable_conditioning()->mutable_tokens()->set_shape(0, 1000);
    entry_bytes = header.ByteSizeLong() + commit.offers.back().latents.size();
  }
  return commit;
}

TEST(ReplayLinkTest, ACommitLargerThanACallLeavesWhatOneCallWouldHaveLeft) {
  uint64_t bytes = 0;
  const ReplayLink::StepCommit commit = LargeCommit(bytes);
  const auto whole = LinkedBy(100 * bytes, 100 * bytes);
  const auto split = LinkedBy(2 * bytes, 2 * bytes);
  for (const auto& linked : {whole.get(), split.get()}) {
    linked->link->Commit(commit);
    EXPECT_TRUE(linked->link->attached());
    EXPECT_THAT(linked->Metrics(), HasSubstr("oxbow_learner_buffer_commits_dropped_total 0\n"));
  }
  EXPECT_THAT(whole->shards[0]->door.journal(), ElementsAre("offer 1 2 3 4 5 6 7", "advance 1"));
  EXPECT_THAT(split->shards[0]->door.journal(),
              ElementsAre("offer 1 2", "offer 3 4", "offer 5 6", "offer 7", "advance 1"));
  EXPECT_EQ(split->shards[0]->Content(), whole->shards[0]->Content());
  EXPECT_THAT(split->shards[0]->Content().first, SizeIs(6));
}

TEST(ReplayLinkTest, ACommitThatBrokeOffBetweenItsCallsIsHandedInFromItsStart) {
  uint64_t bytes = 0;
  const ReplayLink::StepCommit commit = LargeCommit(bytes);
  const auto whole = LinkedBy(100 * bytes, 100 * bytes);
  const auto broken = LinkedBy(3 * bytes, 3 * bytes);
  broken->shards[0]->door.ShutAfterOne();
  for (const auto& linked : {whole.get(), broken.get()}) linked->link->Commit(commit);
  EXPECT_FALSE(broken->link->attached());
  broken->ComeBack();
  for (const auto& linked : {whole.get(), broken.get()}) {
    linked->link->Commit({.step = LearnerStep(2)});
  }
  EXPECT_THAT(broken->shards[0]->door.journal(),
              ElementsAre("offer 1 2 3", "offer 1 2 3", "offer 4 5 6", "offer 7", "advance 1",
                          "advance 2"));
  EXPECT_EQ(broken->shards[0]->Content(), whole->shards[0]->Content());
}

// A buffer that was told to take less than a call has: that is no absence, and asking again would
// go on for ever.
TEST(ReplayLinkTest, ACallTheBufferNeverHasRoomForIsARefusal) {
  uint64_t bytes = 0;
  const ReplayLink::StepCommit commit = LargeCommit(bytes);
  const auto linked = LinkedBy(100 * bytes, 2 * bytes);
  linked->link->Commit(commit);
  EXPECT_TRUE(linked->link->attached());
  EXPECT_THAT(linked->Metrics(), HasSubstr("oxbow_learner_buffer_commits_dropped_total 1\n"));
  linked->link->Commit({.step = LearnerStep(2), .offers = {commit.offers[0]}});
  EXPECT_THAT(linked->shards[0]->door.journal(), ElementsAre("offer 1", "advance 2"));
}

// A commit that can never succeed must not keep those behind it waiting for ever.
TEST(ReplayLinkTest, ACommitTheBufferRefusesIsDroppedAndCounted) {
  Linked linked;
  linked.link->Commit({.step = LearnerStep(5), .offers = {Entry(1, 1, 5, 1)}});
  linked.link->Commit({.step = LearnerStep(4)});  // The buffer is past that step.
  linked.link->Commit({.step = LearnerStep(6), .offers = {Entry(2, 2, 6, 1)}});
  EXPECT_TRUE(linked.link->attached());
  EXPECT_THAT(linked.Metrics(), HasSubstr("oxbow_learner_buffer_commits_dropped_total 1\n"));
  EXPECT_THAT(linked.Metrics(),
              HasSubstr("oxbow_learner_buffer_failures_total{call=\"commit\"} 1\n"));
  EXPECT_THAT(linked.link->Draw(LearnerStep(7), 2), SizeIs(2));
}

}  // namespace
}  // namespace oxbow::learner
