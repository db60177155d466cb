// SPDX-License-Identifier: Apache-2.0
#include "services/learner/plan/conditioning_cache.h"

#include <ATen/ATen.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/learner/run_setup.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::learner {
namespace {

std::unique_ptr<io::EncodedPrompts> Encoded(const std::filesystem::path& directory = {}) {
  const auto components =
      io::OpenDiffusersDirectory(OXBOW_SOURCE_DIR "/tests/golden/text/pipeline");
  EXPECT_TRUE(components.ok()) << components.status();
  auto prompts =
      io::EncodedPrompts::Open(*components, {.directory = directory, .encoders = {.t5_length = 9}});
  EXPECT_TRUE(prompts.ok()) << prompts.status();
  return *std::move(prompts);
}

std::vector<v1::Prompt> Prompts(uint64_t count) {
  std::vector<v1::Prompt> prompts(count);
  for (uint64_t i = 0; i < count; ++i) {
    prompts[i].set_id(i + 1);
    prompts[i].set_text("text " + std::to_string(i));
  }
  return prompts;
}

TEST(ConditioningCacheTest, PromptsInMemoryNeedTheirEncodersOnce) {
  auto prompts = Encoded();
  const io::EncodedPrompts& seen = *prompts;
  ConditioningCache cache(std::move(prompts));
  ASSERT_TRUE(cache.Warm(Prompts(5)).ok());
  EXPECT_TRUE(seen.encoders().loaded());
  cache.ReleaseEncoders();
  const auto entry = cache.Get(Prompts(5)[3]);
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ((*entry)->tensors.at(model::kPromptTokens).size(0), 1);
  EXPECT_FALSE(seen.encoders().loaded());
  ASSERT_TRUE(cache.Get(Prompts(6)[5]).ok());  // A new one brings them back.
  EXPECT_TRUE(seen.encoders().loaded());
}

// Two prompts of one text, and a prompt that is there twice: evaluation may use training's prompts.
TEST(ConditioningCacheTest, WhatWasGivenOutIsServedAsLongAsSomebodyHoldsIt) {
  std::vector<v1::Prompt> prompts = Prompts(3);
  prompts[1].set_text(prompts[0].text());
  prompts.insert(prompts.end(), {prompts[0], prompts[2]});
  ConditioningCache cache(Encoded());
  ASSERT_TRUE(cache.Warm(prompts).ok());
  for (const v1::Prompt& prompt : prompts) {
    const auto entry = cache.Get(prompt);
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_EQ(cache.sent().Find((*entry)->sent.sha256), (*entry)->sent.bytes) << prompt.id();
  }
  // One entry's room: each prompt pushes the one before out of the cache.
  ConditioningCache small(Encoded(), /*bytes_max=*/1);
  const auto first = small.Get(prompts[0]);
  ASSERT_TRUE(first.ok()) << first.status();
  const SentConditioning planned = (*first)->sent;
  for (const size_t i : {1, 2, 0, 2}) ASSERT_TRUE(small.Get(prompts[i]).ok());
  EXPECT_EQ(small.sent().Find(planned.sha256), planned.bytes) << "a planned group holds it";
}

TEST(ConditioningCacheTest, PromptsOnDiskStayThereUntilTheyAreAskedFor) {
  const testing::ScopedDirectory directory;
  auto prompts = Encoded(directory.path());
  const io::EncodedPrompts& seen = *prompts;
  ConditioningCache cache(std::move(prompts));
  ASSERT_TRUE(cache.Warm(Prompts(5)).ok());
  EXPECT_EQ(cache.bytes(), 0u);
  cache.ReleaseEncoders();
  ASSERT_TRUE(cache.Get(Prompts(5)[3]).ok());
  EXPECT_GT(cache.bytes(), 0u);
  EXPECT_FALSE(seen.encoders().loaded());
  // Another start finds them all.
  auto again = Encoded(directory.path());
  const io::EncodedPrompts& seen_again = *again;
  ConditioningCache other(std::move(again));
  ASSERT_TRUE(other.Warm(Prompts(5)).ok());
  EXPECT_FALSE(seen_again.encoders().loaded());
}

// Twelve seconds from each look to the next.
class SlowClock final : public Clock {
 public:
  absl::Duration Now() const override { return now_ += absl::Seconds(12); }

 private:
  mutable absl::Duration now_ = absl::ZeroDuration();
};

std::vector<std::string> DoneInLog(const std::string& log) {
  std::vector<std::string> done;
  for (size_t at = log.find("done="); at != std::string::npos; at = log.find("done=", at + 1)) {
    done.push_back(log.substr(at + 5, log.find(' ', at) - at - 5));
  }
  return done;
}

TEST(ConditioningCacheTest, EncodingSaysEveryHalfMinuteHowFarItIs) {
  const testing::ScopedDirectory directory;
  const SlowClock clock;
  ConditioningCache on_disk(Encoded(directory.path()), uint64_t{1} << 30, clock);
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(on_disk.Warm(Prompts(100)).ok());  // In batches of 16.
  EXPECT_THAT(DoneInLog(::testing::internal::GetCapturedStderr()),
              ::testing::ElementsAre("0", "48", "96", "100"));
  ConditioningCache in_memory(Encoded(), uint64_t{1} << 30, clock);
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(in_memory.Warm(Prompts(70)).ok());  // In batches of 64.
  EXPECT_THAT(DoneInLog(::testing::internal::GetCapturedStderr()),
              ::testing::ElementsAre("0", "70"));
}

// Else rank 0 would encode what is held out while the others wait for it, and give up.
// Promise: A run encodes the prompts that it can take.
TEST(ConditioningCacheTest, EveryRankEncodesWhatRankZeroDoes) {
  for (const int rank : {0, 1}) {
    const testing::ScopedDirectory directory;
    const std::vector<v1::Prompt> prompts = Prompts(5);
    RunSetup setup;
    setup.model.prompts = Encoded(directory.path());
    setup.train = {prompts.begin(), prompts.begin() + 3};
    setup.held_out = {prompts.begin() + 3, prompts.end()};
    setup.config.mutable_eval()->set_images(9);
    ASSERT_TRUE(WarmConditioning(setup, rank, /*ranks=*/2).ok());
    const size_t missing =
        Encoded(directory.path())
            ->Prepare({"text 0", "text 1", "text 2", "text 3", "text 4"}, [](const auto&) {})
            .value();
    EXPECT_EQ(missing, 0u) << "rank " << rank;
  }
}

// Promise: A run encodes the prompts that it can take.
TEST(ConditioningCacheTest, OfALargeFileOnlyWhatTheRunCanTakeIsEncoded) {
  const testing::ScopedDirectory directory;
  RunSetup setup;
  setup.model.prompts = Encoded(directory.path());
  setup.train = Prompts(60);
  setup.config.mutable_run()->set_steps(3);
  setup.config.mutable_batch()->set_groups(4);
  ASSERT_TRUE(WarmConditioning(setup, /*rank=*/0, /*ranks=*/1).ok());
  std::vector<std::string> texts;
  for (const v1::Prompt& prompt : Prompts(60)) texts.push_back(prompt.text());
  EXPECT_EQ(Encoded(directory.path())->Prepare(texts, [](const auto&) {}).value(), 48u);
}

// Held-out prompts are the last five; a step of two groups is planned while another runs.
// Promise: A run encodes the prompts that it can take.
TEST(ConditioningCacheTest, PromptsThatAreEncodedBesideTheTrainingHaveTheSameBits) {
  const testing::ScopedDirectory at_once;
  const testing::ScopedDirectory ahead;
  const std::vector<v1::Prompt> prompts = Prompts(65);
  const auto setup_in = [&](const testing::ScopedDirectory& directory, const std::string& device) {
    RunSetup setup;
    setup.model.prompts = Encoded(directory.path());
    setup.train = {prompts.begin(), prompts.begin() + 60};
    setup.held_out = {prompts.begin() + 60, prompts.end()};
    setup.config.mutable_prompts()->set_cache(directory.path().string());
    setup.config.mutable_model()->set_encoder_device(device);
    setup.config.mutable_run()->set_steps(100);
    setup.config.mutable_batch()->set_groups(2);
    setup.config.mutable_off_policy()->set_staleness_max(1);
    setup.config.mutable_eval()->set_images(5);
    return setup;
  };
  const auto left = [&] {
    std::vector<std::string> texts;
    for (const v1::Prompt& prompt : prompts) texts.push_back(prompt.text());
    return Encoded(ahead.path())->Missing(texts).value();
  };
  const auto go_on = [] { return false; };
  RunSetup all = setup_in(at_once, "cuda");
  const auto expected = WarmConditioning(all, /*rank=*/0, /*ranks=*/1).value();
  RunSetup some = setup_in(ahead, "cpu");
  const io::EncodedPrompts& seen = *some.model.prompts;
  const auto cache = WarmConditioning(some, /*rank=*/0, /*ranks=*/1).value();
  ASSERT_EQ(left().size(), 65 - 5 - 3 * 2u);
  EXPECT_TRUE(seen.encoders().loaded());
  const std::vector<v1::Prompt> order = PromptsNeeded(some);
  for (size_t i = 0; i < 11; ++i) {
    EXPECT_THAT(left(), ::testing::Not(::testing::Contains(order[i].text()))) << i;
  }
  ASSERT_TRUE(cache->Get(order[40]).ok());  // The prompt of a head, say, before its turn.
  ASSERT_TRUE(cache->Ahead(6, [] { return true; }).ok());
  EXPECT_EQ(left().size(), 53u) << "a run that drains encodes nothing";
  ASSERT_TRUE(cache->Ahead(6, go_on).ok());
  EXPECT_EQ(left().size(), 47u);
  EXPECT_THAT(left(), ::testing::Not(::testing::Contains(order[16].text())));
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(cache->Ahead(6, go_on).ok());
  EXPECT_EQ(left().size(), 0u);
  EXPECT_FALSE(seen.encoders().loaded());
  for (const v1::Prompt& prompt : prompts) {
    const auto entry = cache->Get(prompt);
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_EQ((*entry)->sent.sha256, (*expected->Get(prompt))->sent.sha256) << prompt.text();
  }
  EXPECT_FALSE(seen.encoders().loaded());
}

TEST(ConditioningCacheTest, WhatWasUsedLongestAgoMakesRoom) {
  auto prompts = Encoded();
  ConditioningCache one(Encoded());
  ASSERT_TRUE(one.Get(Prompts(1)[0]).ok());
  const uint64_t each = one.bytes();
  const io::EncodedPrompts& seen = *prompts;
  ConditioningCache cache(std::move(prompts), /*bytes_max=*/3 * each);
  const auto list = Prompts(200);
  ASSERT_TRUE(cache.Warm(list).ok());  // The first batch, of which three stay.
  EXPECT_EQ(cache.bytes(), 3 * each);
  cache.ReleaseEncoders();
  EXPECT_TRUE(seen.encoders().loaded()) << "more is to be encoded";
  const at::Tensor fifth = (*cache.Get(list[5]))->tensors.at(model::kPooledPrompt);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(cache.Get(list[6 + i % 3]).ok());
  EXPECT_EQ(cache.bytes(), 3 * each);
  EXPECT_TRUE(at::equal((*cache.Get(list[5]))->tensors.at(model::kPooledPrompt), fifth));
}

}  // namespace
}  // namespace oxbow::learner
