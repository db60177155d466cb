// SPDX-License-Identifier: Apache-2.0
// Workers that fail whatever they are given, and workers that do not read what they are told.
#include <memory>
#include <optional>

#include "tests/testing/coordinator_fixture.h"

namespace oxbow::learner {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Promise: One bad worker ends no run.
class BadWorkerTest : public CoordinatorServiceTest {
 protected:
  v1::WorkerStatus StatusOf(const std::string& worker) const {
    v1::StatusResponse status;
    coordinator_.FillStatus(status);
    for (const v1::WorkerStatus& one : status.workers()) {
      if (one.worker_id() == worker) return one;
    }
    ADD_FAILURE() << "unknown: " << worker;
    return {};
  }

  void FailOne(WorkerStreams& worker) {
    worker.Credit(0, 1);
    worker.Fail(worker.Next().lease().lease_id(), "torch: CUDA error");
    (void)worker.Renew(1);  // Comes back after the failure was taken.
    clock_.Advance(absl::Seconds(1));
  }
};

TEST_F(BadWorkerTest, AfterThreeFailuresItGetsOneLeaseAfterARestAndIsSeen) {
  WorkerStreams bad(server_->endpoint(), "bad");
  for (int i = 0; i < 3; ++i) FailOne(bad);
  bad.Credit(0, 2);
  (void)bad.Renew(1);  // The next message is the answer, not a lease.
  v1::WorkerStatus status = StatusOf("bad");
  EXPECT_EQ(status.failures(), 3u);
  EXPECT_EQ(status.failure(), "torch: CUDA error");
  EXPECT_GT(status.rests_seconds(), 25);
  coordinator_.Tick();
  EXPECT_THAT(telemetry::ScrapeText(registry_),
              AllOf(HasSubstr("oxbow_learner_workers_bad 1"),
                    HasSubstr("oxbow_learner_worker_rests_total 1")));
  clock_.Advance(absl::Seconds(30));
  coordinator_.Tick();
  const v1::Lease trial = bad.Next().lease();
  (void)bad.Renew(trial.lease_id());  // The next message is the answer, not a second lease.
  EXPECT_EQ(bad.Insert(bad.Result(trial, 0)).outcome(), v1::INSERT_OUTCOME_ACCEPTED);
  EXPECT_TRUE(bad.Next().has_lease()) << "it is well again";
  EXPECT_EQ(StatusOf("bad").failures(), 0u);
}

TEST_F(BadWorkerTest, HeldOutPicturesAreNotForItEither) {
  WorkerStreams bad(server_->endpoint(), "bad");
  for (int i = 0; i < 3; ++i) FailOne(bad);
  const auto results = std::make_shared<DrawnPictures>(1);
  coordinator_.OfferPictures(std::vector<v1::Lease::Pictures>(1), results);
  coordinator_.HurryPictures();
  bad.Credit(0, 2);
  (void)bad.Renew(1);
  WorkerStreams good(server_->endpoint(), "good");
  good.Credit(0, 1);
  EXPECT_TRUE(good.Next().lease().has_pictures());
  coordinator_.EndPictures();
}

TEST_F(BadWorkerTest, WhereAllAreBadTheRunWaitsAndThenEndsWithTheirWords) {
  WorkerStreams bad(server_->endpoint(), "bad");
  for (int i = 0; i < 3; ++i) FailOne(bad);
  for (int minute = 0; minute < 29; ++minute) {
    coordinator_.Tick();
    EXPECT_TRUE(assembler_.stopped().ok()) << minute;
    clock_.Advance(absl::Minutes(1));
  }
  clock_.Advance(absl::Minutes(1));
  coordinator_.Tick();
  EXPECT_EQ(assembler_.stopped().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(assembler_.stopped().message()),
              AllOf(HasSubstr("services.patience_minutes"), HasSubstr("bad: torch: CUDA error")));
}

TEST_F(BadWorkerTest, AServiceThatIsAwayIsNobodysFault) {
  WorkerStreams worker(server_->endpoint(), "a");
  for (int i = 0; i < 5; ++i) {
    worker.Credit(0, 1);
    worker.Fail(worker.Next().lease().lease_id(), "sink: gone", false, /*discarded=*/true);
    (void)worker.Renew(1);
    clock_.Advance(absl::Seconds(2));
    coordinator_.Tick();
  }
  EXPECT_EQ(StatusOf("a").failures(), 0u);
  EXPECT_EQ(StatusOf("a").failure(), "sink: gone");
}

// A worker's session whose stream takes nothing.
class DeafSession final : public Coordinator::Session {
 public:
  void Wake() override {}
  void Cut() override { ++cut; }
  int cut = 0;
};

// Promise: A peer that does not read fills no memory. A worker that is told more than 256 messages
// or 4 MiB which it does not read loses its stream; that is counted and logged, and its leases go
// to others. From any other stream no request is read while 256 answers wait for its peer. A
// request names at most 1,024 leases, and of a reason 4 KiB are kept.
TEST_F(BadWorkerTest, AWorkerThatDoesNotReadIsCutOffAtALimitAndItsLeasesGoToOthers) {
  const auto deaf = std::make_shared<DeafSession>();
  ASSERT_TRUE(coordinator_.Open(*deaf, "deaf", 7).ok());
  coordinator_.SetCredit(*deaf, PolicyVersion(0), 1);
  for (int i = 0; i < 250; ++i) coordinator_.Renew(*deaf, {LeaseId(1)});
  EXPECT_EQ(deaf->cut, 0);
  for (int i = 0; i < 100; ++i) coordinator_.Renew(*deaf, {LeaseId(1)});
  EXPECT_EQ(deaf->cut, 1);
  EXPECT_FALSE(coordinator_.Take(*deaf).has_value()) << "nothing is kept";
  EXPECT_THAT(telemetry::ScrapeText(registry_), HasSubstr("oxbow_learner_streams_cut_total 1"));
  coordinator_.Close(*deaf, /*goodbye=*/false);
  clock_.Advance(absl::Seconds(4));
  coordinator_.Tick();
  WorkerStreams other(server_->endpoint(), "other");
  other.Credit(0, 2);
  EXPECT_EQ(other.Next().lease().group_id(), 0u);
}

// Promise: A peer that does not read fills no memory.
TEST_F(BadWorkerTest, ARequestThatNamesMoreLeasesThanAWorkerMayHoldEndsItsStream) {
  const auto stub = v1::Coordinator::NewStub(rpc::Connect(server_->endpoint()));
  const auto context = rpc::ContextWithDeadline(absl::Seconds(20));
  const auto stream = stub->Work(context.get());
  v1::WorkRequest request;
  request.set_epoch(kEpoch);
  request.set_worker_id("greedy");
  for (uint64_t i = 0; i < 100'000; ++i) request.mutable_renew()->add_lease_ids(i);
  ASSERT_TRUE(stream->Write(request));
  v1::WorkResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// Promise: A peer that does not read fills no memory.
TEST_F(BadWorkerTest, AReasonWithoutEndIsKeptInPart) {
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 1);
  std::string reason(4092, 'x');
  reason += "\u00e9";
  worker.Fail(worker.Next().lease().lease_id(), reason + std::string(1 << 20, 'y'));
  (void)worker.Renew(1);
  EXPECT_EQ(StatusOf("a").failure(), std::string(4092, 'x') + "...") << "between characters";
}

}  // namespace
}  // namespace oxbow::learner
