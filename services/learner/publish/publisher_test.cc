// SPDX-License-Identifier: Apache-2.0
// The weights that were trained are published; bad ones are not.
#include "services/learner/publish/publisher.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <cmath>
#include <limits>
#include <memory>

#include "absl/synchronization/notification.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "services/weights/weight_follower.h"
#include "telemetry/metrics.h"
#include "tests/testing/tiny_model.h"

namespace oxbow::learner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kDeadline = absl::Seconds(20);
constexpr Epoch kEpoch{3};

class PublisherTest : public ::testing::Test {
 protected:
  explicit PublisherTest(uint64_t channel_bytes = 1 << 20)
      : channel_({.epoch = kEpoch, .bytes_max = channel_bytes}, weight_metrics_, Clock::Steady(),
                 nullptr) {
    const auto shape =
        weights::ProbeShapeOf(*rollout::TinyArchitecture(), rollout::kTinyLatent, {});
    publisher_ = std::make_unique<Publisher>(
        Publisher::Options{.epoch = kEpoch, .probe_shape = *shape, .gate = {.reward_floor = 0.5}},
        *policy_, coordinator_, channel_, Publisher::Metrics{learner_metrics_, weight_metrics_},
        [this](const absl::Status& why) {
          failure_ = why;
          failed_.Notify();
        });
  }

  absl::StatusOr<bool> Publish(uint64_t version) {
    return publisher_->Publish(PolicyVersion(version), LearnerStep(version));
  }
  std::string Scrape() const { return telemetry::ScrapeText(registry_); }

  prometheus::Registry registry_;
  LearnerMetrics learner_metrics_{registry_};
  weights::PublishMetrics weight_metrics_{registry_};
  GroupAssembler assembler_;
  Coordinator coordinator_{{.leases = {.epoch = kEpoch, .groups_per_step = 1}},
                           Clock::Steady(),
                           assembler_,
                           learner_metrics_};
  weights::WeightChannelService channel_;
  const std::unique_ptr<model::Policy> policy_ = rollout::TinyPolicy(1);
  absl::Status failure_;
  absl::Notification failed_;
  std::unique_ptr<Publisher> publisher_;
};

TEST_F(PublisherTest, WeightsGoOutAsTheyWereWhateverTrainingDoesNext) {
  const auto server = rpc::Server::Start({}, {&channel_});
  ASSERT_TRUE(server.ok());
  const std::string name = policy_->parameters().tensors().begin()->first;
  const at::Tensor before = policy_->parameters().Get(name).detach().clone();
  ASSERT_TRUE(*Publish(1));
  policy_->parameters().flat().detach().fill_(7);  // The next step.

  const auto stub = v1::WeightChannel::NewStub(rpc::Connect((*server)->endpoint()));
  const auto context = rpc::ContextWithDeadline(kDeadline);
  const auto watch = stub->Watch(context.get(), v1::WatchRequest());
  v1::WatchResponse told;
  ASSERT_TRUE(watch->Read(&told));
  EXPECT_TRUE(
      coordinator_.published().StepOf(PolicyVersion(1)).has_value());  // Before it is announced.
  EXPECT_FALSE(told.manifest().probe().digest().empty());
  for (const v1::TensorManifest& entry : told.manifest().tensors()) {
    if (entry.name() != name) continue;
    v1::FetchRequest request;
    request.add_chunk_sha256(entry.chunk_sha256(0));
    const auto fetching = rpc::ContextWithDeadline(kDeadline);
    const auto reader = stub->Fetch(fetching.get(), request);
    v1::FetchResponse piece;
    ASSERT_TRUE(reader->Read(&piece));
    EXPECT_EQ(piece.data(),
              std::string(static_cast<const char*>(before.const_data_ptr()), before.nbytes()));
    fetching->TryCancel();
    reader->Finish();
  }
  context->TryCancel();
  watch->Finish();
  channel_.Stop();
}

// A network that throws at its probe: nothing goes out, the next try does not wait for it, and the
// end of the learner neither.
TEST_F(PublisherTest, WithoutItsProbeNothingIsAnnounced) {
  publisher_.reset();
  auto shape = weights::ProbeShapeOf(*rollout::TinyArchitecture(), rollout::kTinyLatent, {});
  shape->parts.clear();  // A prompt without tokens.
  Publisher publisher({.epoch = kEpoch, .probe_shape = *shape}, *policy_, coordinator_, channel_,
                      Publisher::Metrics{learner_metrics_, weight_metrics_}, nullptr);
  for (const uint64_t version : {1, 2}) {
    EXPECT_ANY_THROW((void)publisher.Publish(PolicyVersion(version), LearnerStep(version)));
  }
  EXPECT_FALSE(coordinator_.published().StepOf(PolicyVersion(2)).has_value());
}

// Promise: Bad weights are not published. A snapshot with a value that is not finite is not
// published and ends the run. With `publish.reward_floor`, a snapshot whose held-out reward
// collapsed is not published either. Workers keep the last good weights while the staleness budget
// lasts. Then the run stops with one line.
TEST_F(PublisherTest, AValueThatIsNotFiniteIsNotPublishedAndItsTensorIsNamed) {
  const auto& [name, tensor] = *policy_->parameters().tensors().rbegin();
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    tensor.detach().view({-1})[0] = bad;
    const auto published = Publish(1);
    EXPECT_EQ(published.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(published.status().ToString(), HasSubstr(name));
  }
  publisher_.reset();  // All that was taken is out.
  EXPECT_FALSE(coordinator_.published().StepOf(PolicyVersion(1)).has_value());
  EXPECT_THAT(Scrape(), HasSubstr("oxbow_weights_withheld_total{reason=\"not_finite\"} 2\n"));
}

TEST_F(PublisherTest, CollapsedWeightsAreWithheldAndCounted) {
  EXPECT_THAT(Scrape(), HasSubstr("oxbow_weights_published_timestamp_seconds 0\n"));
  ASSERT_TRUE(*Publish(0));
  publisher_->Evaluated(1);
  ASSERT_TRUE(*Publish(1));
  publisher_->Evaluated(0.2);
  EXPECT_EQ(Publish(2).status().code(), absl::StatusCode::kFailedPrecondition);
  publisher_.reset();
  EXPECT_TRUE(coordinator_.published().StepOf(PolicyVersion(1)).has_value());
  EXPECT_FALSE(coordinator_.published().StepOf(PolicyVersion(2)).has_value());
  EXPECT_THAT(Scrape(), HasSubstr("oxbow_weights_withheld_total{reason=\"reward_floor\"} 1\n"));
  EXPECT_THAT(Scrape(), Not(HasSubstr("oxbow_weights_published_timestamp_seconds 0\n")));
}

// With publish_every above 1 the policy is ahead of what workers can get.
TEST_F(PublisherTest, PublishingMovesThePublishedVersionAndNotThePolicys) {
  learner_metrics_.PolicyVersionIs(5);
  ASSERT_TRUE(*Publish(3));
  publisher_.reset();  // Weights that were taken are out.
  EXPECT_THAT(Scrape(), HasSubstr("oxbow_learner_policy_version 5\n"));
  EXPECT_THAT(Scrape(), HasSubstr("oxbow_learner_published_version 3\n"));
}

class FullChannelTest : public PublisherTest {
 protected:
  FullChannelTest() : PublisherTest(/*channel_bytes=*/10) {}
};

TEST_F(FullChannelTest, WeightsThatCannotBeAnnouncedEndTheRun) {
  ASSERT_TRUE(*Publish(1));
  ASSERT_TRUE(failed_.WaitForNotificationWithTimeout(kDeadline));
  EXPECT_EQ(failure_.code(), absl::StatusCode::kResourceExhausted);
}

bool Admits(PublicationGate& gate, uint64_t step) { return *gate.Admit(LearnerStep(step)); }

TEST(PublicationGateTest, WithoutAFloorEverythingGoesOut) {
  PublicationGate gate({.reward_floor = 0});
  gate.Evaluated(1);
  gate.Evaluated(-5);
  for (uint64_t step = 0; step < 5; ++step) EXPECT_TRUE(Admits(gate, step));
}

// Promise: Bad weights are not published.
TEST(PublicationGateTest, CollapsedWeightsAreWithheldWhileTheBudgetLastsAndThenTheRunStops) {
  PublicationGate gate({.reward_floor = 0.5, .staleness_max = 2});
  EXPECT_TRUE(Admits(gate, 0));
  gate.Evaluated(0.8);
  EXPECT_TRUE(Admits(gate, 10));
  gate.Evaluated(0.39);
  EXPECT_FALSE(Admits(gate, 11));  // Step 11 may be sampled with the weights of step 10,
  EXPECT_FALSE(Admits(gate, 12));  // and so may step 12,
  const auto stop = gate.Admit(LearnerStep(13));  // but not step 13: it would never come.
  EXPECT_EQ(stop.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(stop.status().ToString(), HasSubstr("reward 0.39, best 0.8"));
}

TEST(PublicationGateTest, OnPolicyRunsStopAtOnce) {
  PublicationGate gate({.reward_floor = 0.5, .staleness_max = 0});
  EXPECT_TRUE(Admits(gate, 3));
  gate.Evaluated(1);
  gate.Evaluated(0.1);
  EXPECT_FALSE(gate.Admit(LearnerStep(4)).ok());
}

TEST(PublicationGateTest, ARewardThatRecoversOpensIt) {
  PublicationGate gate({.reward_floor = 0.5, .staleness_max = 4});
  EXPECT_TRUE(Admits(gate, 0));
  gate.Evaluated(1);
  gate.Evaluated(0.4);
  EXPECT_FALSE(Admits(gate, 1));
  gate.Evaluated(0.5);
  EXPECT_TRUE(Admits(gate, 2));
}

TEST(PublicationGateTest, TheFirstWeightsAlwaysGoOutAndTheBestOutlivesAResume) {
  PublicationGate gate({.reward_floor = 0.5, .best_reward = 0.9});
  gate.Evaluated(0.2);
  EXPECT_TRUE(Admits(gate, 7));
  EXPECT_FALSE(gate.Admit(LearnerStep(8)).ok());
  EXPECT_EQ(gate.best_reward(), 0.9);
}

TEST(PublicationGateTest, RewardsBelowZeroHaveNoFraction) {
  PublicationGate gate({.reward_floor = 0.5});
  EXPECT_TRUE(Admits(gate, 0));
  gate.Evaluated(-1);
  gate.Evaluated(-9);
  EXPECT_TRUE(Admits(gate, 1));
}

}  // namespace
}  // namespace oxbow::learner
