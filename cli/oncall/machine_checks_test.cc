// SPDX-License-Identifier: Apache-2.0
#include "cli/oncall/machine_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

// A machine that has enough for its run.
MachineFacts Good() {
  return {.memory_available = 8 * kGiB,
          .memory_usable = 16 * kGiB,
          .disks = {{.path = "/runs", .free = 50 * kGiB, .needs = 4 * kGiB}},
          .descriptors_max = 1048576,
          .cores = 8,
          .load = 0.5,
          .clock_synchronised = true,
          .certificate_left = absl::Hours(24 * 30),
          .omp_num_threads = "",
          .omp_wait_policy = "",
          .cpu_capability = "AVX512",
          .fast_blas = true,
          .ports = {{"127.0.0.1:7001", ""}}};
}
constexpr MachineNeeds kNeeds{
    .memory = 4 * kGiB, .memory_limits = 6 * kGiB, .busy_processes = 3, .processes = 5};

Check Find(const Checks& checks, const std::string& name) {
  for (const Check& check : checks) {
    if (check.name == name) return check;
  }
  ADD_FAILURE() << "no such check: " << name;
  return {};
}

TEST(MachineChecksTest, AFitMachineHasNothingToFix) {
  const Checks checks = JudgeMachine(Good(), kNeeds);
  EXPECT_EQ(WorstOf(checks), Grade::kOk) << CheckupText(checks);
  for (const Check& check : checks) EXPECT_EQ(check.fix, "") << check.name;
  EXPECT_EQ(CheckupExitCode(checks, /*strict=*/true), 0);
}

// Spoils one fact and expects one check to report it, with a fix.
struct Spoilt {
  const char* check;
  Grade verdict;
  void (*spoil)(MachineFacts&);
};

class SpoiltMachineTest : public ::testing::TestWithParam<Spoilt> {};

// Promise: Limits add up to less than the memory.
TEST_P(SpoiltMachineTest, IsSeenByItsCheckAlone) {
  MachineFacts facts = Good();
  GetParam().spoil(facts);
  const Checks checks = JudgeMachine(facts, kNeeds);
  for (const Check& check : checks) {
    const bool meant = check.name == GetParam().check;
    EXPECT_EQ(check.verdict, meant ? GetParam().verdict : Grade::kOk) << check.name;
    EXPECT_EQ(check.fix.empty(), !meant) << check.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SpoiltMachineTest,
    ::testing::Values(
        Spoilt{"memory", Grade::kFail, [](MachineFacts& f) { f.memory_available = 3 * kGiB; }},
        Spoilt{"memory", Grade::kWarn,
               [](MachineFacts& f) { f.memory_available = 4 * kGiB + (kGiB >> 2); }},
        Spoilt{"memory limits", Grade::kWarn, [](MachineFacts& f) { f.memory_usable = 5 * kGiB; }},
        Spoilt{"disk", Grade::kFail, [](MachineFacts& f) { f.disks[0].free = kGiB; }},
        Spoilt{"disk", Grade::kFail, [](MachineFacts& f) { f.disks[0].writable = false; }},
        Spoilt{"open files", Grade::kFail, [](MachineFacts& f) { f.descriptors_max = 256; }},
        Spoilt{"open files", Grade::kWarn, [](MachineFacts& f) { f.descriptors_max = 1024; }},
        Spoilt{"cores", Grade::kWarn, [](MachineFacts& f) { f.cores = 2; }},
        Spoilt{"cores", Grade::kWarn, [](MachineFacts& f) { f.load = 20; }},
        Spoilt{"OpenMP", Grade::kWarn, [](MachineFacts& f) { f.omp_num_threads = "16"; }},
        Spoilt{"OpenMP", Grade::kWarn, [](MachineFacts& f) { f.omp_wait_policy = "ACTIVE"; }},
        Spoilt{"LibTorch", Grade::kWarn, [](MachineFacts& f) { f.fast_blas = false; }},
        Spoilt{"clock", Grade::kWarn, [](MachineFacts& f) { f.clock_synchronised = false; }},
        Spoilt{"certificate", Grade::kWarn,
               [](MachineFacts& f) { f.certificate_left = absl::Hours(24 * 13); }},
        Spoilt{"port 127.0.0.1:7001", Grade::kFail,
               [](MachineFacts& f) { f.ports[0].taken = "Address already in use"; }}));

TEST(MachineChecksTest, WithoutARunOnlyWhatIsAlwaysNeededCounts) {
  MachineFacts facts = Good();
  facts.memory_available = kGiB;
  facts.disks = {{.path = "/runs", .free = 2 * kGiB}};
  facts.cores = 1;
  EXPECT_EQ(WorstOf(JudgeMachine(facts, {})), Grade::kOk);
}

TEST(MachineChecksTest, ADiskWithoutRoomForACheckpointEndsARunForCertain) {
  MachineNeeds needs = kNeeds;
  MachineFacts facts = Good();
  facts.disks[0].least = kGiB;
  facts.disks[0].free = 2 * kGiB;
  EXPECT_FALSE(Find(JudgeMachine(facts, needs), "disk").ends_run) << "it may keep less";
  facts.disks[0].free = kGiB / 2;
  EXPECT_TRUE(Find(JudgeMachine(facts, needs), "disk").ends_run);
  needs.met = true;
  EXPECT_FALSE(Find(JudgeMachine(facts, needs), "disk").ends_run) << "it has what it writes";
}

TEST(MachineChecksTest, ADiskBesideTheRunsIsJudgedByItsOwnShare) {
  MachineFacts facts = Good();
  facts.disks.push_back({.path = "/cache",
                         .keys = {"prompts.cache"},
                         .free = kGiB / 4,
                         .needs = kGiB,
                         .least = kGiB});
  Check check = Find(JudgeMachine(facts, kNeeds), "disk of prompts.cache");
  EXPECT_EQ(check.verdict, Grade::kFail);
  EXPECT_TRUE(check.ends_run);
  EXPECT_EQ(check.fix, "free some space, or move prompts.cache");
  EXPECT_EQ(Find(JudgeMachine(facts, kNeeds), "disk").verdict, Grade::kOk);
  facts.disks[1].needs = facts.disks[1].least = kGiB / 8;  // A small one that is large enough.
  EXPECT_EQ(Find(JudgeMachine(facts, kNeeds), "disk of prompts.cache").verdict, Grade::kOk);
}

TEST(MachineFactsTest, PlacesOnOneFileSystemAddUp) {
  const oxbow::testing::ScopedDirectory directory;
  const std::vector<Disk> disks = LookAtDisks({{"run.directory", directory.path() / "a", 5, 3},
                                               {"prompts.cache", "/proc/none", 7, 7},
                                               {"checkpoint.copy_to", directory.path(), 4, 2}});
  ASSERT_EQ(disks.size(), 2u);
  EXPECT_EQ(disks[0].needs, 9u);
  EXPECT_EQ(disks[0].least, 5u);
  EXPECT_EQ(disks[0].keys, (std::vector<std::string>{"run.directory", "checkpoint.copy_to"}));
  EXPECT_EQ(disks[1].path, "/proc");
  EXPECT_EQ(disks[1].free, 0u);
}

TEST(CheckupTest, SentencesAreWrappedToTheTerminalAndNothingOfThemIsCut) {
  const std::string found = "no space is left on the device of this run", fix = "free some of it";
  const std::string text = CheckupText({{"machine", "disk", Grade::kFail, found, fix}}, 60);
  EXPECT_EQ(text, "fail  machine/disk                   no space is left on the\n" +
                      std::string(37, ' ') +
                      "device of this run\n      fix: free some of it\n0 ok, 0 warn, 1 fail\n");
}

TEST(MachineChecksTest, TheClockOfTheOnlyMachineNeedsNoOther) {
  MachineFacts facts = Good();
  facts.clock_synchronised = false;
  EXPECT_EQ(WorstOf(JudgeMachine(facts, kNeeds)), Grade::kWarn) << "as oxbow doctor asks";
  MachineNeeds needs = kNeeds;
  needs.other_machines = false;
  EXPECT_EQ(WorstOf(JudgeMachine(facts, needs)), Grade::kOk) << "as oxbow train asks";
}

TEST(MachineChecksTest, ARunSpansMachinesIfItListensBeyondThisOneOrIsScoredElsewhere) {
  const auto spans = [](const std::string& host, const std::vector<std::string>& rewards) {
    v1::RunConfig config;
    config.mutable_services()->set_host(host);
    for (const std::string& reward : rewards) config.mutable_reward()->add_endpoints(reward);
    return SpansMachines(config);
  };
  EXPECT_FALSE(spans("127.0.0.1", {}));
  EXPECT_FALSE(spans("::1", {"localhost:7000", "[::1]:7001"}));
  EXPECT_TRUE(spans("0.0.0.0", {}));
  EXPECT_TRUE(spans("127.0.0.1", {"127.0.0.1:7000", "scorer:7000"}));
}

TEST(MachineChecksTest, ARunThatIsAtWorkHasWhatItNeedsAndMakesTheLoad) {
  MachineFacts facts = Good();
  facts.memory_available = kGiB;
  facts.disks[0].free = 2 * kGiB;
  facts.cores = 2;
  facts.load = 9;
  MachineNeeds needs = kNeeds;
  needs.met = true;
  const Checks checks = JudgeMachine(facts, needs);
  EXPECT_EQ(WorstOf(checks), Grade::kOk) << CheckupText(checks);
}

TEST(MachineChecksTest, AProxyOfTheEnvironmentIsNamedWithWhatHappens) {
  MachineFacts facts = Good();
  facts.proxies = {"http_proxy=http://proxy:3128"};
  Check check = Find(JudgeMachine(facts, kNeeds), "proxy");
  EXPECT_EQ(check.verdict, Grade::kOk);
  EXPECT_THAT(check.found, AllOf(HasSubstr("http_proxy="), HasSubstr("do not go through it")));
  MachineNeeds needs = kNeeds;
  needs.http_proxy = true;
  EXPECT_THAT(Find(JudgeMachine(facts, needs), "proxy").found,
              HasSubstr("go through it (services"));
  facts.proxies = {"HTTP_PROXY=http://proxy:3128"};  // Nothing here reads capitals.
  EXPECT_EQ(Find(JudgeMachine(facts, needs), "proxy").verdict, Grade::kWarn);
}

TEST(MachineChecksTest, VariablesOfALauncherAreNamed) {
  MachineFacts facts = Good();
  facts.rank_variables = {"RANK=0", "WORLD_SIZE=4"};
  EXPECT_THAT(Find(JudgeMachine(facts, kNeeds), "launcher").found,
              AllOf(HasSubstr("RANK=0, WORLD_SIZE=4"), HasSubstr("oxbow train does not look")));
}

TEST(MachineFactsTest, ProxiesAreShownWithoutTheirPassword) {
  ::setenv("HTTPS_PROXY", "http://me:secret@proxy:3128", 1);
  ::setenv("WORLD_SIZE", "4", 1);
  const MachineFacts facts = LookAtMachine({}, {});
  ::unsetenv("HTTPS_PROXY");
  ::unsetenv("WORLD_SIZE");
  EXPECT_THAT(facts.proxies, ::testing::Contains("HTTPS_PROXY=http://proxy:3128"));
  EXPECT_THAT(facts.rank_variables, ::testing::Contains("WORLD_SIZE=4"));
}

TEST(MachineChecksTest, ExitCodeFollowsTheWorst) {
  const Checks warns = {{"machine", "a", Grade::kWarn, "", "do"}, {"machine", "b"}};
  EXPECT_EQ(CheckupExitCode(warns, /*strict=*/false), 0);
  EXPECT_EQ(CheckupExitCode(warns, /*strict=*/true), 1);
  const Checks fails = {{"machine", "a", Grade::kFail, "x", "do this"}};
  EXPECT_EQ(CheckupExitCode(fails, /*strict=*/false), 1);
  EXPECT_THAT(CheckupText(fails), HasSubstr("fix: do this"));
  EXPECT_THAT(CheckupJson(fails), HasSubstr("\"verdict\": \"fail\""));
}

TEST(MachineFactsTest, ThisMachineIsLookedAt) {
  const oxbow::testing::ScopedDirectory directory;
  const MachineFacts facts =
      LookAtMachine({{.key = "run.directory", .place = directory.path() / "not" / "there"}},
                    {"127.0.0.1:0", "no port"});
  EXPECT_GT(facts.memory_available, 0u);
  ASSERT_EQ(facts.disks.size(), 1u);
  EXPECT_GT(facts.disks[0].free, 0u);
  EXPECT_GT(facts.descriptors_max, 0u);
  EXPECT_GT(facts.cores, 0);
  EXPECT_EQ(facts.disks[0].path, directory.path().string()) << "the nearest that is there";
  ASSERT_EQ(facts.ports.size(), 2u);
  EXPECT_EQ(facts.ports[0].taken, "");
  EXPECT_NE(facts.ports[1].taken, "");
  EXPECT_NE(Find(JudgeMachine(facts, {}), "memory").found, "");
}

}  // namespace
}  // namespace oxbow::cli
