// SPDX-License-Identifier: Apache-2.0
// RankLeader and RankStream over a real connection: joining, a step's way to the ranks, results
// that count, and what each side does when the other is gone.
#include "services/learner/ranks/rank_leader.h"

#include <atomic>

#include "absl/synchronization/notification.h"
#include "base/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rpc/channel.h"
#include "rpc/protocol_revision.h"
#include "rpc/server.h"
#include "services/learner/ranks/rank_stream.h"
#include "services/learner/ranks/step_manifest.h"
#include "services/learner/replay/replay_offer.h"

namespace oxbow::learner {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kDeadline = absl::Seconds(20);

// A group of two samples of four floats each, the second one better.
v1::Group MakeGroup(uint64_t id, uint64_t lease) {
  v1::Group group;
  group.set_group_id(id);
  group.set_lease_id(lease);
  group.set_learner_step(7);
  for (uint32_t s = 0; s < 2; ++s) {
    v1::Trajectory& trajectory = *group.add_trajectories();
    trajectory.set_sample(s);
    trajectory.set_reward(s);
    trajectory.mutable_latents()->set_dtype(v1::DTYPE_F32);
    for (const int64_t size : {2, 1, 1, 2}) trajectory.mutable_latents()->add_shape(size);
    trajectory.mutable_latents()->set_data(std::string(16, static_cast<char>('a' + s)));
  }
  return group;
}

// So many groups of step 7, all fresh, with ids and leases that rise.
StepGroups GroupsFrom(uint64_t first_id, size_t count) {
  StepGroups groups;
  for (uint64_t g = 0; g < count; ++g) {
    groups.received.push_back(
        {.group = MakeGroup(first_id + g, 100 + g), .attempt = 0, .bytes = {}});
    groups.planned.push_back({.id = GroupId(first_id + g)});
  }
  return groups;
}

constexpr auto kOffered = [](const v1::Group&) { return KeptLatents::kOffer; };
constexpr auto kNothing = [](const v1::Group&) { return KeptLatents::kNone; };

// Takes what it is told to take.
class RecordedResults final : public ResultReceiver {
 public:
  v1::InsertOutcome Submit(ReceivedGroup group, std::string&) override {
    absl::MutexLock lock(&mutex_);
    submitted_.push_back(std::move(group.group));
    return lost_answers_-- > 0 ? v1::INSERT_OUTCOME_UNSPECIFIED : outcome_;
  }
  void Refuse(LeaseId, const std::string&, const std::string&) override {}

  void Answer(v1::InsertOutcome outcome) {
    absl::MutexLock lock(&mutex_);
    outcome_ = outcome;
  }
  // The next answers do not arrive.
  void LoseAnswers(int count) {
    absl::MutexLock lock(&mutex_);
    lost_answers_ = count;
  }
  std::vector<v1::Group> submitted() {
    absl::MutexLock lock(&mutex_);
    return submitted_;
  }

 private:
  absl::Mutex mutex_;
  v1::InsertOutcome outcome_ ABSL_GUARDED_BY(mutex_) = v1::INSERT_OUTCOME_ACCEPTED;
  int lost_answers_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<v1::Group> submitted_ ABSL_GUARDED_BY(mutex_);
};

// Remembers the first loss.
struct Loss {
  absl::Notification happened;
  absl::Status why;
  std::function<void(const absl::Status&)> Hook() {
    return [this](const absl::Status& status) {
      why = status;
      happened.Notify();
    };
  }
};

struct World {
  explicit World(absl::Duration timeout = kDeadline)
      : leader({.ranks = 2,
                .timeout = timeout,
                .group_bytes_max = 64,
                .drain =
                    [this](const std::string& by) {
                      drained_by = by;
                      drained.Notify();
                    }},
               Clock::Steady(), results, leader_lost.Hook()),
        server(*rpc::Server::Start({}, {&leader})) {}
  ~World() { server->Shutdown(absl::ZeroDuration()); }

  std::unique_ptr<RankStream> Join(int rank, absl::Duration timeout = kDeadline) {
    RankStream::Options options{
        .leader = server->endpoint(), .rank = rank, .place = {}, .timeout = timeout};
    options.place.set_sink_endpoint("h:1");
    options.place.set_metrics_endpoint("h:2");
    return std::make_unique<RankStream>(options, Clock::Steady(), line_lost.Hook());
  }

  RecordedResults results;
  Loss leader_lost;
  Loss line_lost;
  std::string drained_by;
  absl::Notification drained;
  RankLeader leader;
  std::unique_ptr<rpc::Server> server;
};

TEST(RankLeaderTest, NamesTheRanksThatDoNotJoin) {
  World world;
  const absl::Status status = world.leader.AwaitAll(absl::Milliseconds(1));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1"));
}

// Promise: Foreign bytes crash no process.
TEST(RankLeaderTest, ARankBeyondIntIsRefusedAndNotCounted) {
  World world;
  const auto stub = v1::LearnerRanks::NewStub(rpc::Connect(world.server->endpoint()));
  const auto context = rpc::ContextWithDeadline(absl::Seconds(20));
  const auto stream = stub->Join(context.get());
  v1::RankReport report;
  report.set_rank(uint32_t{1} << 31);
  report.mutable_hello();
  ASSERT_TRUE(stream->Write(report));
  v1::RankCommand command;
  EXPECT_FALSE(stream->Read(&command));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_FALSE(world.leader.AwaitAll(absl::ZeroDuration()).ok());
}

// Promise: Processes of one run speak one protocol.
TEST(RankLeaderTest, ARankOfAnotherRevisionEndsBothWithTheSameLine) {
  World world;
  const auto stub = v1::LearnerRanks::NewStub(rpc::Connect(world.server->endpoint()));
  const auto context = rpc::ContextWithDeadline(absl::Seconds(20));
  const auto stream = stub->Join(context.get());
  v1::RankReport report;
  report.set_rank(1);
  report.mutable_hello()->set_protocol(kProtocolRevision + 1);
  report.mutable_hello()->set_version("99.1");
  ASSERT_TRUE(stream->Write(report));
  const absl::Status leader = world.leader.AwaitAll(kDeadline);
  v1::RankCommand command;
  EXPECT_FALSE(stream->Read(&command));
  const grpc::Status rank = stream->Finish();
  EXPECT_EQ(leader.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rank.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(rank.error_message(), leader.message());
  EXPECT_THAT(rank.error_message(), HasSubstr("learner rank 1 (oxbow 99.1) speaks revision"));
}

TEST(RankLeaderTest, AStatusSaysWhereTheRanksServe) {
  World world;
  const auto line = world.Join(1);
  ASSERT_TRUE(world.leader.AwaitAll(kDeadline).ok());
  EXPECT_THAT(world.leader.sinks(), ::testing::ElementsAre("h:1"));
  v1::StatusResponse status;
  world.leader.FillStatus(status);
  ASSERT_EQ(status.ranks_size(), 1);
  EXPECT_EQ(status.ranks(0).rank(), 1u);
  EXPECT_EQ(status.ranks(0).metrics_endpoint(), "h:2");
  EXPECT_EQ(status.ranks(0).version(), OXBOW_VERSION);
  EXPECT_LT(status.ranks(0).seconds_since_seen(), absl::ToDoubleSeconds(kDeadline));
}

TEST(RankLeaderTest, AStepReachesTheRankWithItsHeadsAndStopEndsTheLine) {
  World world;
  const auto line = world.Join(1);
  ASSERT_TRUE(world.leader.AwaitAll(kDeadline).ok());

  StepGroups groups = GroupsFrom(14, 2);
  for (size_t g = 0; g < 2; ++g) {
    groups.planned[g].kind = MixedGroup{{.kept_steps = 1}};
    *groups.planned[g].head()->trajectory.mutable_latents() =
        MakeGroup(0, 0).trajectories(static_cast<int>(g)).latents();
  }
  world.leader.Announce(LearnerStep(7), groups);

  auto command = line->Next();
  ASSERT_TRUE(command.ok() && command->has_head_latents()) << command.status();
  EXPECT_EQ(command->head_latents().group_id(), 15u) << "only of the rank's own share";
  EXPECT_EQ(command->head_latents().data(), std::string(16, 'b'));
  command = line->Next();
  ASSERT_TRUE(command.ok() && command->has_step());
  EXPECT_EQ(command->step().step(), 7u);
  ASSERT_EQ(command->step().groups_size(), 2);
  const v1::Group& first = command->step().groups(0).group();
  EXPECT_EQ(first.lease_id(), 100u);
  EXPECT_TRUE(first.trajectories(1).latents().data().empty()) << "latents stay where they are";
  EXPECT_EQ(first.trajectories(1).latents().shape_size(), 4);

  world.leader.Stop(absl::ZeroDuration());
  command = line->Next();
  ASSERT_TRUE(command.ok());
  EXPECT_TRUE(command->has_stop());
}

// The rank has the last two of four places.
TEST(RankLeaderTest, AStoredGroupGoesToTheRankOfItsPlaceWithAllItsLatents) {
  World world;
  const auto line = world.Join(1);
  ASSERT_TRUE(world.leader.AwaitAll(kDeadline).ok());
  StepGroups groups = GroupsFrom(14, 4);
  groups.trained.emplace();
  groups.trained->push_back({.place = 1, .stored = MakeGroup(3, 30)});
  groups.trained->push_back({.place = 2, .stored = MakeGroup(4, 40)});
  groups.trained->push_back({.place = 3, .stored = {}});
  world.leader.Announce(LearnerStep(7), groups);

  std::string latents;
  auto command = line->Next();
  for (; command.ok() && command->has_head_latents(); command = line->Next()) {
    EXPECT_EQ(command->head_latents().group_id(), 4u) << "only of the rank's own share";
    latents += command->head_latents().data();
  }
  ASSERT_TRUE(command.ok() && command->has_step()) << command.status();
  const v1::StepManifest& manifest = command->step();
  ASSERT_EQ(manifest.groups_size(), 3) << "the group of place 0 trains nothing";
  const uint32_t holders[] = {0, 1, 1};
  const uint64_t ids[] = {3, 4, 17};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(manifest.groups(i).holder(), holders[i]);
    EXPECT_EQ(manifest.groups(i).group().group_id(), ids[i]);
    EXPECT_EQ(manifest.groups(i).stored(), i < 2);
    EXPECT_TRUE(manifest.groups(i).group().trajectories(0).latents().data().empty());
  }
  v1::Group whole = manifest.groups(1).group();
  ASSERT_EQ(TakeLatents(latents, whole), absl::OkStatus());
  EXPECT_EQ(whole.trajectories(0).latents().data(), std::string(16, 'a'));
  EXPECT_EQ(whole.trajectories(1).latents().data(), std::string(16, 'b'));
  latents.pop_back();
  EXPECT_EQ(TakeLatents(latents, whole).code(), absl::StatusCode::kDataLoss);
}

// Promise: Drained is not done.
TEST(RankLeaderTest, ARankThatIsAskedToStopTellsRankZeroAndEndsAsItDoes) {
  World world;
  const auto line = world.Join(1);
  ASSERT_TRUE(world.leader.AwaitAll(kDeadline).ok());
  line->AskToDrain("SIGTERM");
  ASSERT_TRUE(world.drained.WaitForNotificationWithTimeout(kDeadline));
  EXPECT_EQ(world.drained_by, "SIGTERM at learner rank 1");
  world.leader.Stop(absl::ZeroDuration(), ErrorOf(kExitDrained, "drained at step 7"));
  const auto command = line->Next();
  ASSERT_TRUE(command.ok() && command->has_stop()) << command.status();
  EXPECT_EQ(command->stop().exit_code(), kExitDrained);
  EXPECT_EQ(command->stop().reason(), "drained at step 7");
}

// Promise: A lost rank ends all ranks.
TEST(RankLeaderTest, ALostRankIsToldOnceAndByName) {
  World world;
  auto line = world.Join(1);
  ASSERT_TRUE(world.leader.AwaitAll(kDeadline).ok());
  line.reset();
  ASSERT_TRUE(world.leader_lost.happened.WaitForNotificationWithTimeout(kDeadline));
  EXPECT_EQ(world.leader_lost.why.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(world.leader_lost.why.message()), HasSubstr("learner rank 1"));
}

// Promise: Each rank writes its own moments.
TEST(RankLeaderTest, ASaveEndsWithTheFilesOfAllOrTheNameOfTheRankThatCouldNot) {
  World world;
  const auto line = world.Join(1);
  ASSERT_TRUE(world.leader.AwaitAll(kDeadline).ok());
  for (const uint64_t steps : {25u, 50u}) {
    world.leader.AnnounceSave(steps);
    const auto command = line->Next();
    ASSERT_TRUE(command.ok() && command->has_save()) << command.status();
    v1::RankReport::Saved saved;
    saved.set_committed_steps(steps - 25);  // For the one before: not counted.
    saved.set_error("late");
    line->Saved(saved);
    saved.set_committed_steps(command->save().committed_steps());
    saved.set_file("optimizer.rank1-of-2");
    saved.set_sha256("ab");
    saved.set_bytes(7);
    saved.set_error(steps == 50 ? "disk is full" : "");
    line->Saved(saved);
    const auto files = world.leader.AwaitSaved();
    if (steps == 50) {
      EXPECT_THAT(std::string(files.status().message()), HasSubstr("rank 1: disk is full"));
      continue;
    }
    ASSERT_TRUE(files.ok()) << files.status();
    ASSERT_EQ(files->size(), 1u);
    EXPECT_EQ(files->at("optimizer.rank1-of-2").bytes, 7u);
  }
}

// Promise: Each rank writes its own moments.
TEST(RankLeaderTest, ALostRankEndsTheWaitForItsFile) {
  World world;
  auto line = world.Join(1);
  ASSERT_TRUE(world.leader.AwaitAll(kDeadline).ok());
  world.leader.AnnounceSave(25);
  line.reset();
  EXPECT_EQ(world.leader.AwaitSaved().status().code(), absl::StatusCode::kUnavailable);
}

// Promise: A lost rank ends all ranks.
TEST(RankStreamTest, ALostLeaderEndsTheWaitForCommands) {
  World world;
  const auto line = world.Join(1);
  ASSERT_TRUE(world.leader.AwaitAll(kDeadline).ok());
  world.server->Shutdown(absl::ZeroDuration());
  const auto command = line->Next();
  EXPECT_EQ(command.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(world.line_lost.happened.WaitForNotificationWithTimeout(kDeadline));
}

TEST(HeldGroupsTest, RankZeroDecidesAndKeepsOnlyWhatMayBeOffered) {
  World world;
  const auto line = world.Join(1);
  HeldGroups held({.storage = v1::DTYPE_F32}, kOffered,
                  [&](const v1::Group& group) { return line->Accept(group); });
  std::string error;
  EXPECT_EQ(held.Submit({.group = MakeGroup(14, 100)}, error), v1::INSERT_OUTCOME_ACCEPTED);
  const std::vector<v1::Group> told = world.results.submitted();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].trajectories(0).latents().data().empty());
  EXPECT_EQ(told[0].trajectories(1).latents().data(), std::string(16, 'b'));

  world.results.Answer(v1::INSERT_OUTCOME_FENCED);
  EXPECT_EQ(held.Submit({.group = MakeGroup(14, 101)}, error), v1::INSERT_OUTCOME_FENCED);

  const auto kept = held.Take(LeaseId(100));
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->group.trajectories(0).latents().data(), std::string(16, 'a'));
  EXPECT_EQ(held.Take(LeaseId(101)).status().code(), absl::StatusCode::kInternal)
      << "a fenced result must not be kept";
}

// Another worker names the lease of a group that counts: the manifest will name that group.
TEST(HeldGroupsTest, AResultThatIsFencedTakesNoAcceptedGroupWithIt) {
  v1::InsertOutcome outcome = v1::INSERT_OUTCOME_ACCEPTED;
  HeldGroups held({.storage = v1::DTYPE_F32}, kNothing, [&](const v1::Group&) {
    v1::InsertResponse::Ack ack;
    ack.set_outcome(outcome);
    return absl::StatusOr<v1::InsertResponse::Ack>(ack);
  });
  std::string error;
  EXPECT_EQ(held.Submit({.group = MakeGroup(14, 100)}, error), v1::INSERT_OUTCOME_ACCEPTED);
  outcome = v1::INSERT_OUTCOME_FENCED;
  EXPECT_EQ(held.Submit({.group = MakeGroup(15, 100)}, error), v1::INSERT_OUTCOME_FENCED);
  const absl::StatusOr<ReceivedGroup> kept = held.Take(LeaseId(100));
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->group.group_id(), 14u);
}

// Promise: Ranks agree on what counts.
TEST(HeldGroupsTest, WithoutAnAnswerNothingCounts) {
  HeldGroups held({.storage = v1::DTYPE_F32}, kNothing, [](const v1::Group&) {
    return absl::StatusOr<v1::InsertResponse::Ack>(absl::UnavailableError("gone"));
  });
  std::string error;
  EXPECT_EQ(held.Submit({.group = MakeGroup(14, 100)}, error), v1::INSERT_OUTCOME_UNSPECIFIED);
  EXPECT_THAT(error, HasSubstr("rank 0 did not answer: gone"));
  EXPECT_TRUE(held.Take(LeaseId(100)).ok()) << "rank 0 may have accepted it";
}

// A rank 0 that shuts down, or is restarted, cancels the calls under way.
class CancelsOneCall final : public v1::LearnerRanks::Service {
 public:
  grpc::Status Join(grpc::ServerContext*,
                    grpc::ServerReaderWriter<v1::RankCommand, v1::RankReport>* stream) override {
    v1::RankReport report;
    while (stream->Read(&report)) {
    }
    return grpc::Status::OK;
  }
  grpc::Status Accept(grpc::ServerContext*, grpc::ServerReader<v1::InsertRequest>* reader,
                      v1::InsertResponse* response) override {
    v1::InsertRequest request;
    while (reader->Read(&request)) {
    }
    if (calls++ == 0) return {grpc::StatusCode::CANCELLED, "CANCELLED"};
    response->mutable_ack()->set_outcome(v1::INSERT_OUTCOME_ACCEPTED);
    return grpc::Status::OK;
  }
  std::atomic<int> calls = 0;
};

// Promise: Ranks agree on what counts.
TEST(HeldGroupsTest, ACancelledCallIsNoAnswerAndIsMadeAgain) {
  CancelsOneCall leader;
  const auto server = rpc::Server::Start({}, {&leader}).value();
  auto line = std::make_unique<RankStream>(
      RankStream::Options{.leader = server->endpoint(), .rank = 1, .place = {}}, Clock::Steady(),
      [](const absl::Status&) {});
  HeldGroups held({.storage = v1::DTYPE_F32}, kNothing,
                  [&](const v1::Group& group) { return line->Accept(group); });
  std::string error;
  EXPECT_EQ(held.Submit({.group = MakeGroup(14, 100)}, error), v1::INSERT_OUTCOME_ACCEPTED)
      << error;
  EXPECT_EQ(leader.calls, 2);
  line.reset();
}

// The first answers are lost after rank 0 has decided. Asking again must not change the outcome.
// Promise: Ranks agree on what counts. A rank asks rank 0 about a group until it is answered; no
// answer is never taken for an answer. A step of any size reaches the ranks, in pieces.
TEST(HeldGroupsTest, ALostAnswerIsAskedForUntilItComes) {
  World world;
  const auto line = world.Join(1);
  world.results.LoseAnswers(2);
  HeldGroups held({.storage = v1::DTYPE_F32}, kOffered,
                  [&](const v1::Group& group) { return line->Accept(group); });
  std::string error;
  EXPECT_EQ(held.Submit({.group = MakeGroup(14, 100)}, error), v1::INSERT_OUTCOME_ACCEPTED);
  EXPECT_EQ(world.results.submitted().size(), 3u);
  EXPECT_TRUE(held.Take(LeaseId(100)).ok()) << "the manifest may name it";
}

// Promise: Ranks agree on what counts.
TEST(StepManifestTest, AManifestOfAnySizeComesInPiecesAndIsTheSameAgain) {
  v1::StepManifest manifest;
  manifest.set_step(7);
  EXPECT_EQ(InPieces(manifest).size(), 1u) << "also without groups";
  for (uint64_t id = 0; id < 50; ++id) {
    *manifest.add_groups()->mutable_group() = WithoutLatents(MakeGroup(id, id));
  }
  const size_t item = manifest.groups(49).ByteSizeLong();
  for (const size_t bytes_max : {size_t{1}, 3 * item, 100 * item}) {
    v1::StepManifest whole;
    size_t pieces = 0;
    for (v1::RankCommand& piece : InPieces(manifest, bytes_max)) {
      EXPECT_LE(piece.step().ByteSizeLong(), std::max(bytes_max, item) + 100);
      const bool complete = AddPiece(std::move(*piece.mutable_step()), whole);
      EXPECT_EQ(complete, whole.groups_size() == manifest.groups_size());
      ++pieces;
    }
    EXPECT_EQ(whole.SerializeAsString(), manifest.SerializeAsString());
    EXPECT_EQ(pieces, bytes_max == 1 ? 50u : bytes_max == 3 * item ? 17u : 1u);
  }
}

// Over the limit of one message: 16 MiB.
// Promise: Ranks agree on what counts.
TEST(RankLeaderTest, AStepOfFiftyThousandTrajectoriesReachesTheRank) {
  World world;
  const auto line = world.Join(1);
  ASSERT_TRUE(world.leader.AwaitAll(kDeadline).ok());
  StepGroups groups = GroupsFrom(0, 1100);
  for (ReceivedGroup& received : groups.received) {
    v1::Trajectory& model = *received.group.mutable_trajectories(0);
    for (int step = 0; step < 100; ++step) model.add_log_prob(-1.5);
    while (received.group.trajectories_size() < 48) {
      *received.group.add_trajectories() = received.group.trajectories(0);
    }
  }
  ASSERT_GT(MakeManifest(LearnerStep(7), groups, 2).ByteSizeLong(), size_t{16} << 20);
  world.leader.Announce(LearnerStep(7), groups);
  const auto command = line->Next();
  ASSERT_TRUE(command.ok() && command->has_step()) << command.status();
  EXPECT_EQ(command->step().groups_size(), 1100);
  EXPECT_EQ(command->step().groups(1099).group().trajectories_size(), 48);
  EXPECT_FALSE(world.leader_lost.happened.HasBeenNotified());
}

// More ranks than a server has threads.
// Promise: Open streams stop nobody.
TEST(RankLeaderTest, AHundredRanksJoinAndRankZeroStillAnswers) {
  RecordedResults results;
  Loss lost;
  RankLeader leader({.ranks = 101, .timeout = kDeadline, .group_bytes_max = 64}, Clock::Steady(),
                    results, lost.Hook());
  const auto server = *rpc::Server::Start({}, {&leader});
  std::vector<std::unique_ptr<RankStream>> ranks;
  for (int rank = 1; rank <= 100; ++rank) {
    ranks.push_back(std::make_unique<RankStream>(
        RankStream::Options{
            .leader = server->endpoint(), .rank = rank, .place = {}, .timeout = kDeadline},
        Clock::Steady(), [](const absl::Status&) {}));
  }
  EXPECT_EQ(leader.AwaitAll(kDeadline), absl::OkStatus());
  EXPECT_EQ(ranks[99]->Accept(MakeGroup(14, 100))->outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  leader.Announce(LearnerStep(0), {});
  for (const auto& rank : ranks) EXPECT_TRUE(rank->Next()->has_step());
  leader.Stop(absl::ZeroDuration());
}

}  // namespace
}  // namespace oxbow::learner
