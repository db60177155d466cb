// SPDX-License-Identifier: Apache-2.0
// The identity of workers: names, two processes of one name, and leases that belong to one of them.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "tests/testing/coordinator_fixture.h"

namespace oxbow::learner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::StatusResponse StatusOf(const Coordinator& coordinator) {
  v1::StatusResponse status;
  coordinator.FillStatus(status);
  return status;
}

// Promise: A worker's leases are its own.
TEST_F(CoordinatorServiceTest, ASecondProcessOfANameIsRefusedWithAReasonAndSeen) {
  WorkerStreams first(server_->endpoint(), "gpu-1", 1);
  first.Credit(0, 1);
  const v1::Lease lease = first.Next().lease();
  WorkerStreams second(server_->endpoint(), "gpu-1", 2);
  second.Credit(0, 1);
  const grpc::Status refused = second.End();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_THAT(refused.error_message(), HasSubstr("give each its own --id: gpu-1"));
  EXPECT_THAT(StatusOf(coordinator_).duplicate_worker_ids(), ElementsAre("gpu-1"));
  EXPECT_THAT(telemetry::ScrapeText(registry_),
              HasSubstr("oxbow_learner_duplicate_workers_total 1"));
  EXPECT_EQ(first.Insert(first.Result(lease, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED)
      << "the first goes on";
  clock_.Advance(absl::Seconds(61));
  coordinator_.Tick();
  EXPECT_THAT(StatusOf(coordinator_).duplicate_worker_ids(), IsEmpty());
}

// Promise: A worker's leases are its own.
TEST_F(CoordinatorServiceTest, ANewStreamOfTheSameProcessTakesThePlaceOfTheOldOne) {
  WorkerStreams old(server_->endpoint(), "a", 7);
  old.Credit(0, 1);
  const v1::Lease lease = old.Next().lease();
  WorkerStreams again(server_->endpoint(), "a", 7);
  EXPECT_THAT(again.Renew(lease.lease_id()), ElementsAre(lease.lease_id()));
  EXPECT_EQ(old.End().error_code(), grpc::StatusCode::CANCELLED) << "it is not left unserved";
  again.Credit(0, 1);
  EXPECT_TRUE(again.Next().has_lease());
}

// Promise: A worker's leases are its own. Only the worker that holds a lease can end it, by a
// result or by a failure. While a process is connected under a name, another process of that name
// is refused, and a warning, a metric and an alert say so. Names are short and cannot forge a line
// of a log. A worker gets at most `services.groups_in_flight` leases, whatever it asks for.
// Accusations of relays count by the host of the caller. The processes NAME, NAME.1, NAME.2 of one
// host count as one worker. A relay is only where its call comes from. Names are not proof of
// identity: a member may still take the name of a worker that is not connected.
TEST_F(CoordinatorServiceTest, OnlyItsHolderEndsALease) {
  WorkerStreams holder(server_->endpoint(), "holder");
  WorkerStreams other(server_->endpoint(), "other");
  holder.Credit(0, 1);
  const v1::Lease lease = holder.Next().lease();
  other.Fail(lease.lease_id(), "not mine");
  EXPECT_THAT(other.Renew(lease.lease_id()), IsEmpty());
  EXPECT_EQ(other.Insert(other.Result(lease, 0)).outcome(), v1::INSERT_OUTCOME_FENCED);
  v1::Group malformed = other.Result(lease, 0);
  malformed.mutable_trajectories(0)->mutable_latents()->set_shape(2, 9);
  EXPECT_EQ(other.Insert(malformed).outcome(), v1::INSERT_OUTCOME_INVALID);
  EXPECT_THAT(telemetry::ScrapeText(registry_),
              HasSubstr("oxbow_learner_leases_total{event=\"failed\"} 0"));
  EXPECT_EQ(holder.Insert(holder.Result(lease, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
}

// Promise: A worker's leases are its own.
TEST_F(CoordinatorServiceTest, CreditBeyondWhatAWorkerMayHoldIsCut) {
  WorkerStreams greedy(server_->endpoint(), "greedy");
  for (uint64_t step = 1; step <= 40; ++step) coordinator_.Plan(PlanOf(step));
  coordinator_.published().Add(PolicyVersion(99), LearnerStep(40));
  greedy.Credit(99, 1'000'000);
  for (uint32_t i = 0; i < Spec().credit_max; ++i) EXPECT_TRUE(greedy.Next().has_lease());
  EXPECT_THAT(greedy.Renew(1), IsEmpty()) << "the next message is the answer, not a lease";
}

// Promise: A worker's leases are its own.
TEST_F(CoordinatorServiceTest, ANameThatCouldForgeALineOfALogIsRefused) {
  WorkerStreams worker(server_->endpoint(), "w\nE learner: forged");
  worker.Credit(0, 1);
  EXPECT_EQ(worker.End().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::RegisterRequest request;
  request.set_worker_id(std::string(129, 'w'));
  v1::RegisterResponse response;
  const auto context = rpc::ContextWithDeadline(absl::Seconds(10));
  const auto stub = v1::Coordinator::NewStub(rpc::Connect(server_->endpoint()));
  EXPECT_EQ(stub->Register(context.get(), request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

// Promise: Processes of one run speak one protocol. Worker, ranks and replay buffer say the
// revision of the protocol that they speak when they meet the learner, and reward servers when they
// are described. Another revision is refused in one line that names both sides and the fix. The
// side that cannot go on without the other ends with exit code 2: a worker, a rank with rank 0, a
// learner before its buffer. A worker of another revision does not disturb the run. Another build
// is a warning, once. Not covered: two builds of one version from source, which are told apart only
// where they were given their commit (`-DOXBOW_REVISION`), as images are.
TEST_F(CoordinatorServiceTest, AWorkerOfAnotherRevisionIsRefusedInOneLineAndSeenOnce) {
  const auto stub = v1::Coordinator::NewStub(rpc::Connect(server_->endpoint()));
  const auto enter = [&](const std::string& id, uint32_t revision, const std::string& version) {
    v1::RegisterRequest request;
    request.set_worker_id(id);
    request.set_protocol(revision);
    request.set_version(version);
    v1::RegisterResponse response;
    const grpc::Status status =
        stub->Register(rpc::ContextWithDeadline(absl::Seconds(20)).get(), request, &response);
    if (status.ok()) {
      EXPECT_EQ(response.protocol(), kProtocolRevision);
      EXPECT_EQ(response.version(), OXBOW_VERSION);
    }
    return status;
  };
  for (const char* id : {"a", "b"}) {
    const grpc::Status refused = enter(id, kProtocolRevision + 1, "99.1");
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(refused.error_message(),
                ::testing::AllOf(HasSubstr(absl::StrCat("worker ", id, " (oxbow 99.1) speaks")),
                                 HasSubstr(absl::StrCat("the learner (oxbow ", OXBOW_VERSION)),
                                 HasSubstr("run one version of oxbow")));
  }
  EXPECT_EQ(enter("c", 0, "").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(enter("d", kProtocolRevision, "98.0").ok()) << "another build is a warning";
  EXPECT_TRUE(enter("e", kProtocolRevision, OXBOW_VERSION).ok());
  v1::StatusResponse status;
  EXPECT_TRUE(service_.Status(nullptr, nullptr, &status).ok());
  EXPECT_THAT(status.notices(), ElementsAre(HasSubstr("worker c speaks"),
                                            HasSubstr("worker d is oxbow 98.0, the learner oxbow"),
                                            HasSubstr("worker a (oxbow 99.1) speaks revision")));
  EXPECT_TRUE(assembler_.stopped().ok()) << "the run goes on";
}

// Each thread that the server has for calls is taken; a registration needs none of them.
// Promise: Workers come and go.
TEST_F(CoordinatorServiceTest, RegistrationsOfAThousandWorkersAtOnceAreAllAnswered) {
  absl::Notification go_on;
  CoordinatorService service(
      coordinator_, [&](v1::StatusResponse&) { go_on.WaitForNotification(); }, Registration(),
      [](const std::string&) {});
  const auto server = rpc::Server::Start({.threads_max = 4}, {&service}).value();
  const auto stub = v1::Coordinator::NewStub(rpc::Connect(server->endpoint()));
  absl::Notification busy;
  std::atomic<int> refused = 0;
  std::vector<std::jthread> callers;
  const absl::Cleanup let_go = [&] { go_on.Notify(); };
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      v1::StatusResponse response;
      const auto context = rpc::ContextWithDeadline(absl::Seconds(60));
      const grpc::Status status = stub->Status(context.get(), {}, &response);
      const bool no_room = status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
      if (no_room && refused++ == 0) busy.Notify();
    });
  }
  ASSERT_TRUE(busy.WaitForNotificationWithTimeout(absl::Seconds(60)));

  struct Call {
    std::unique_ptr<grpc::ClientContext> context = rpc::ContextWithDeadline(absl::Seconds(60));
    v1::RegisterRequest request;
    v1::RegisterResponse response;
  };
  std::vector<Call> calls(1000);
  absl::BlockingCounter ended(static_cast<int>(calls.size()));
  std::atomic<int> answered = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    calls[i].request.set_worker_id(absl::StrCat("w", i));
    calls[i].request.set_protocol(kProtocolRevision);
    stub->async()->Register(calls[i].context.get(), &calls[i].request, &calls[i].response,
                            [&](const grpc::Status& status) {
                              if (status.ok()) ++answered;
                              ended.DecrementCount();
                            });
  }
  ended.Wait();
  EXPECT_EQ(answered, 1000);
}

}  // namespace
}  // namespace oxbow::learner
