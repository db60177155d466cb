// SPDX-License-Identifier: Apache-2.0
// Held-out pictures that workers draw are all there, each once and in order, whatever becomes of
// the workers; and groups do not notice.
#include "services/learner/coordinator/picture_leases.h"

#include <map>
#include <random>

#include "tests/testing/coordinator_fixture.h"

namespace oxbow::learner {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Frames = DrawnPictures::Frames;

// The one picture of a place, as every worker draws it.
Frames PictureOf(size_t place) {
  Frames frames(1 + place % 2);
  for (size_t i = 0; i < frames.size(); ++i) {
    frames[i] = {.width = 3, .height = 2, .channels = 1, .pixels = {}};
    for (size_t pixel = 0; pixel < 6; ++pixel) {
      frames[i].pixels.push_back(static_cast<uint8_t>(31 * place + 7 * i + pixel));
    }
  }
  return frames;
}

std::vector<Frames> Drawn(const v1::Lease::Pictures& pictures) {
  std::vector<Frames> drawn;
  for (int i = 0; i < pictures.pictures_size(); ++i) {
    drawn.push_back(PictureOf(pictures.first_place() + static_cast<size_t>(i)));
  }
  return drawn;
}

// Leases of 1 to 3 pictures each.
std::vector<v1::Lease::Pictures> RandomUnits(std::mt19937& random, size_t leases) {
  std::vector<v1::Lease::Pictures> units(leases);
  uint32_t place = 0;
  for (v1::Lease::Pictures& unit : units) {
    unit.set_first_place(place);
    for (size_t left = 1 + random() % 3; left > 0; --left, ++place) unit.add_pictures();
  }
  return units;
}

// A worker's stream without a network.
class QuietSession final : public Coordinator::Session {
 public:
  void Wake() override {}
  void Cut() override {}
};

// A worker that does at any moment whatever it likes.
class UnsteadyWorker {
 public:
  UnsteadyWorker(Coordinator& coordinator, std::string id)
      : coordinator_(coordinator), id_(std::move(id)) {
    OXBOW_CHECK(coordinator_.Open(*session_, id_, 1).ok()) << id_;
  }
  ~UnsteadyWorker() { coordinator_.Close(*session_, /*goodbye=*/false); }

  // Asks for leases and takes those that have come.
  void Ask(uint32_t groups) {
    coordinator_.SetCredit(*session_, PolicyVersion(0), groups);
    while (auto message = coordinator_.Take(*session_)) {
      if (!message->has_lease()) continue;
      const v1::Lease& lease = message->lease();
      EXPECT_EQ(PictureLeases::Names(LeaseId(lease.lease_id())), lease.has_pictures());
      EXPECT_TRUE(ids_.insert(lease.lease_id()).second) << "an id is given once";
      if (lease.has_pictures()) held_.push_back(lease);
    }
  }

  void Act(std::mt19937& random, size_t& accepted) {
    if (held_.empty()) return Ask(1 + random() % 3);
    const size_t which = random() % held_.size();
    const v1::Lease lease = held_[which];
    const LeaseId id(lease.lease_id());
    switch (random() % 8) {
      case 0:
        return Ask(random() % 4);
      case 1:
        coordinator_.Renew(*session_, {id});
        return;
      case 2:
        if (random() % 4 == 0) coordinator_.Finish(*session_, id, "torch: no");
        break;
      default:
        accepted += coordinator_.SubmitPictures(id_, id, Drawn(lease.pictures())) ? 1 : 0;
        if (random() % 3 == 0) return;  // The answer is lost, and it is sent again.
    }
    held_.erase(held_.begin() + static_cast<ptrdiff_t>(which));
  }

 private:
  Coordinator& coordinator_;
  const std::string id_;
  const std::shared_ptr<QuietSession> session_ = std::make_shared<QuietSession>();
  std::vector<v1::Lease> held_;
  std::set<uint64_t> ids_;
};

// Promise: Any process draws an evaluation with the same bytes.
TEST_F(CoordinatorServiceTest, PicturesAreAllThereOnceWhateverBecomesOfTheWorkers) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::vector<v1::Lease::Pictures> units = RandomUnits(random, 1 + random() % 9);
    const auto results = std::make_shared<DrawnPictures>(units.size());
    coordinator_.OfferPictures(units, results);
    if (random() % 2 == 0) coordinator_.HurryPictures();
    std::vector<std::unique_ptr<UnsteadyWorker>> workers;
    size_t accepted = 0;
    for (int event = 0; accepted < units.size(); ++event) {
      ASSERT_LT(event, 100'000) << "no progress";
      if (workers.empty() || random() % 40 == 0) {
        workers.push_back(
            std::make_unique<UnsteadyWorker>(coordinator_, absl::StrCat("w", seed, "-", event)));
      }
      const size_t which = random() % workers.size();
      workers[which]->Act(random, accepted);
      if (random() % 20 == 0) workers.erase(workers.begin() + static_cast<ptrdiff_t>(which));
      if (random() % 4 == 0) clock_.Advance(absl::Seconds(random() % 20));
      coordinator_.Tick();
    }
    const auto pictures = results->Await();
    ASSERT_TRUE(pictures.ok()) << pictures.status();
    ASSERT_EQ(accepted, units.size());
    std::vector<Frames> expected;
    for (const v1::Lease::Pictures& unit : units) {
      for (Frames& frames : Drawn(unit)) expected.push_back(std::move(frames));
    }
    EXPECT_TRUE(*pictures == expected);
    coordinator_.EndPictures();
  }
  v1::StatusResponse status;
  coordinator_.FillStatus(status);
  EXPECT_EQ(status.groups_discarded(), 0u) << "pictures count as no groups";
}

v1::DeliverRequest PieceOf(const v1::Lease& lease, const std::string& worker, size_t place) {
  v1::DeliverRequest request;
  request.set_epoch(kEpoch);
  request.set_worker_id(worker);
  request.set_lease_id(lease.lease_id());
  *request.mutable_piece() =
      rpc::InPieces(lease.pictures().evaluation(), place, PictureOf(place)).front();
  return request;
}

// The learner's answer to these messages.
grpc::Status Deliver(const std::string& endpoint, const std::vector<v1::DeliverRequest>& requests,
                     bool* taken) {
  const auto stub = v1::Coordinator::NewStub(rpc::Connect(endpoint));
  const auto context = rpc::ContextWithDeadline(absl::Seconds(20));
  const auto stream = stub->Deliver(context.get());
  for (const v1::DeliverRequest& request : requests) stream->Write(request);
  stream->WritesDone();
  v1::DeliverResponse response;
  if (stream->Read(&response)) *taken = response.taken();
  return stream->Finish();
}

TEST_F(CoordinatorServiceTest, PicturesComeByCallsAndGroupsComeFirstUntilTheLearnerWaits) {
  std::mt19937 random(1);
  const auto results = std::make_shared<DrawnPictures>(3);
  coordinator_.OfferPictures(RandomUnits(random, 3), results);
  WorkerStreams a(server_->endpoint(), "a");
  a.Credit(0, 2);
  EXPECT_FALSE(a.Next().lease().has_pictures());
  EXPECT_FALSE(a.Next().lease().has_pictures()) << "two groups are planned, and come first";
  a.Credit(0, 1);
  const v1::Lease first = a.Next().lease();
  ASSERT_TRUE(first.has_pictures()) << "a worker with nothing else to do";
  EXPECT_THAT(first.pictures().peers(), IsEmpty());
  coordinator_.HurryPictures();
  coordinator_.published().Add(PolicyVersion(1), LearnerStep(1));
  coordinator_.Plan(PlanOf(1));
  WorkerStreams b(server_->endpoint(), "b");
  b.Credit(1, 3);
  const v1::Lease second = b.Next().lease();
  const v1::Lease third = b.Next().lease();
  EXPECT_TRUE(second.has_pictures() && third.has_pictures()) << "the learner waits for them";
  EXPECT_FALSE(b.Next().lease().has_pictures());
  ASSERT_EQ(second.pictures().peers_size(), 1);
  EXPECT_EQ(second.pictures().peers(0).endpoint(), "a:1");
  std::vector<Frames> expected;
  for (const auto& [lease, worker] : {std::pair(third, "b"), {first, "a"}, {second, "b"}}) {
    std::vector<v1::DeliverRequest> requests;
    for (int i = 0; i < lease.pictures().pictures_size(); ++i) {
      requests.push_back(
          PieceOf(lease, worker, lease.pictures().first_place() + static_cast<size_t>(i)));
    }
    bool taken = false;
    ASSERT_TRUE(Deliver(server_->endpoint(), requests, &taken).ok());
    EXPECT_TRUE(taken);
    ASSERT_TRUE(Deliver(server_->endpoint(), requests, &taken).ok());
    EXPECT_FALSE(taken) << "nobody wants them a second time";
  }
  const auto pictures = results->Await();
  ASSERT_TRUE(pictures.ok()) << pictures.status();
  for (size_t place = 0; place < pictures->size(); ++place) {
    EXPECT_TRUE((*pictures)[place] == PictureOf(place)) << place;
  }
}

// Promise: Any process draws an evaluation with the same bytes.
TEST_F(CoordinatorServiceTest, PicturesThatWereNotAskedForCountAsAFailureAndEndTheEvaluation) {
  std::mt19937 random(2);
  const auto results = std::make_shared<DrawnPictures>(1);
  coordinator_.OfferPictures(RandomUnits(random, 1), results);
  coordinator_.HurryPictures();
  WorkerStreams worker(server_->endpoint(), "a");
  for (uint32_t i = 0; i < 3; ++i) {
    worker.Credit(0, 1);
    const v1::Lease lease = worker.Next().lease();
    ASSERT_TRUE(lease.has_pictures());
    EXPECT_EQ(lease.attempt(), i + 1);
    bool taken = true;
    EXPECT_TRUE(Deliver(server_->endpoint(), {PieceOf(lease, "b", 0)}, &taken).ok());
    EXPECT_FALSE(taken) << "a lease is its holder's";
    const grpc::Status wrong = Deliver(server_->endpoint(), {PieceOf(lease, "a", 99)}, &taken);
    EXPECT_EQ(wrong.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(wrong.error_message(), HasSubstr("place 99"));
    clock_.Advance(absl::Seconds(15));  // The back-off after a failure.
    coordinator_.Tick();
  }
  clock_.Advance(absl::Minutes(1));  // Nobody is there who might draw them.
  coordinator_.Tick();
  EXPECT_THAT(std::string(results->Await().status().message()), HasSubstr("place 99"));
  coordinator_.EndPictures();
  EXPECT_TRUE(assembler_.stopped().ok()) << "training goes on";
}

// A lease's number may be that of an earlier start of the learner.
// Promise: Any process draws an evaluation with the same bytes.
TEST_F(CoordinatorServiceTest, PicturesOfAnotherStartAreRefusedAndNoFailureOfTheLease) {
  std::mt19937 random(4);
  const auto results = std::make_shared<DrawnPictures>(1);
  coordinator_.OfferPictures(RandomUnits(random, 1), results);
  coordinator_.HurryPictures();
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 1);
  const v1::Lease lease = worker.Next().lease();
  ASSERT_TRUE(lease.has_pictures());
  v1::DeliverRequest request = PieceOf(lease, "a", 0);
  request.set_epoch(kEpoch - 1);
  bool taken = false;
  const grpc::Status status = Deliver(server_->endpoint(), {request}, &taken);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_FALSE(taken);
  EXPECT_TRUE(coordinator_.SubmitPictures("a", LeaseId(lease.lease_id()), Drawn(lease.pictures())));
}

// Promise: Any process draws an evaluation with the same bytes.
TEST_F(CoordinatorServiceTest, APictureOfAnotherSizeIsAFailureOfItsLease) {
  const std::vector<v1::Lease::Pictures> units = [] {
    std::vector<v1::Lease::Pictures> one(1);
    one[0].add_pictures();
    return one;
  }();
  for (const int height : {2, 3}) {
    SCOPED_TRACE(height);
    const auto results = std::make_shared<DrawnPictures>(
        1, DrawnPictures::Size{.height = height, .width = 3, .frames = 1});
    coordinator_.OfferPictures(units, results);
    coordinator_.HurryPictures();
    WorkerStreams worker(server_->endpoint(), absl::StrCat("w", height));
    worker.Credit(0, 1);
    const v1::Lease lease = worker.Next().lease();
    ASSERT_TRUE(lease.has_pictures());
    EXPECT_EQ(coordinator_.SubmitPictures(absl::StrCat("w", height), LeaseId(lease.lease_id()),
                                          Drawn(lease.pictures())),
              height == 2);
    coordinator_.EndPictures();
  }
}

// Promise: Any process draws an evaluation with the same bytes.
TEST(DrawnPicturesTest, AllPicturesOfAnEvaluationHaveTheChannelsOfTheFirst) {
  DrawnPictures drawn(2);
  EXPECT_TRUE(drawn.Check({PictureOf(0), PictureOf(1)}).ok()) << "of any size";
  drawn.Add(0, {PictureOf(0)});
  Frames coloured = {{.width = 1, .height = 1, .channels = 3, .pixels = {1, 2, 3}}};
  EXPECT_THAT(std::string(drawn.Check({coloured}).message()), HasSubstr("3 channels, not 1"));
  EXPECT_FALSE(DrawnPictures(2).Check({PictureOf(0), coloured}).ok());
}

TEST_F(CoordinatorServiceTest, AnEvaluationThatHasEndedLeasesNothingAndRenewsNothing) {
  std::mt19937 random(3);
  const auto results = std::make_shared<DrawnPictures>(2);
  coordinator_.OfferPictures(RandomUnits(random, 2), results);
  coordinator_.HurryPictures();
  WorkerStreams worker(server_->endpoint(), "a");
  worker.Credit(0, 1);
  const v1::Lease lease = worker.Next().lease();
  ASSERT_TRUE(lease.has_pictures());
  EXPECT_THAT(worker.Renew(lease.lease_id()), ::testing::ElementsAre(lease.lease_id()));
  results->End(absl::CancelledError("drained"));
  coordinator_.EndPictures();
  EXPECT_EQ(worker.Next().cancel().lease_id(), lease.lease_id());
  EXPECT_THAT(worker.Renew(lease.lease_id()), IsEmpty());
  bool taken = true;
  EXPECT_TRUE(Deliver(server_->endpoint(), {PieceOf(lease, "a", 0)}, &taken).ok());
  EXPECT_FALSE(taken);
  worker.Credit(0, 1);
  EXPECT_FALSE(worker.Next().lease().has_pictures());
  EXPECT_TRUE(absl::IsCancelled(results->Await().status()));
}

}  // namespace
}  // namespace oxbow::learner
