// SPDX-License-Identifier: Apache-2.0
// The sink under many streams: those that do nothing hold up nobody, and hold nothing for ever.
#include <thread>

#include "absl/synchronization/notification.h"
#include "rpc/convert.h"
#include "tests/testing/coordinator_fixture.h"

namespace oxbow::learner {
namespace {

constexpr uint64_t kGroupBytes = 2 * (kSteps + 1) * 4 * sizeof(float);

struct OpenInsert {
  explicit OpenInsert(const std::string& endpoint)
      : stub(v1::ExperienceSink::NewStub(rpc::Connect(endpoint))),
        context(rpc::ContextWithDeadline(absl::Seconds(20))),
        stream(stub->Insert(context.get())) {}
  ~OpenInsert() {
    context->TryCancel();
    if (stream != nullptr) (void)stream->Finish();
  }
  grpc::Status End() {
    v1::InsertResponse response;
    while (stream->Read(&response)) {
    }
    const grpc::Status status = stream->Finish();
    stream.reset();
    return status;
  }
  std::unique_ptr<v1::ExperienceSink::Stub> stub;
  std::unique_ptr<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::InsertRequest, v1::InsertResponse>> stream;
};

// Promise: Open streams stop nobody.
TEST_F(CoordinatorServiceTest, HundredsOfIdleInsertsHoldUpNobody) {
  std::vector<std::unique_ptr<OpenInsert>> idle;
  for (int i = 0; i < 300; ++i) idle.push_back(std::make_unique<OpenInsert>(server_->endpoint()));
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 2);
  for (int i = 0; i < 2; ++i) {
    const v1::Lease lease = worker.Next().lease();
    EXPECT_EQ(worker.Insert(worker.Result(lease, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  }
  const auto stub = v1::Coordinator::NewStub(rpc::Connect(server_->endpoint()));
  v1::StatusResponse status;
  EXPECT_TRUE(stub->Status(rpc::ContextWithDeadline(absl::Seconds(20)).get(), {}, &status).ok());
  EXPECT_EQ(status.groups_ready(), 2u);
  EXPECT_EQ(budget_.used(), 2 * kGroupBytes) << "a stream without a header holds nothing";
}

TEST_F(CoordinatorServiceTest, AGroupThatItsWorkerGaveUpIsCountedAsDiscarded) {
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 1);
  worker.Fail(worker.Next().lease().lease_id(), "send group 0: UNAVAILABLE", /*unscored=*/false,
              /*discarded=*/true);
  (void)worker.Renew(1);  // Comes back after the failure was taken.
  v1::StatusResponse status;
  coordinator_.FillStatus(status);
  EXPECT_EQ(status.groups_discarded(), 1u);
}

// The answer to a header that brings latents of `bytes` each.
v1::InsertResponse AnswerTo(const std::string& endpoint, v1::Group group, size_t bytes) {
  for (v1::Trajectory& trajectory : *group.mutable_trajectories()) {
    trajectory.mutable_latents()->set_data(std::string(bytes, '\0'));
  }
  OpenInsert insert(endpoint);
  v1::InsertRequest header;
  *header.mutable_header() = std::move(group);
  insert.stream->Write(header);
  v1::InsertResponse response;
  EXPECT_TRUE(insert.stream->Read(&response));
  return response;
}

TEST_F(CoordinatorServiceTest, SmallLatentsComeWithTheHeaderAndAreCountedAsOthers) {
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 2);
  for (int i = 1; i <= 2; ++i) {
    const v1::Lease lease = worker.Next().lease();
    const auto answer = AnswerTo(server_->endpoint(), worker.Result(lease, 0), kGroupBytes / 2);
    EXPECT_EQ(answer.ack().outcome(), v1::INSERT_OUTCOME_ACCEPTED) << answer.ack().error();
    EXPECT_EQ(budget_.used(), i * kGroupBytes);
  }
}

TEST_F(CoordinatorServiceTest, LatentsInAHeaderThatAreNotWholeOrTooManyAreRefused) {
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 1);
  const v1::Lease lease = worker.Next().lease();
  for (const uint64_t bytes :
       {uint64_t{4}, kGroupBytes / 2 - 4, kGroupBytes / 2 + 4, rpc::kHeaderLatentBytes}) {
    const auto answer = AnswerTo(server_->endpoint(), worker.Result(lease, 0), bytes);
    EXPECT_EQ(answer.ack().outcome(), v1::INSERT_OUTCOME_INVALID) << bytes;
    EXPECT_EQ(budget_.used(), 0u) << bytes;
    const bool many = 2 * bytes > rpc::kHeaderLatentBytes;
    EXPECT_THAT(answer.ack().error(), testing::HasSubstr(many ? "bytes, at most" : "")) << bytes;
  }
}

// They wait for room as chunks do.
TEST_F(CoordinatorServiceTest, LatentsInAHeaderWaitForRoom) {
  ByteBudget::Hold full;
  ByteBudget::Place place(budget_, 1 << 20, [] {});
  ASSERT_TRUE(place.Take(full));
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 1);
  const v1::Lease lease = worker.Next().lease();
  absl::Notification answered;
  std::thread sender([&] {
    const auto answer = AnswerTo(server_->endpoint(), worker.Result(lease, 0), kGroupBytes / 2);
    EXPECT_EQ(answer.ack().outcome(), v1::INSERT_OUTCOME_ACCEPTED) << answer.ack().error();
    answered.Notify();
  });
  EXPECT_FALSE(answered.WaitForNotificationWithTimeout(absl::Milliseconds(50)));
  full = {};
  sender.join();
  EXPECT_EQ(budget_.used(), kGroupBytes);
}

// A budget of one group and a worker that sends half of it and no more.
// Promise: Open streams stop nobody.
TEST_F(CoordinatorServiceTest, AWorkerThatFallsSilentGivesItsRoomToTheNext) {
  ByteBudget budget(kGroupBytes);
  ExperienceSinkService sink(coordinator_, budget, Rules(), metrics_,
                             {.idle_max = absl::Milliseconds(200)});
  const auto server = rpc::Server::Start({}, {&sink}).value();
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 1);
  const v1::Lease lease = worker.Next().lease();
  OpenInsert silent(server->endpoint());
  v1::InsertRequest header;
  *header.mutable_header() = worker.Result(lease, 0);
  silent.stream->Write(header);
  v1::InsertResponse response;
  ASSERT_TRUE(silent.stream->Read(&response));
  EXPECT_EQ(response.credit().bytes(), kGroupBytes) << "for the whole group, once its header came";

  OpenInsert next(server->endpoint());
  next.stream->Write(header);
  EXPECT_EQ(silent.End().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  ASSERT_TRUE(next.stream->Read(&response));
  EXPECT_EQ(response.credit().bytes(), kGroupBytes);
  server->Shutdown(absl::ZeroDuration());
}

}  // namespace
}  // namespace oxbow::learner
