// SPDX-License-Identifier: Apache-2.0
// The real binary: what it links, how it refuses bad starts, and what a kill -9 leaves.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <thread>

#include "base/philox.h"
#include "config/run_config.h"
#include "services/buffer/replay_client.h"
#include "tests/testing/process.h"
#include "tests/testing/replay_entries.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;
using oxbow::testing::Process;
using oxbow::testing::ScopedDirectory;

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr Epoch kEpoch(1);

std::unique_ptr<Process> StartBuffer(const fs::path& data,
                                     const std::vector<std::string>& more = {}) {
  std::vector<std::string> argv = {oxbow::testing::BinaryPath("replay_buffer"), "--data", data};
  argv.insert(argv.end(), more.begin(), more.end());
  return Process::Start({.argv = argv}).value();
}

std::string EndpointOf(Process& process) {
  const auto ready = process.WaitForLine("READY", kPatience);
  EXPECT_TRUE(ready.ok()) << ready.status();
  return ready.ok() ? oxbow::testing::ValueOf(*ready, "grpc") : "127.0.0.1:1";
}

TEST(ReplayProcessTest, DoesNotLinkLibTorch) {
  const std::string command = "ldd " + oxbow::testing::BinaryPath("replay_buffer");
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string libraries;
  for (std::array<char, 512> part; std::fgets(part.data(), part.size(), pipe) != nullptr;) {
    libraries += part.data();
  }
  ASSERT_EQ(pclose(pipe), 0);
  EXPECT_NE(libraries.find("librocksdb"), std::string::npos);
  for (const char* library : {"torch", "libc10"}) {
    EXPECT_EQ(libraries.find(library), std::string::npos) << libraries;
  }
}

TEST(ReplayProcessTest, MakesItsDirectoryAndEndsWithZeroOnSigterm) {
  const ScopedDirectory directory;
  const auto buffer = StartBuffer(directory.path() / "not" / "there");
  {  // An idle client notices the end of the server late, and the server waits for it.
    ReplayClient client(EndpointOf(*buffer), kPatience);
    ASSERT_TRUE(client.Offer(kEpoch, {TestMessage(1, 1, 0, 1)}).ok());
  }
  buffer->Kill(SIGTERM);
  EXPECT_EQ(buffer->WaitExit(kPatience).value(), 0);
}

// Promise: Memory is bounded.
TEST(ReplayProcessTest, StaysUnderItsMemoryBudgetThroughARun) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer's own memory would count";
#endif
  const ScopedDirectory directory;
  const auto buffer = StartBuffer(directory.path());
  ReplayClient client(EndpointOf(*buffer), kPatience);
  for (uint64_t step = 0; step < 60; ++step) {
    std::vector<v1::ReplayEntry> batch;
    for (uint64_t id = 1 + 48 * step; id <= 48 * (step + 1); ++id) {
      batch.push_back(TestMessage(id, id % 700, step, static_cast<double>(id), 16'000));
    }
    ASSERT_TRUE(client.Offer(kEpoch, batch).ok());
    const auto drawn = client.Draw(kEpoch, LearnerStep(step), 12, 1);
    ASSERT_TRUE(drawn.ok()) << drawn.status();
    for (const v1::ReplayEntry& entry : drawn->entries()) {
      ASSERT_TRUE(client.Read(EntryId(entry.entry_id()), 0, 3).ok());
    }
    ASSERT_TRUE(client.Advance(kEpoch, LearnerStep(step), {}, {}).ok());
  }
  RecordProperty("resident_mib_max", static_cast<int>(buffer->own_bytes_max() >> 20));
  EXPECT_LT(buffer->own_bytes_max(), uint64_t{150} << 20);
}

TEST(ReplayProcessTest, SecondProcessOnTheSameDirectoryIsRefused) {
  const ScopedDirectory directory;
  const auto first = StartBuffer(directory.path());
  EndpointOf(*first);
  const auto second = StartBuffer(directory.path());
  EXPECT_EQ(second->WaitExit(kPatience).value(), 3);
  EXPECT_NE(second->error_output().find("in use by another replay_buffer"), std::string::npos)
      << second->error_output();
}

#ifdef OXBOW_NO_FILE_LOCKS
// Common on clusters. Nothing keeps a second process out then, which is said.
// Promise: One process changes a run's directory.
TEST(ReplayProcessTest, AFileSystemWithoutLocksServesAndWarns) {
  const ScopedDirectory directory;
  const auto buffer = Process::Start({.argv = {oxbow::testing::BinaryPath("replay_buffer"),
                                               "--data", directory.path()},
                                      .environment = {"LD_PRELOAD=" OXBOW_NO_FILE_LOCKS}})
                          .value();
  ReplayClient client(EndpointOf(*buffer), kPatience);
  EXPECT_TRUE(client.Advance(kEpoch, LearnerStep(1), {}, {}).ok()) << buffer->error_output();
  EXPECT_NE(buffer->error_output().find("no locks on this file system"), std::string::npos)
      << buffer->error_output();
}
#endif

// Overwrites the first file that starts with `prefix` in the live database.
void Damage(const fs::path& data, const std::string& prefix) {
  for (const auto& file : fs::directory_iterator(data / "live-000001")) {
    if (file.path().filename().string().compare(0, prefix.size(), prefix) != 0) continue;
    std::ofstream(file.path(), std::ios::trunc) << "this is no database file";
    return;
  }
  FAIL() << "nothing to damage: " << prefix;
}

class DamagedStoreTest : public ::testing::TestWithParam<const char*> {};

TEST_P(DamagedStoreTest, IsOneClearLineAndExitFour) {
  const ScopedDirectory directory;
  {
    const auto buffer = StartBuffer(directory.path());
    {
      ReplayClient client(EndpointOf(*buffer), kPatience);
      ASSERT_TRUE(client.Offer(kEpoch, {TestMessage(1, 1, 0, 1)}).ok());
      ASSERT_TRUE(client.Checkpoint(kEpoch, "a", 1).ok());  // Flushes: there is a table file.
    }
    buffer->Kill(SIGTERM);
    ASSERT_EQ(buffer->WaitExit(kPatience).value(), 0);
  }
  Damage(directory.path(), GetParam());
  const auto again = StartBuffer(directory.path());
  EXPECT_EQ(again->WaitExit(kPatience).value(), 4) << again->error_output();
  const std::string error = again->error_output();
  EXPECT_EQ(error.compare(0, 15, "replay_buffer: "), 0) << error;
  EXPECT_NE(error.find("replay store is damaged"), std::string::npos) << error;
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
}

INSTANTIATE_TEST_SUITE_P(Files, DamagedStoreTest, ::testing::Values("CURRENT", "MANIFEST"));

// The answers that clients got, and what must therefore be there.
struct Acknowledged {
  std::map<uint64_t, uint64_t> live_of_prompt;  // Prompt -> entry id.
  uint64_t answered = 0;
  uint64_t step = 0;  // The first one that is not known to be committed.
};

size_t LatentBytesOf(uint64_t id) { return id % 2 == 0 ? 40 : 4000; }

// Offers until a call fails, and now and then commits a step or keeps a checkpoint. Rewards rise,
// so that each entry replaces the one of its prompt.
void OfferUntilItDies(ReplayClient& client, uint64_t& next_id, Acknowledged& told,
                      std::atomic<uint64_t>& acknowledged) {
  while (true) {
    std::vector<v1::ReplayEntry> batch;
    for (int i = 0; i < 3; ++i, ++next_id) {
      batch.push_back(TestMessage(next_id, next_id % 10, told.step, static_cast<double>(next_id),
                                  LatentBytesOf(next_id)));
    }
    const auto response = client.Offer(kEpoch, batch);
    if (!response.ok()) return;
    for (const v1::ReplayEntry& entry : batch) {
      told.live_of_prompt[entry.prompt().id()] = entry.entry_id();
    }
    ++told.answered;
    ++acknowledged;
    if (told.answered % 5 == 0) {
      if (!client.Advance(kEpoch, LearnerStep(told.step), {}, {}).ok()) return;
      ++told.step;
    }
    if (told.answered % 7 == 0 && !client.Checkpoint(kEpoch, "kept", 2).ok()) return;
  }
}

// Every acknowledged entry is there with all its bytes, or gave way to a younger one of its prompt.
void ExpectNothingLost(ReplayClient& client, const Acknowledged& told, uint64_t next_id) {
  for (const auto& [prompt, id] : told.live_of_prompt) {
    auto entry = client.Read(EntryId(id), 0, 3);
    for (uint64_t other = id + 10; !entry.ok() && other < next_id; other += 10) {
      entry = client.Read(EntryId(other), 0, 3);  // Stored, though the answer was lost.
    }
    ASSERT_TRUE(entry.ok()) << "prompt " << prompt << ": " << entry.status();
    const uint64_t found = entry->entry_id();
    const v1::ReplayEntry whole = TestMessage(found, prompt, 0, 0, LatentBytesOf(found));
    ASSERT_EQ(entry->trajectory().latents().data(), whole.trajectory().latents().data());
  }
  const auto info = client.Info();
  ASSERT_TRUE(info.ok()) << info.status();
  ASSERT_LE(info->entries(), 10u);
  ASSERT_GE(info->entries(), told.live_of_prompt.size());
}

// How often; `make kills` asks for more.
int Kills() {
  const char* asked = std::getenv("OXBOW_KILLS");
  return asked == nullptr ? 6 : std::atoi(asked);
}

// Promise: An acknowledged offer stays. An entry whose Offer was answered INSERTED or REPLACED
// survives kill -9 and power loss until a better entry displaces it. On a full disk a call fails
// whole: nothing of it is stored. Offers of many callers share an fsync; what a power loss leaves
// is the content after some of them in order, with all that were acknowledged. A damaged entry
// costs itself alone.
TEST(ReplayProcessTest, KillDashNineLosesNothingThatWasAcknowledged) {
  const int kills = Kills();
  const uint64_t seed = 17;
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  RandomStream random({.seed = seed});
  const ScopedDirectory directory;
  Acknowledged told;
  uint64_t next_id = 1;
  for (int round = 0; round < kills; ++round) {
    const auto buffer = StartBuffer(directory.path());
    // Short: a call to the killed process must not be tried for long.
    ReplayClient client(EndpointOf(*buffer), absl::Seconds(5));
    ASSERT_NO_FATAL_FAILURE(ExpectNothingLost(client, told, next_id)) << "round " << round;
    std::atomic<uint64_t> acknowledged = 0;
    const uint64_t target = 1 + random.NextBelow(25);
    std::thread killer([&] {
      for (uint64_t seen = 0; seen < target; seen = acknowledged.load()) std::this_thread::yield();
      buffer->Kill(SIGKILL);
    });
    OfferUntilItDies(client, next_id, told, acknowledged);
    acknowledged = target;  // Should offers have failed before the kill, let the killer go on.
    killer.join();
    ASSERT_EQ(buffer->WaitExit(kPatience).value(), -SIGKILL);
  }
  const auto buffer = StartBuffer(directory.path());
  ReplayClient client(EndpointOf(*buffer), kPatience);
  ExpectNothingLost(client, told, next_id);
  EXPECT_GT(told.answered, static_cast<uint64_t>(kills));
  std::cout << kills << " kills, " << 3 * told.answered << " acknowledged entries, none lost\n";
}

TEST(ReplayProcessTest, TablesOfTheConfigSurviveKillDashNine) {
  const ScopedDirectory directory;
  const auto run = config::LoadRunConfig(
      {}, {"recipe=digits-flow-grpo", "adaptation.enabled=true", "batch.groups=2"}, {});
  ASSERT_TRUE(run.ok()) << run.status();
  const fs::path file = directory.path() / "config.yaml";
  ASSERT_TRUE(config::WriteResolved(*run, file).ok());
  const std::vector<std::string> flags = {"--config", file};
  {
    const auto buffer = StartBuffer(directory.path() / "store", flags);
    ReplayClient client(EndpointOf(*buffer), kPatience);
    std::vector<v1::ReplayEntry> entries;
    for (uint64_t id = 1; id <= 4; ++id) {
      entries.push_back(TestMessage(id, id, 0, 0.5));
      entries.back().set_table(id < 4 ? replay::kHardPrompts : replay::kRecentGroups);
    }
    const auto offered = client.Offer(kEpoch, entries);
    ASSERT_TRUE(offered.ok()) << offered.status();
    ASSERT_EQ(offered->results(3).outcome(), v1::OFFER_OUTCOME_INSERTED)
        << offered->results(3).error();
    buffer->Kill(SIGKILL);
    ASSERT_EQ(buffer->WaitExit(kPatience).value(), -SIGKILL);
  }
  const auto buffer = StartBuffer(directory.path() / "store", flags);
  ReplayClient client(EndpointOf(*buffer), kPatience);
  const auto prompts = client.Draw(kEpoch, LearnerStep(1), 9, 1, replay::kHardPrompts);
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  ASSERT_EQ(prompts->entries_size(), 2) << "as many as groups of a step: the newest";
  EXPECT_EQ(prompts->entries(0).entry_id(), 2u);
  EXPECT_EQ(prompts->entries(1).entry_id(), 3u);
  const auto group = client.Read(EntryId(4), 0, 3);
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ(group->trajectory().latents().data(),
            TestMessage(4, 4, 0, 0.5).trajectory().latents().data());
}

}  // namespace
}  // namespace oxbow::buffer
