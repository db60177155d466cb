// The learner's services over a real channel: leases, fencing, credits and refusals as a worker
// sees them. Lease time is a FakeClock's.
#include "services/learner/desk/coordinator_service.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "oxbow/v1/experience_sink.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "services/learner/desk/experience_sink_service.h"
#include "services/learner/desk/run_board.h"
#include "telemetry/metrics.h"

namespace oxbow::learner {
namespace {

constexpr uint64_t kEpoch = 4;
constexpr int kSteps = 3;

GroupRules Rules() {
  return {.latent_shape = {1, 2, 2},
          .storage = v1::DTYPE_F32,
          .schedule_id = 77,
          .sde = {true, true, false},
          .group_size = 2};
}

Coordinator::Options Spec() {
  return {.leases = {.epoch = Epoch(kEpoch),
                     .groups_per_step = 2,
                     .lease_time = absl::Seconds(30),
                     .stragglers = {.quantile = 0.95, .factor = 1.5, .samples_min = 1}},
          .rules = Rules()};
}

StepPlan PlanOf(uint64_t step) {
  StepPlan plan{.step = LearnerStep(step)};
  for (uint64_t i = 0; i < 2; ++i) {
    PlannedGroup group{.id = GroupId(step * 2 + i), .step = LearnerStep(step)};
    group.prompt.set_id(100 + i);
    group.prompt.set_text("text 123");
    plan.groups.push_back(group);
  }
  return plan;
}

// A worker's two streams.
class Worker {
 public:
  Worker(const std::string& endpoint, const std::string& id)
      : id_(id),
        coordinator_(v1::Coordinator::NewStub(rpc::Connect(endpoint))),
        sink_(v1::ExperienceSink::NewStub(rpc::Connect(endpoint))),
        work_context_(rpc::ContextWithDeadline(absl::Seconds(20))),
        sink_context_(rpc::ContextWithDeadline(absl::Seconds(20))),
        work_(coordinator_->Work(work_context_.get())),
        insert_(sink_->Insert(sink_context_.get())) {}

  ~Worker() {
    work_context_->TryCancel();
    sink_context_->TryCancel();
    (void)work_->Finish();
    (void)insert_->Finish();
  }

  void Credit(uint64_t version, uint32_t groups) {
    v1::WorkRequest request = Request();
    request.mutable_credit()->set_policy_version(version);
    request.mutable_credit()->set_groups(groups);
    ASSERT_TRUE(work_->Write(request));
  }

  void Fail(uint64_t lease, const std::string& reason) {
    v1::WorkRequest request = Request();
    request.mutable_finished()->set_lease_id(lease);
    request.mutable_finished()->set_failure(reason);
    ASSERT_TRUE(work_->Write(request));
  }

  std::vector<uint64_t> Renew(uint64_t lease) {
    v1::WorkRequest request = Request();
    request.mutable_renew()->add_lease_ids(lease);
    EXPECT_TRUE(work_->Write(request));
    const v1::WorkResponse response = Next();
    return {response.renewed().lease_ids().begin(), response.renewed().lease_ids().end()};
  }

  v1::WorkResponse Next() {
    v1::WorkResponse response;
    EXPECT_TRUE(work_->Read(&response)) << "stream ended";
    return response;
  }

  v1::Group Result(const v1::Lease& lease, uint64_t version) const {
    v1::Group group;
    group.set_group_id(lease.group_id());
    group.set_lease_id(lease.lease_id());
    group.set_epoch(kEpoch);
    group.set_worker_id(id_);
    *group.mutable_prompt() = lease.prompt();
    for (uint32_t sample = 0; sample < 2; ++sample) {
      v1::Trajectory& trajectory = *group.add_trajectories();
      trajectory.set_sample(sample);
      trajectory.set_schedule_id(77);
      trajectory.set_reward(0.5);
      trajectory.mutable_latents()->set_dtype(v1::DTYPE_F32);
      for (const int64_t size : {kSteps + 1, 1, 2, 2})
        trajectory.mutable_latents()->add_shape(size);
      for (int step = 0; step < kSteps; ++step) {
        trajectory.add_log_prob(-1);
        trajectory.add_sde(step < 2);
        trajectory.add_behaviour_version(version);
      }
    }
    return group;
  }

  // Sends a group in two chunks a trajectory and returns the acknowledgement.
  v1::InsertResponse::Ack Insert(const v1::Group& group, float value = 0.25f) {
    v1::InsertRequest request;
    *request.mutable_header() = group;
    EXPECT_TRUE(insert_->Write(request));
    const std::vector<float> latents((kSteps + 1) * 4, value);
    const std::string bytes(reinterpret_cast<const char*>(latents.data()), latents.size() * 4);
    for (int i = 0; i < group.trajectories_size(); ++i) {
      for (const size_t offset : {size_t{0}, bytes.size() / 2}) {
        v1::InsertRequest chunk;
        chunk.mutable_chunk()->set_trajectory(static_cast<uint32_t>(i));
        chunk.mutable_chunk()->set_offset(offset);
        chunk.mutable_chunk()->set_data(bytes.substr(offset, bytes.size() / 2));
        EXPECT_TRUE(insert_->Write(chunk));
      }
    }
    v1::InsertResponse response;
    while (insert_->Read(&response)) {
      if (response.has_ack()) return response.ack();
    }
    ADD_FAILURE() << "no acknowledgement";
    return {};
  }

 private:
  v1::WorkRequest Request() const {
    v1::WorkRequest request;
    request.set_epoch(kEpoch);
    request.set_worker_id(id_);
    return request;
  }

  const std::string id_;
  std::unique_ptr<v1::Coordinator::Stub> coordinator_;
  std::unique_ptr<v1::ExperienceSink::Stub> sink_;
  std::unique_ptr<grpc::ClientContext> work_context_;
  std::unique_ptr<grpc::ClientContext> sink_context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkRequest, v1::WorkResponse>> work_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::InsertRequest, v1::InsertResponse>> insert_;
};

class CoordinatorServiceTest : public testing::Test {
 protected:
  CoordinatorServiceTest()
      : metrics_(registry_, {"digits_ocr"}),
        coordinator_(Spec(), clock_, assembler_, metrics_),
        board_(clock_, metrics_, 10),
        service_(
            coordinator_, [this](v1::StatusResponse& status) { board_.FillStatus(status); },
            Registration(), [this](const std::string&) { drained_ = true; }),
        sink_(coordinator_, budget_, Rules(), metrics_),
        server_(*rpc::Server::Start({}, {&service_, &sink_})) {
    coordinator_.Published(PolicyVersion(0), LearnerStep(0));
    coordinator_.Plan(PlanOf(0));
  }
  ~CoordinatorServiceTest() override { server_->Shutdown(absl::Seconds(1)); }

  static v1::RegisterResponse Registration() {
    v1::RegisterResponse registration;
    registration.set_epoch(kEpoch);
    registration.add_sink_endpoints("here");
    return registration;
  }

  prometheus::Registry registry_;
  LearnerMetrics metrics_;
  FakeClock clock_;
  GroupAssembler assembler_;
  Coordinator coordinator_;
  RunBoard board_;
  ByteBudget budget_{1 << 20};
  std::atomic<bool> drained_ = false;
  CoordinatorService service_;
  ExperienceSinkService sink_;
  std::unique_ptr<rpc::Server> server_;
};

TEST_F(CoordinatorServiceTest, GroupsGoFromLeaseToTheLearnerSortedById) {
  Worker worker(server_->endpoint(), "a");
  worker.Credit(0, 2);
  const v1::Lease first = worker.Next().lease();
  const v1::Lease second = worker.Next().lease();
  EXPECT_EQ(first.group_id(), 0u);
  EXPECT_EQ(second.group_id(), 1u);
  EXPECT_EQ(second.prompt().text(), "text 123");
  EXPECT_EQ(worker.Insert(worker.Result(second, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  EXPECT_EQ(worker.Insert(worker.Result(first, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  EXPECT_EQ(worker.Insert(worker.Result(first, 0)).outcome(), v1::INSERT_OUTCOME_DUPLICATE);
  const auto groups = assembler_.Take(LearnerStep(0), 2, absl::Seconds(10));
  ASSERT_TRUE(groups.ok()) << groups.status();
  EXPECT_EQ((*groups)[0].group.group_id(), 0u);
  EXPECT_EQ((*groups)[1].group.trajectories(1).latents().data().size(), 64u);
}

TEST_F(CoordinatorServiceTest, NewWeightsAdmitTheNextStepAndStaleOnesDoNot) {
  coordinator_.Plan(PlanOf(1));
  Worker worker(server_->endpoint(), "a");
  worker.Credit(0, 4);
  for (int i = 0; i < 2; ++i) {
    const v1::Lease lease = worker.Next().lease();
    EXPECT_EQ(worker.Insert(worker.Result(lease, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  }
  EXPECT_TRUE(worker.Renew(1).empty()) << "nothing but the renewal comes back: no lease is left";
  coordinator_.Published(PolicyVersion(2), LearnerStep(1));
  worker.Credit(2, 4);
  const v1::Lease next = worker.Next().lease();
  EXPECT_EQ(next.group_id(), 2u);
  EXPECT_EQ(next.policy_version_min(), 2u);
}

TEST_F(CoordinatorServiceTest, ExpiredLeaseIsCancelledFencedAndGivenToAnother) {
  Worker slow(server_->endpoint(), "slow");
  slow.Credit(0, 1);
  const v1::Lease lease = slow.Next().lease();
  EXPECT_THAT(slow.Renew(lease.lease_id()), testing::ElementsAre(lease.lease_id()));
  clock_.Advance(absl::Seconds(31));
  EXPECT_EQ(slow.Next().cancel().lease_id(), lease.lease_id());
  EXPECT_EQ(slow.Insert(slow.Result(lease, 0)).outcome(), v1::INSERT_OUTCOME_FENCED);
  Worker quick(server_->endpoint(), "quick");
  quick.Credit(0, 1);
  const v1::Lease again = quick.Next().lease();
  EXPECT_EQ(again.group_id(), lease.group_id());
  EXPECT_EQ(again.attempt(), 2u);
  EXPECT_EQ(quick.Insert(quick.Result(again, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
}

TEST_F(CoordinatorServiceTest, SilentWorkerLosesItsCreditWithItsLeasesUntilItSpeaks) {
  Worker silent(server_->endpoint(), "silent");
  silent.Credit(0, 3);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(silent.Next().has_lease());
  clock_.Advance(absl::Seconds(31));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(silent.Next().has_cancel());
  v1::StatusResponse status;
  coordinator_.FillStatus(status);
  EXPECT_EQ(status.groups_running(), 0u) << "its third credit would lose a group once more";
  EXPECT_EQ(status.leases_expired(), 2u);
  silent.Credit(0, 1);
  EXPECT_EQ(silent.Next().lease().attempt(), 2u);
}

TEST_F(CoordinatorServiceTest, IdleWorkerHelpsAStragglerAndTheLaterResultIsNobodysFailure) {
  Worker quick(server_->endpoint(), "quick");
  Worker slow(server_->endpoint(), "slow");
  quick.Credit(0, 1);
  EXPECT_EQ(quick.Insert(quick.Result(quick.Next().lease(), 0)).outcome(),
            v1::INSERT_OUTCOME_ACCEPTED);
  slow.Credit(0, 1);
  const v1::Lease late = slow.Next().lease();
  quick.Credit(0, 1);  // That group took no time: whatever is under way is a straggler.
  const v1::Lease helping = quick.Next().lease();
  EXPECT_EQ(helping.group_id(), late.group_id());
  EXPECT_EQ(helping.attempt(), 2u);
  EXPECT_EQ(quick.Insert(quick.Result(helping, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  EXPECT_EQ(slow.Next().cancel().lease_id(), late.lease_id());
  EXPECT_EQ(slow.Insert(slow.Result(late, 0)).outcome(), v1::INSERT_OUTCOME_SUPERSEDED);
  slow.Fail(late.lease_id(), "cancelled");
  (void)slow.Renew(1);  // Comes back after the failure was taken.
  EXPECT_TRUE(assembler_.Take(LearnerStep(0), 2, absl::Seconds(10)).ok());
  const std::string text = telemetry::ScrapeText(registry_);
  for (const char* line : {"oxbow_learner_leases_total{event=\"speculated\"} 1",
                           "oxbow_learner_leases_total{event=\"superseded\"} 1",
                           "oxbow_learner_leases_total{event=\"failed\"} 0",
                           "oxbow_learner_results_total{outcome=\"superseded\"} 1"}) {
    EXPECT_THAT(text, testing::HasSubstr(line));
  }
}

TEST_F(CoordinatorServiceTest, MalformedResultsAreInvalidWithTheReasonAndTheStreamGoesOn) {
  Worker worker(server_->endpoint(), "a");
  const auto refused = [&](const std::function<void(v1::Group&)>& spoil, float value = 0) {
    worker.Credit(0, 1);
    const v1::Lease lease = worker.Next().lease();
    v1::Group group = worker.Result(lease, 0);
    spoil(group);
    const auto ack = worker.Insert(group, value);
    EXPECT_EQ(ack.outcome(), v1::INSERT_OUTCOME_INVALID);
    clock_.Advance(absl::Seconds(20));  // Over the back-off.
    return ack.error();
  };
  using testing::HasSubstr;
  EXPECT_THAT(
      refused([](v1::Group& g) { g.mutable_trajectories(1)->mutable_latents()->set_shape(2, 9); }),
      HasSubstr("trajectory 1: latents have shape [4, 1, 9, 2]"));
  EXPECT_THAT(refused([](v1::Group& g) { g.mutable_trajectories(0)->set_schedule_id(1); }),
              HasSubstr("another schedule"));
  EXPECT_THAT(refused([](v1::Group& g) {
                g.mutable_trajectories(0)->set_reward(std::numeric_limits<double>::quiet_NaN());
              }),
              HasSubstr("reward is not finite"));
  EXPECT_THAT(refused([](v1::Group&) {}, std::numeric_limits<float>::infinity()),
              HasSubstr("latents are not finite"));
  EXPECT_THAT(refused([](v1::Group& g) { g.mutable_trajectories(0)->set_sample(1); }),
              HasSubstr("sample index repeats"));
  worker.Credit(0, 1);
  EXPECT_EQ(worker.Insert(worker.Result(worker.Next().lease(), 0)).outcome(),
            v1::INSERT_OUTCOME_ACCEPTED);
}

// The window of a group is in its lease, and what comes back must have it.
TEST_F(CoordinatorServiceTest, AGroupIsSampledWithTheWindowItWasPlannedWith) {
  Worker worker(server_->endpoint(), "a");
  worker.Credit(0, 2);
  for (int i = 0; i < 2; ++i) {
    const v1::Lease lease = worker.Next().lease();
    EXPECT_THAT(lease.sde_steps(), testing::IsEmpty()) << "all that may be";
    EXPECT_EQ(worker.Insert(worker.Result(lease, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  }
  StepPlan plan = PlanOf(1);
  for (PlannedGroup& group : plan.groups) group.sde = {false, true, false};
  coordinator_.Plan(plan);
  coordinator_.Published(PolicyVersion(2), LearnerStep(1));
  const auto answer = [&](const std::function<void(v1::Trajectory&)>& change) {
    worker.Credit(2, 1);
    const v1::Lease lease = worker.Next().lease();
    EXPECT_THAT(lease.sde_steps(), testing::ElementsAre(1));
    v1::Group group = worker.Result(lease, 2);
    for (v1::Trajectory& trajectory : *group.mutable_trajectories()) {
      trajectory.set_sde(0, false);
      change(trajectory);
    }
    const auto ack = worker.Insert(group);
    clock_.Advance(absl::Seconds(20));  // Over the back-off.
    return std::string(ack.error());
  };
  using testing::HasSubstr;
  EXPECT_THAT(answer([](v1::Trajectory& t) { t.set_sde(0, true); }),
              HasSubstr("trajectory 0: step 0 is stochastic, other than its lease asked for"));
  EXPECT_THAT(answer([](v1::Trajectory& t) { t.set_sde(1, false); }),
              HasSubstr("step 1 is not stochastic"));
  EXPECT_THAT(answer([](v1::Trajectory& t) { t.set_sde(2, true); }),
              HasSubstr("step 2 is stochastic, other than in the run"));
  EXPECT_THAT(answer([](v1::Trajectory& t) {
                t.set_first_latent(2);
                t.mutable_latents()->set_shape(0, 2);
              }),
              HasSubstr("holds x_2 to x_3, training needs x_1 to x_2"));
  EXPECT_EQ(answer([](v1::Trajectory&) {}), "");
}

TEST_F(CoordinatorServiceTest, MixedGroupWhoseHeadCannotBeReadGoesOnWithoutIt) {
  Worker worker(server_->endpoint(), "a");
  worker.Credit(0, 2);
  for (int i = 0; i < 2; ++i) {
    const v1::Lease lease = worker.Next().lease();
    EXPECT_EQ(worker.Insert(worker.Result(lease, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  }
  StepPlan plan = PlanOf(1);
  plan.groups[0].head = ReplayedHead{.entry = EntryId(9), .kept_steps = 2};
  coordinator_.Plan(plan);
  coordinator_.Published(PolicyVersion(2), LearnerStep(1));
  for (int failure = 0; failure < 2; ++failure) {
    worker.Credit(2, 1);
    const v1::Lease lease = worker.Next().lease();
    EXPECT_EQ(lease.head().entry_id(), 9u);
    worker.Fail(lease.lease_id(), "replay buffer: connection refused");
    (void)worker.Renew(1);
    clock_.Advance(absl::Seconds(11));
  }
  worker.Credit(2, 1);
  const v1::Lease fresh = worker.Next().lease();
  EXPECT_EQ(fresh.group_id(), 2u);
  EXPECT_FALSE(fresh.has_head());
}

TEST_F(CoordinatorServiceTest, AnotherEpochIsAborted) {
  auto stub = v1::Coordinator::NewStub(rpc::Connect(server_->endpoint()));
  const auto context = rpc::ContextWithDeadline(absl::Seconds(10));
  const auto stream = stub->Work(context.get());
  v1::WorkRequest request;
  request.set_epoch(kEpoch - 1);
  request.set_worker_id("old");
  request.mutable_hello();
  stream->Write(request);
  v1::WorkResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::ABORTED);
}

TEST_F(CoordinatorServiceTest, AResultOfAnotherEpochIsFenced) {
  Worker worker(server_->endpoint(), "a");
  worker.Credit(0, 1);
  const v1::Lease lease = worker.Next().lease();
  v1::Group old = worker.Result(lease, 0);
  old.set_epoch(kEpoch - 1);
  EXPECT_EQ(worker.Insert(old).outcome(), v1::INSERT_OUTCOME_FENCED);
  EXPECT_EQ(worker.Insert(worker.Result(lease, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
}

TEST_F(CoordinatorServiceTest, DrainReachesWorkersAndTheRun) {
  Worker worker(server_->endpoint(), "a");
  worker.Credit(0, 0);
  auto stub = v1::Coordinator::NewStub(rpc::Connect(server_->endpoint()));
  const auto context = rpc::ContextWithDeadline(absl::Seconds(10));
  v1::DrainResponse response;
  EXPECT_TRUE(stub->Drain(context.get(), {}, &response).ok());
  EXPECT_TRUE(drained_);
  coordinator_.Drain();
  EXPECT_TRUE(worker.Next().has_drain());
}

TEST_F(CoordinatorServiceTest, FailuresBeyondTheLimitStopTheLearnerWithTheReason) {
  Worker worker(server_->endpoint(), "a");
  for (int i = 0; i < 8; ++i) {
    worker.Credit(0, 1);
    worker.Fail(worker.Next().lease().lease_id(), "reward: no replica answers");
    (void)worker.Renew(1);  // Comes back after the failure was taken.
    clock_.Advance(absl::Seconds(11));
  }
  const auto groups = assembler_.Take(LearnerStep(0), 2, absl::Seconds(10));
  EXPECT_EQ(groups.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(
      std::string(groups.status().message()),
      testing::HasSubstr("group 0 failed 8 times, last on worker a: reward: no replica answers"));
}

TEST_F(CoordinatorServiceTest, ScrapeHasEveryCountFromTheStart) {
  const std::string text = telemetry::ScrapeText(registry_);
  for (const char* name : {"oxbow_learner_leases_total{event=\"expired\"} 0",
                           "oxbow_learner_results_total{outcome=\"fenced\"} 0",
                           "oxbow_learner_offers_total{outcome=\"rejected_lower\"} 0",
                           "oxbow_learner_weights_lag_versions 0",
                           "oxbow_learner_phase_seconds_total{phase=\"update\"} 0"}) {
    EXPECT_THAT(text, testing::HasSubstr(name));
  }
}

TEST_F(CoordinatorServiceTest, ScrapeHasOfTheLastStepWhatThatStepMeasured) {
  const auto scrape = [&] { return telemetry::ScrapeText(registry_); };
  const char* const kClipped = "oxbow_learner_clip_ratio{origin=\"replay\",side=\"any\"} ";
  EXPECT_THAT(scrape(), testing::Not(testing::HasSubstr("oxbow_learner_grad_norm")));
  metrics_.StepCommitted(1, {{"train/grad_norm", 2},
                             {"train/clip_frac_replay", .25},
                             {"train/clip_frac_step_3", .5},
                             {"eval/reward_mean", .75},
                             {"train/reward_digits_ocr_mean", -1}});
  for (const std::string line : {"oxbow_learner_grad_norm 2", "oxbow_learner_eval_reward_mean 0.75",
                                 "oxbow_learner_reward{reward=\"digits_ocr\"} -1",
                                 "oxbow_learner_step_clip_ratio{denoising_step=\"3\"} 0.5"}) {
    EXPECT_THAT(scrape(), testing::HasSubstr(line + "\n"));
  }
  EXPECT_THAT(scrape(), testing::HasSubstr(kClipped));
  metrics_.StepCommitted(1, {{"train/grad_norm", 4}, {"train/clip_frac_step_4", 0}});
  const std::string next = scrape();
  EXPECT_THAT(next, testing::HasSubstr("oxbow_learner_grad_norm 4\n"));
  EXPECT_THAT(next, testing::HasSubstr("oxbow_learner_eval_reward_mean 0.75\n"));
  EXPECT_THAT(next, testing::HasSubstr("{denoising_step=\"4\"} 0\n"));
  EXPECT_THAT(next, testing::Not(testing::HasSubstr("{denoising_step=\"3\"}")));
  EXPECT_THAT(next, testing::Not(testing::HasSubstr(kClipped)));
}

}  // namespace
}  // namespace oxbow::learner
