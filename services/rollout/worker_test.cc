// SPDX-License-Identifier: Apache-2.0
// A worker against a scripted learner, over real gRPC on port 0.
#include "services/rollout/worker.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/exit_code.h"
#include "io/image.h"
#include "rpc/convert_torch.h"
#include "telemetry/metrics.h"
#include "tests/testing/counting_allocator.h"
#include "tests/testing/fake_learner.h"
#include "tests/testing/fake_reward_server.h"

namespace oxbow::rollout {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Seen = FakeLearner::Seen;

// Runs a worker in its own thread until the test ends it.
class RunningWorker {
 public:
  explicit RunningWorker(const std::string& learner,
                         absl::Duration give_up_after = absl::InfiniteDuration())
      : worker_({.learner = learner, .worker_id = "w", .host = "h", .give_up_after = give_up_after},
                metrics_, follow_metrics_, Clock::Steady()),
        thread_([this] {
          status_ = worker_.Run();
          ended_.Notify();
        }) {}
  ~RunningWorker() {
    if (thread_.joinable()) Stop().IgnoreError();
  }

  absl::Status Stop() {
    worker_.Stop();
    thread_.join();
    return status_;
  }
  // Waits until Run has returned.
  bool AwaitEnd() { return ended_.WaitForNotificationWithTimeout(absl::Seconds(30)); }
  std::string Scrape() const { return telemetry::ScrapeText(registry_); }

 private:
  prometheus::Registry registry_;
  RolloutMetrics metrics_{registry_};
  weights::FollowMetrics follow_metrics_{registry_};
  Worker worker_;
  absl::Status status_;
  absl::Notification ended_;
  std::thread thread_;
};

auto Groups(size_t count) {
  return [count](const Seen& seen) { return seen.groups.size() >= count; };
}

// A finished group is in memory: it is sent until the sink takes it.
// Promise: A busy server costs no group. A server without room answers RESOURCE_EXHAUSTED, which is
// counted and logged. Callers ask again after a jittered pause; a reward server says how long it is
// to be at least. A finished group is sent until its sink answers, while its lease lives; a group
// that is given up is counted as discarded. Health says SERVING only if calls get through.
TEST(WorkerTest, ASinkThatRefusesForAWhileCostsNoGroup) {
  FakeLearner learner({.leases = 3, .refusals = 7});
  RunningWorker worker(learner.endpoint());
  const Seen seen = learner.Await(Groups(3));
  EXPECT_EQ(seen.groups.size(), 3u);
  EXPECT_EQ(seen.refused, 7);
  EXPECT_EQ(seen.failures.size(), 0u);
}

// While no reward server answers, the worker is connected, says so and asks for nothing.
// Promise: A run waits for its reward servers.
TEST(WorkerTest, AWorkerThatFindsNoRewardServerSaysSoAndWaitsWithoutRegisteringAgain) {
  FakeLearner learner({.leases = 2, .rewards_away = true});
  RunningWorker worker(learner.endpoint());
  const Seen away = learner.Await(
      [](const Seen& seen) { return !seen.waiting_for.empty() && !seen.reports.empty(); });
  EXPECT_THAT(away.waiting_for, HasSubstr("no reward server answers"));
  EXPECT_EQ(away.registrations, 1);
  EXPECT_EQ(away.credits.size(), 0u);
  learner.BringRewards();
  const Seen back = learner.Await(
      [](const Seen& seen) { return seen.groups.size() >= 2 && seen.waiting_for.empty(); });
  EXPECT_EQ(back.groups.size(), 2u);
  EXPECT_EQ(back.waiting_for, "");
  EXPECT_EQ(back.registrations, 1);
}

// Promise: A run waits for its reward servers.
TEST(WorkerTest, AStopEndsAWorkerThatWaitsForARewardServer) {
  FakeLearner learner({.rewards_away = true});
  RunningWorker worker(learner.endpoint());
  learner.Await([](const Seen& seen) { return !seen.waiting_for.empty(); });
  EXPECT_TRUE(worker.Stop().ok());
  EXPECT_TRUE(learner.Await([](const Seen& seen) { return seen.goodbye; }).goodbye);
}

// Promise: A run waits for its reward servers.
TEST(WorkerTest, ARewardServerWithoutTheRunsRewardEndsTheWorker) {
  FakeLearner learner({.reward = "sharpness"});
  RunningWorker worker(learner.endpoint());
  ASSERT_TRUE(worker.AwaitEnd());
  const absl::Status status = worker.Stop();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("no reward server knows reward"), HasSubstr("brightness")));
}

TEST(WorkerTest, AnotherServiceAtTheLearnersAddressIsNamedAsThat) {
  reward::FakeRewardServer server({}, 1, nullptr);
  RunningWorker worker(server.endpoint());
  ASSERT_TRUE(worker.AwaitEnd());
  EXPECT_EQ(worker.Stop(),
            absl::UnimplementedError(absl::StrCat("no learner is at ", server.endpoint(),
                                                  ": another service listens there (is it "
                                                  "the address of another process of the run?)")));
}

// A sink that refuses for ever, and a lease that has expired: nobody waits for the group.
// Promise: A busy server costs no group.
TEST(WorkerTest, AGroupThatNobodyWaitsForIsThrownAwayAndReported) {
  FakeLearner learner({.leases = 4, .refusals = 1 << 20, .renews = false});
  RunningWorker worker(learner.endpoint());
  const Seen seen = learner.Await([](const Seen& s) { return !s.failures.empty(); });
  ASSERT_FALSE(seen.failures.empty());
  EXPECT_TRUE(seen.failures[0].discarded());
  EXPECT_THAT(seen.failures[0].failure(), HasSubstr("as scripted"));
}

// More latents than a header takes: 400 samples of 192 bytes, which come in chunks as they are
// granted.
TEST(WorkerTest, ALargeGroupComesInChunksWithinTheCredit) {
  FakeLearner learner({.credit_piece = 1 << 10, .group_size = 400, .leases = 1});
  RunningWorker worker(learner.endpoint());
  const Seen seen = learner.Await(Groups(1));
  ASSERT_EQ(seen.groups.size(), 1u);
  const absl::StatusOr<rl::Group> parsed = rpc::GroupFromProto(seen.groups[0]);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->trajectories.size(), 400u);
  for (const rl::Trajectory& sample : parsed->trajectories) {
    EXPECT_EQ(sample.latents.sizes(), (std::vector<int64_t>{3, 1, 4, 4}));
  }
  EXPECT_TRUE(worker.Stop().ok());
}

TEST(WorkerTest, LeasedGroupsArriveWholeScoredAndOnce) {
  FakeLearner learner({.leases = 5});
  RunningWorker worker(learner.endpoint());
  const Seen seen = learner.Await(Groups(5));
  ASSERT_EQ(seen.groups.size(), 5u);
  std::map<uint64_t, int> arrivals;
  for (const v1::Group& group : seen.groups) {
    ++arrivals[group.group_id()];
    EXPECT_EQ(group.lease_id(), 10 * group.group_id());
    EXPECT_EQ(group.epoch(), 1u);
    ASSERT_EQ(group.trajectories_size(), 3);
    const absl::StatusOr<rl::Group> parsed = rpc::GroupFromProto(group);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    for (const rl::Trajectory& sample : parsed->trajectories) {
      EXPECT_EQ(sample.latents.sizes(), (std::vector<int64_t>{3, 1, 4, 4}));
      EXPECT_EQ(sample.behaviour_version, std::vector<uint64_t>(4, 5));
      EXPECT_EQ(sample.reward, 2 * sample.rewards.at("brightness"));
    }
  }
  EXPECT_EQ(arrivals.size(), 5u);
  ASSERT_FALSE(seen.reports.empty());
  EXPECT_EQ(seen.reports[0].failure(), "");
  EXPECT_TRUE(seen.reports[0].probe_bits_equal());
  EXPECT_LE(seen.credits[0].groups(), 2u);
  EXPECT_TRUE(worker.Stop().ok());
  EXPECT_THAT(worker.Scrape(), HasSubstr("oxbow_rollout_samples_total 15"));
}

// The score is the picture's first pixel. Without a replay buffer nobody would keep the picture.
// Promise: The page shows the pictures that replay keeps.
TEST(WorkerTest, TheSampleThatReplayMayKeepBringsItsPictureAndNoOtherDoes) {
  for (const bool has_buffer : {false, true}) {
    FakeLearner learner({.leases = 2, .has_buffer = has_buffer});
    RunningWorker worker(learner.endpoint());
    const Seen seen = learner.Await(Groups(2));
    ASSERT_EQ(seen.groups.size(), 2u);
    for (const v1::Group& group : seen.groups) {
      double best = 0;
      for (const v1::Trajectory& one : group.trajectories()) best = std::max(best, one.reward());
      int pictures = 0;
      for (const v1::Trajectory& one : group.trajectories()) {
        if (one.picture().empty()) continue;
        ++pictures;
        const auto picture = io::DecodePng(one.picture());
        ASSERT_TRUE(picture.ok()) << picture.status();
        EXPECT_EQ(picture->width, 4);
        EXPECT_EQ(2.0 * picture->pixels[0], best);
        EXPECT_EQ(one.reward(), best);
      }
      EXPECT_EQ(pictures, has_buffer ? 1 : 0);
    }
    EXPECT_TRUE(worker.Stop().ok());
  }
}

constexpr size_t kActivations = 2000;  // Bytes; larger than latents and prompts of a group.

// A device that has no room for the activations of the next `times` passes of the network.
class FullDevice {
 public:
  explicit FullDevice(int times) : left_(times) {
    testing::CountingAllocator::Install();
    testing::CountingAllocator::Get().Refuse([this](size_t bytes) {
      char thread[16] = "";
      pthread_getname_np(pthread_self(), thread, sizeof thread);
      return bytes >= kActivations && std::string(thread) == "sampler" && left_-- > 0;
    });
  }
  ~FullDevice() { testing::CountingAllocator::Get().Refuse(nullptr); }
  int left() const { return left_; }

 private:
  std::atomic<int> left_;
};

// A device that answers the passes of the network as one does after an Xid.
class LostDevice {
 public:
  explicit LostDevice(const std::string& says = "an illegal memory access was encountered") {
    testing::CountingAllocator::Install();
    testing::CountingAllocator::Get().Refuse([says](size_t bytes) {
      char thread[16] = "";
      pthread_getname_np(pthread_self(), thread, sizeof thread);
      TORCH_CHECK(bytes < kActivations || std::string(thread) != "sampler", "CUDA error: ", says);
      return false;
    });
  }
  ~LostDevice() { testing::CountingAllocator::Get().Refuse(nullptr); }
};

// The leases come when the weights are there, and the device is full by then.
Seen SampleOnAFullDevice(int times, const std::function<bool(const Seen&)>& enough,
                         const std::function<void(RunningWorker&, const FullDevice&)>& then) {
  FakeLearner learner({.leases = 2, .rewards_away = true});
  RunningWorker worker(learner.endpoint());
  learner.Await([](const Seen& seen) { return !seen.reports.empty(); });
  const FullDevice device(times);
  learner.BringRewards();
  Seen seen = learner.Await(enough);
  then(worker, device);
  return seen;
}

TEST(WorkerTest, OnAFullDeviceItGoesOnWithFewerRowsAndTheSameBits) {
  std::map<uint64_t, std::string> latents[2];
  for (const int times : {0, 1}) {
    const Seen seen =
        SampleOnAFullDevice(times, Groups(2), [](RunningWorker& worker, const FullDevice& device) {
          EXPECT_LE(device.left(), 0) << "nothing was refused";
          EXPECT_TRUE(worker.Stop().ok());
        });
    EXPECT_TRUE(seen.failures.empty());
    for (const v1::Group& group : seen.groups) {
      latents[times][group.group_id()] = group.trajectories(0).latents().data();
    }
  }
  EXPECT_EQ(latents[0].size(), 2u);
  EXPECT_EQ(latents[0], latents[1]);
}

TEST(WorkerTest, ADeviceTooSmallForOneRowEndsTheWorkerAndGivesItsLeasesBack) {
  const Seen seen = SampleOnAFullDevice(
      1 << 30, [](const Seen& s) { return !s.failures.empty(); },
      [](RunningWorker& worker, const FullDevice&) {
        ASSERT_TRUE(worker.AwaitEnd());
        const absl::Status status = worker.Stop();
        EXPECT_EQ(ExitCodeOf(status), kExitOutOfMemory) << status;
        EXPECT_THAT(std::string(status.message()),
                    AllOf(HasSubstr("not even one row"), ::testing::Not(HasSubstr("\n"))));
      });
  ASSERT_FALSE(seen.failures.empty());
  EXPECT_THAT(seen.failures[0].failure(), HasSubstr("out of memory"));
}

// Promise: One bad worker ends no run.
TEST(WorkerTest, ALostDeviceEndsTheWorkerWithAnExitCodeOfItsOwnAndGivesItsLeasesBack) {
  FakeLearner learner({.leases = 2, .rewards_away = true});
  RunningWorker worker(learner.endpoint());
  learner.Await([](const Seen& seen) { return !seen.reports.empty(); });
  const LostDevice device;
  learner.BringRewards();
  const Seen seen = learner.Await([](const Seen& s) { return !s.failures.empty(); });
  ASSERT_TRUE(worker.AwaitEnd());
  const absl::Status status = worker.Stop();
  EXPECT_EQ(ExitCodeOf(status), kExitDeviceLost) << status;
  EXPECT_FALSE(IsFinal(kExitDeviceLost)) << "a new process may use the GPU";
  EXPECT_THAT(seen.failures[0].failure(), HasSubstr("illegal memory access"));
}

// Promise: One bad worker ends no run.
TEST(WorkerTest, ABuildWithoutCodeForItsGpuEndsTheWorkerForGood) {
  FakeLearner learner({.leases = 2, .rewards_away = true});
  RunningWorker worker(learner.endpoint());
  learner.Await([](const Seen& seen) { return !seen.reports.empty(); });
  const LostDevice device("no kernel image is available for execution on the device");
  learner.BringRewards();
  ASSERT_TRUE(worker.AwaitEnd());
  const absl::Status status = worker.Stop();
  EXPECT_EQ(ExitCodeOf(status), kExitUsage) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no kernel image"));
}

// Promise: A full GPU is one line.
TEST(WorkerTest, ADeviceTooSmallForTheWeightsEndsTheWorkerInOneLine) {
  FakeLearner learner({.leases = 1});
  const FullDevice device(1 << 30);
  RunningWorker worker(learner.endpoint());
  ASSERT_TRUE(worker.AwaitEnd());
  const absl::Status status = worker.Stop();
  EXPECT_EQ(ExitCodeOf(status), kExitOutOfMemory) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("the weights do not fit"), ::testing::Not(HasSubstr("\n"))));
}

// Promise: Processes of one run speak one protocol.
TEST(WorkerTest, ALearnerOfAnotherRevisionEndsItWithBothVersionsInOneLine) {
  for (const uint32_t revision : {0u, kProtocolRevision + 1}) {
    FakeLearner learner({.protocol = revision});
    RunningWorker worker(learner.endpoint());
    ASSERT_TRUE(worker.AwaitEnd());
    const absl::Status status = worker.Stop();
    EXPECT_EQ(ExitCodeOf(status), kExitUsage) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(learner.endpoint()), HasSubstr(OXBOW_VERSION),
                      HasSubstr("run one version of oxbow"), ::testing::Not(HasSubstr("\n"))));
  }
}

// Promise: The worker that samples does not matter.
TEST(WorkerTest, AnotherWorkerRepeatsTheSameBits) {
  std::string latents[2];
  for (std::string& bytes : latents) {
    FakeLearner learner({.leases = 1});
    RunningWorker worker(learner.endpoint());
    const Seen seen = learner.Await(Groups(1));
    ASSERT_EQ(seen.groups.size(), 1u);
    bytes = seen.groups[0].trajectories(0).latents().data();
  }
  EXPECT_FALSE(latents[0].empty());
  EXPECT_EQ(latents[0], latents[1]);
}

// Promise: Conditioning is what the learner made.
TEST(WorkerTest, ConditioningOfAnEarlierLeaseIsNotFetchedAgain) {
  FakeLearner learner({.leases = 5, .one_prompt = true});
  RunningWorker worker(learner.endpoint());
  EXPECT_EQ(learner.Await(Groups(5)).groups.size(), 5u);
  const std::string text = worker.Scrape();
  const auto bytes = [&](const std::string& source) {
    const std::string line = "oxbow_rollout_conditioning_bytes_total{source=\"" + source + "\"} ";
    return std::stod(text.substr(text.find(line) + line.size()));
  };
  const double each = (bytes("learner") + bytes("held")) / 5;
  EXPECT_GE(bytes("learner"), each);
  EXPECT_GT(bytes("held"), 0) << "leases in flight may ask together, the fifth comes later";
}

// It opens no breaker: the learner blames the service, and not the worker that asked it.
// Promise: One bad worker ends no run.
TEST(WorkerTest, ALeaseWhoseConditioningIsAwayIsNoFailureOfTheWorker) {
  FakeLearner learner({.leases = 1, .conditioning_away = true});
  RunningWorker worker(learner.endpoint());
  const Seen seen = learner.Await([](const Seen& s) { return !s.failures.empty(); });
  ASSERT_EQ(seen.failures.size(), 1u);
  EXPECT_THAT(seen.failures[0].failure(), HasSubstr("conditioning: "));
  EXPECT_TRUE(seen.failures[0].elsewhere()) << seen.failures[0].failure();
}

// Promise: Conditioning is what the learner made.
TEST(WorkerTest, ALeaseWhoseConditioningIsAnotherFailsAndNothingIsSampled) {
  FakeLearner learner({.leases = 1, .forges_conditioning = true});
  RunningWorker worker(learner.endpoint());
  const Seen seen = learner.Await([](const Seen& s) { return !s.failures.empty(); });
  ASSERT_EQ(seen.failures.size(), 1u);
  EXPECT_THAT(seen.failures[0].failure(), HasSubstr("does not match its checksum"));
  EXPECT_FALSE(seen.failures[0].elsewhere());
  EXPECT_TRUE(seen.groups.empty());
}

TEST(WorkerTest, MissingScoreFailsTheGroupUnderFail) {
  FakeLearner learner({.unscored = 1, .leases = 1});
  RunningWorker worker(learner.endpoint());
  const Seen seen = learner.Await([](const Seen& s) { return !s.failures.empty(); });
  ASSERT_EQ(seen.failures.size(), 1u);
  EXPECT_EQ(seen.failures[0].lease_id(), 1000u);
  EXPECT_THAT(seen.failures[0].failure(), HasSubstr("scorer broke"));
  EXPECT_TRUE(seen.failures[0].unscored());
  EXPECT_TRUE(seen.groups.empty());
}

// Promise: An image that cannot be scored does not stop a run.
TEST(WorkerTest, ALeaseOfAQuarantinedPromptDropsTheSampleUnderFail) {
  FakeLearner learner({.unscored = 1, .drops_unscored = true, .leases = 1});
  RunningWorker worker(learner.endpoint());
  const Seen seen = learner.Await(Groups(1));
  ASSERT_EQ(seen.groups.size(), 1u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(seen.groups[0].trajectories(i).reward_failed(), i == 1);
  }
  EXPECT_TRUE(seen.failures.empty());
}

// Promise: A score is never made up.
TEST(WorkerTest, MissingScoreDropsTheSampleOrTheGroup) {
  for (const auto policy : {v1::ON_REWARD_FAILURE_DROP_SAMPLE, v1::ON_REWARD_FAILURE_DROP_GROUP}) {
    FakeLearner learner({.on_failure = policy, .unscored = 1, .leases = 1});
    RunningWorker worker(learner.endpoint());
    const Seen seen = learner.Await(Groups(1));
    ASSERT_EQ(seen.groups.size(), 1u);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(seen.groups[0].trajectories(i).reward_failed(),
                i == 1 || policy == v1::ON_REWARD_FAILURE_DROP_GROUP);
    }
  }
}

TEST(WorkerTest, FencedGroupIsDroppedSilentlyAndCounted) {
  FakeLearner learner({.outcome = v1::INSERT_OUTCOME_FENCED, .leases = 3});
  RunningWorker worker(learner.endpoint());
  const Seen seen = learner.Await(Groups(3));
  EXPECT_EQ(seen.groups.size(), 3u);  // Each group was tried once.
  EXPECT_TRUE(worker.Stop().ok());
  EXPECT_TRUE(learner.Await([](const Seen&) { return true; }).failures.empty());
  EXPECT_THAT(worker.Scrape(), HasSubstr("fenced\"} 3"));
}

// Promise: Weights are verified.
TEST(WorkerTest, WeightsWithAWrongProbeAreNeverSampledWith) {
  FakeLearner learner({.wrong_probe = true, .leases = 1});
  RunningWorker worker(learner.endpoint());
  const Seen seen = learner.Await([](const Seen& s) { return !s.reports.empty(); });
  ASSERT_EQ(seen.reports.size(), 1u);
  EXPECT_THAT(seen.reports[0].failure(), HasSubstr("probe differs"));
  EXPECT_TRUE(worker.Stop().ok());
  const Seen after = learner.Await([](const Seen&) { return true; });
  EXPECT_TRUE(after.groups.empty());
  EXPECT_TRUE(after.credits.empty());
}

TEST(WorkerTest, ALeaseThatIsNotRenewedMakesRoomForAnother) {
  // All leases wait for weights that never come; the worker holds two at a time.
  FakeLearner learner({.leases = 3, .version_min = 99, .renews = false});
  RunningWorker worker(learner.endpoint());
  // Alone, or with one of the first two that has not heard of its end yet.
  const auto third = [](const Seen& s) {
    return std::ranges::any_of(s.renewed, [](const std::vector<uint64_t>& leases) {
      return std::ranges::find(leases, uint64_t{1020}) != leases.end();
    });
  };
  const Seen seen = learner.Await(third);
  EXPECT_TRUE(third(seen));
  EXPECT_TRUE(seen.groups.empty());
}

TEST(WorkerTest, AWorkerThatHoldsNothingSaysThatItIsThere) {
  FakeLearner learner({.leases = 0});
  RunningWorker worker(learner.endpoint());
  const Seen seen = learner.Await([](const Seen& s) { return s.renewals >= 2; });
  EXPECT_GE(seen.renewals, 2);
  EXPECT_TRUE(seen.renewing.empty());
}

TEST(WorkerTest, StopFinishesWhatIsHeldAndSaysGoodbye) {
  FakeLearner learner({.leases = 1});
  learner.HoldScores(true);
  RunningWorker worker(learner.endpoint());
  ASSERT_EQ(learner.Await([](const Seen& s) { return s.scoring > 0; }).scoring, 1);
  std::thread release([&] {
    // The worker requests nothing more after it drains.
    learner.Await([](const Seen& s) { return s.credits.back().groups() == 0; });
    learner.HoldScores(false);
  });
  EXPECT_TRUE(worker.Stop().ok());
  release.join();
  const Seen seen = learner.Await([](const Seen& s) { return s.goodbye; });
  EXPECT_TRUE(seen.goodbye);
  EXPECT_EQ(seen.groups.size(), 1u);
}

// Promise: CUDA graphs change no number.
TEST(WorkerTest, ARunWithGraphsIsNothingForAWorkerOnACpu) {
  FakeLearner learner({.leases = 1, .cuda_graphs = v1::CUDA_GRAPHS_TRUE});
  RunningWorker worker(learner.endpoint());
  ASSERT_TRUE(worker.AwaitEnd());
  const absl::Status status = worker.Stop();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.cuda_graphs needs a GPU"));
}

// Promise: Workers end with their run.
TEST(WorkerTest, ACompleteRunEndsTheWorkerWell) {
  FakeLearner learner({.run_complete = true});
  RunningWorker worker(learner.endpoint());
  ASSERT_TRUE(worker.AwaitEnd());
  EXPECT_TRUE(worker.Stop().ok());
  EXPECT_TRUE(learner.Await([](const Seen& s) { return s.goodbye; }).goodbye);
}

// Promise: Workers end with their run.
TEST(WorkerTest, ALearnerThatStaysAwayIsGivenUp) {
  RunningWorker worker("127.0.0.1:1", absl::Milliseconds(200));
  ASSERT_TRUE(worker.AwaitEnd());
  const absl::Status status = worker.Stop();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("no learner for 200ms"), HasSubstr("--give-up-after"),
                    HasSubstr("127.0.0.1:1")));
}

TEST(WorkerTest, ALineThatEndsWhileStoppingTakesNothingFromWhatIsHeld) {
  FakeLearner learner({.leases = 1, .hangs_up = true});
  learner.HoldScores(true);
  RunningWorker worker(learner.endpoint());
  ASSERT_EQ(learner.Await([](const Seen& s) { return s.scoring > 0; }).scoring, 1);
  std::thread release([&] {
    EXPECT_TRUE(worker.AwaitEnd());
    learner.HoldScores(false);
  });
  EXPECT_TRUE(worker.Stop().ok());
  release.join();
  EXPECT_EQ(learner.Await(Groups(1)).groups.size(), 1u);
}

TEST(WorkerTest, StopAtAnyMomentEndsTheRun) {
  FakeLearner learner({.leases = 100});
  for (int i = 0; i < 20; ++i) {
    RunningWorker worker(learner.endpoint());
    // The first ten rounds stop at once, the others right after a registration.
    learner.Await([i](const Seen& s) { return i < 10 || s.registrations > i - 10; });
    EXPECT_TRUE(worker.Stop().ok()) << i;
  }
}

TEST(WorkerTest, RestartedLearnerWithANewEpochIsServedAgain) {
  auto first = std::make_unique<FakeLearner>(FakeLearner::Script{.leases = 1});
  const std::string endpoint = first->endpoint();
  RunningWorker worker(endpoint);
  ASSERT_EQ(first->Await(Groups(1)).groups.size(), 1u);
  first.reset();
  FakeLearner second(
      {.epoch = Epoch(2), .version = PolicyVersion(9), .listen = endpoint, .leases = 2});
  const Seen seen = second.Await(Groups(2));
  ASSERT_EQ(seen.groups.size(), 2u);
  for (const v1::Group& group : seen.groups) {
    EXPECT_EQ(group.epoch(), 2u);
    EXPECT_EQ(group.trajectories(0).behaviour_version(0), 9u);
  }
  EXPECT_TRUE(worker.Stop().ok());
}

}  // namespace
}  // namespace oxbow::rollout
