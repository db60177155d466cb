// SPDX-License-Identifier: Apache-2.0
#include "services/reward/scorer_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "base/exit_code.h"
#include "rpc/retry.h"

namespace oxbow::reward {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Scores an item by its prompt; holds each batch at its gate. It keeps what it was given.
class GatedScorer final : public Scorer {
 public:
  GatedScorer(RewardFacts facts, int concurrency) : facts_(std::move(facts)), at_(concurrency) {}

  const RewardFacts& facts() const override { return facts_; }
  int concurrency_max() const override { return at_; }
  std::vector<absl::StatusOr<reward::Score>> ScoreBatch(absl::Span<const Item> items) override {
    {
      absl::MutexLock lock(&mutex_);
      batches_.emplace_back();
      for (const Item& item : items) batches_.back().emplace_back(item.prompt);
      if (!entered.HasBeenNotified()) entered.Notify();
    }
    gate.WaitForNotification();
    std::vector<absl::StatusOr<reward::Score>> scores;
    for (const Item& item : items) {
      if (item.prompt == "no") {
        scores.emplace_back(absl::InvalidArgumentError("no"));
      } else {
        scores.emplace_back(
            reward::Score{.value = static_cast<double>(item.prompt.size()) + item.picture().width});
      }
    }
    return scores;
  }

  std::vector<std::vector<std::string>> batches() const {
    absl::MutexLock lock(&mutex_);
    return batches_;
  }
  std::vector<size_t> sizes() const {
    std::vector<size_t> sizes;
    for (const auto& batch : batches()) sizes.push_back(batch.size());
    return sizes;
  }

  absl::Notification entered;  // A batch is at the gate.
  absl::Notification gate;

 private:
  const RewardFacts facts_;
  const int at_;
  mutable absl::Mutex mutex_;
  std::vector<std::vector<std::string>> batches_ ABSL_GUARDED_BY(mutex_);
};

// One caller's request, and its answer.
struct Caller {
  explicit Caller(std::vector<std::string> texts)
      : prompts(std::move(texts)), image{.width = 2, .height = 3, .pixels = {1, 2, 3, 4, 5, 6}} {}

  ScorerQueue::Request Request() {
    ScorerQueue::Request request{.gone = gone, .done = [this](ScorerQueue::Results scored) {
                                   results = std::move(scored);
                                   answered.Notify();
                                 }};
    for (const std::string& prompt : prompts) {
      request.items.push_back({.prompt = prompt, .frames = {&image, 1}});
    }
    return request;
  }

  const std::vector<std::string> prompts;
  const Image8 image;
  const std::shared_ptr<std::atomic<bool>> gone = std::make_shared<std::atomic<bool>>(false);
  absl::Notification answered;
  ScorerQueue::Results results;
};

// The GPU is lost; that of another one is only full.
class BrokenScorer final : public Scorer {
 public:
  explicit BrokenScorer(absl::Status why) : why_(std::move(why)) {}
  const RewardFacts& facts() const override { return facts_; }
  int concurrency_max() const override { return 1; }
  std::vector<absl::StatusOr<reward::Score>> ScoreBatch(absl::Span<const Item> items) override {
    return {items.size(), why_};
  }

 private:
  const RewardFacts facts_{.name = "taste"};
  const absl::Status why_;
};

// Promise: One bad worker ends no run.
TEST(ScorerQueueTest, AScorerThatComputesNoMoreIsToldApartFromItsItems) {
  const std::pair<absl::Status, int> ends[] = {
      {DeviceError(kExitDeviceLost, "CUDA error: an illegal memory access"), kExitDeviceLost},
      {DeviceError(kExitUsage, "CUDA error: no kernel image is available"), kExitUsage},
      {OutOfMemoryError("out of memory"), kExitOutOfMemory},
      {absl::InvalidArgumentError("no such picture"), kExitOk}};
  for (const auto& [why, code] : ends) {
    BrokenScorer scorer(why);
    Caller caller({"a", "b"});
    absl::Status broken;
    ScorerQueue queue({}, scorer, Clock::Steady(),
                      [&](const ScorerQueue::Batch& batch) { broken = batch.broken; });
    ASSERT_TRUE(queue.Push(caller.Request()).ok());
    caller.answered.WaitForNotification();
    EXPECT_EQ(ExitCodeOf(broken), code) << broken;
    for (const absl::StatusOr<reward::Score>& result : caller.results) {
      // Callers ask another server, and blame no picture.
      EXPECT_EQ(absl::IsUnavailable(result.status()), code != kExitOk) << result.status();
      EXPECT_THAT(std::string(result.status().message()), HasSubstr("taste: "));
    }
  }
}

const ScorerQueue::Options kPatient{.batch_wait = absl::Hours(1)};
const auto kIgnored = [](const ScorerQueue::Batch&) {};

// Promise: Batches change no score. A scorer says of an item in a batch what it says of it alone,
// whatever callers it shares the batch with. Callers of a few images fill batches.
TEST(ScorerQueueTest, EveryItemGetsItsOwnScoreHoweverItIsBatched) {
  for (const uint32_t batch_max : {0U, 1U, 2U, 5U, 64U}) {
    GatedScorer scorer({.name = "length", .batch_max = batch_max}, 2);
    scorer.gate.Notify();
    std::vector<std::unique_ptr<Caller>> callers;
    for (int i = 0; i < 9; ++i) {
      callers.push_back(std::make_unique<Caller>(
          std::vector<std::string>{std::string(i, 'x'), "no", std::string(2 * i, 'x')}));
    }
    ScorerQueue queue({.batch_wait = absl::Milliseconds(1)}, scorer, Clock::Steady(), kIgnored);
    for (const auto& caller : callers) ASSERT_TRUE(queue.Push(caller->Request()).ok());
    for (int i = 0; i < 9; ++i) {
      callers[i]->answered.WaitForNotification();
      const ScorerQueue::Results& results = callers[i]->results;
      ASSERT_EQ(results.size(), 3);
      EXPECT_EQ(results[0].value().value, 2 + i);
      EXPECT_EQ(results[1].status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(results[2].value().value, 2 + 2 * i);
    }
    for (const size_t size : scorer.sizes()) EXPECT_LE(size, batch_max == 0 ? 27 : batch_max);
  }
}

// Promise: Batches change no score.
TEST(ScorerQueueTest, CallersOfThreeFillBatchesOfEight) {
  GatedScorer scorer({.name = "length", .batch_max = 8}, 1);
  scorer.gate.Notify();
  double items = 0;
  double batches = 0;
  {
    ScorerQueue queue(kPatient, scorer, Clock::Steady(), [&](const ScorerQueue::Batch& batch) {
      items += static_cast<double>(batch.items);  // One thread scores.
      ++batches;
    });
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        Caller caller({"a", "b", "c"});
        ASSERT_TRUE(queue.Push(caller.Request()).ok());
        caller.answered.WaitForNotification();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(items, 24);
  EXPECT_GE(items / batches / 8, 0.9);
}

TEST(ScorerQueueTest, TheOldestItemWaitsNoLongerThanItShould) {
  GatedScorer scorer({.name = "length", .batch_max = 8}, 1);
  scorer.gate.Notify();
  ScorerQueue queue({.batch_wait = absl::Milliseconds(1)}, scorer, Clock::Steady(), kIgnored);
  Caller alone({"a"});
  ASSERT_TRUE(queue.Push(alone.Request()).ok());
  alone.answered.WaitForNotification();
  EXPECT_EQ(alone.results[0].value().value, 3);
}

TEST(ScorerQueueTest, TooMuchIsRefusedAndSaysWhenToAskAgain) {
  for (const auto& limits :
       {ScorerQueue::Options{.items_max = 4}, ScorerQueue::Options{.bytes_max = 4 * 6}}) {
    GatedScorer scorer({.name = "length"}, 1);
    ScorerQueue queue(limits, scorer, Clock::Steady(), kIgnored);
    Caller first({"a", "b", "c"});
    Caller second({"d"});
    Caller third({"e"});
    ASSERT_TRUE(queue.Push(first.Request()).ok());
    scorer.entered.WaitForNotification();  // Items that are being scored count, too.
    ASSERT_TRUE(queue.Push(second.Request()).ok());
    const absl::Status refused = queue.Push(third.Request());
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("ask again in"));
    EXPECT_GE(rpc::RetryAfterOf(refused), absl::Milliseconds(100));
    scorer.gate.Notify();
    second.answered.WaitForNotification();
    first.answered.WaitForNotification();
    EXPECT_TRUE(queue.Push(third.Request()).ok());
    third.answered.WaitForNotification();
    EXPECT_EQ(queue.bytes_peak(), 4 * 6);
    // More than the limit is taken by an empty queue: it would never fit better.
    Caller large({"a", "b", "c", "d", "e", "f"});
    EXPECT_TRUE(queue.Push(large.Request()).ok());
    large.answered.WaitForNotification();
    EXPECT_EQ(queue.bytes_peak(), 6 * 6);
  }
}

// Promise: Batches change no score.
TEST(ScorerQueueTest, WhatItsCallerGaveUpIsNotScored) {
  GatedScorer scorer({.name = "length"}, 1);
  ScorerQueue queue({}, scorer, Clock::Steady(), kIgnored);
  Caller first({"a"});
  Caller gone({"b", "c"});
  Caller patient({"d"});
  ASSERT_TRUE(queue.Push(first.Request()).ok());
  scorer.entered.WaitForNotification();
  ASSERT_TRUE(queue.Push(gone.Request()).ok());
  ASSERT_TRUE(queue.Push(patient.Request()).ok());
  *gone.gone = true;
  queue.DropGone();
  gone.answered.WaitForNotification();
  EXPECT_EQ(gone.results[1].status().code(), absl::StatusCode::kCancelled);
  scorer.gate.Notify();
  patient.answered.WaitForNotification();
  EXPECT_THAT(scorer.batches(), ElementsAre(ElementsAre("a"), ElementsAre("d")));
}

TEST(ScorerQueueTest, AGroupwiseScorerGetsEachGroupWhole) {
  GatedScorer scorer({.name = "rank", .groupwise = true, .batch_max = 4}, 1);
  std::vector<std::unique_ptr<Caller>> callers;
  for (const auto& prompts : std::vector<std::vector<std::string>>{
           {"z", "z", "z", "z"}, {"a", "a", "a"}, {"b", "b", "b"}, {"c"}}) {
    callers.push_back(std::make_unique<Caller>(prompts));
  }
  ScorerQueue queue(kPatient, scorer, Clock::Steady(), kIgnored);
  for (const auto& caller : callers) ASSERT_TRUE(queue.Push(caller->Request()).ok());
  Caller large({"a", "b", "c", "d", "e"});
  EXPECT_EQ(queue.Push(large.Request()).code(), absl::StatusCode::kInvalidArgument);
  scorer.gate.Notify();
  for (const auto& caller : callers) caller->answered.WaitForNotification();
  EXPECT_THAT(scorer.batches(),
              ElementsAre(ElementsAre("z", "z", "z", "z"), ElementsAre("a", "a", "a"),
                          ElementsAre("b", "b", "b", "c")));
}

TEST(ScorerQueueTest, TheEndScoresWhatWaits) {
  GatedScorer scorer({.name = "length", .batch_max = 8}, 1);
  scorer.gate.Notify();
  Caller caller({"a"});
  {
    ScorerQueue queue(kPatient, scorer, Clock::Steady(), kIgnored);
    ASSERT_TRUE(queue.Push(caller.Request()).ok());
  }
  EXPECT_TRUE(caller.answered.HasBeenNotified());
}

}  // namespace
}  // namespace oxbow::reward
