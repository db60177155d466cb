// SPDX-License-Identifier: Apache-2.0
// Children are real processes here: a shell stands for a service.
#include "cli/run/child_process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

// Waits for a condition that another process brings about; a deadline, not a duration.
bool Eventually(const std::function<bool()>& condition) {
  const absl::Duration deadline = Clock::Steady().Now() + absl::Seconds(10);
  while (!condition()) {
    if (Clock::Steady().Now() > deadline) return false;
    poll(nullptr, 0, 5);
  }
  return true;
}

class ChildProcessTest : public ::testing::Test {
 protected:
  std::unique_ptr<ChildProcess> Shell(const std::string& script) {
    return ChildProcess::Start({.spawner = OXBOW_BINARY_DIR "/oxbow_spawn",
                                .argv = {"/bin/sh", "-c", script},
                                .environment = {"OXBOW_TEST_VALUE=7"},
                                .log = log()})
        .value();
  }
  std::filesystem::path log() const { return directory_.path() / "child.log"; }
  oxbow::testing::ScopedDirectory directory_;
};

TEST_F(ChildProcessTest, LinesEnvironmentLogAndExitCodeArrive) {
  const auto child = Shell(
      "echo READY name=x grpc=a:1 metrics=b:$OXBOW_TEST_VALUE; echo one >&2; echo two >&2; exit 4");
  ASSERT_TRUE(Eventually([&] { return child->Exit().has_value(); }));
  EXPECT_EQ(child->Exit(), 4);
  const std::vector<std::string> lines = child->TakeLines();
  ASSERT_EQ(lines.size(), 1);
  const auto ready = ParseReady(lines[0]);
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->grpc, "a:1");
  EXPECT_EQ(ready->metrics, "b:7");
  EXPECT_EQ(LogTail(log(), 1), "two");
}

// So the kernel kills one that is started again, and not the launcher.
// Promise: Containers' quotas count.
TEST_F(ChildProcessTest, WhereMemoryRunsOutAChildDiesBeforeItsParent) {
  int own = 0;
  std::ifstream("/proc/self/oom_score_adj") >> own;
  const auto child = Shell("cat /proc/self/oom_score_adj");
  ASSERT_TRUE(Eventually([&] { return child->Exit().has_value(); }));
  EXPECT_EQ(child->TakeLines(),
            std::vector<std::string>{std::to_string(std::min(1000, own + 300))});
}

// Promise: Containers' quotas count.
TEST_F(ChildProcessTest, WhereMemoryRunsOutTheLearnerIsTheLastChild) {
  int own = 0;
  std::ifstream("/proc/self/oom_score_adj") >> own;
  const auto learner = log().parent_path() / "learner";
  std::filesystem::remove(learner);
  std::filesystem::create_symlink("/bin/sh", learner);
  const auto child = ChildProcess::Start({.spawner = OXBOW_BINARY_DIR "/oxbow_spawn",
                                          .argv = {learner, "-c", "cat /proc/self/oom_score_adj"},
                                          .log = log()});
  ASSERT_TRUE(child.ok()) << child.status();
  ASSERT_TRUE(Eventually([&] { return (*child)->Exit().has_value(); }));
  EXPECT_EQ((*child)->TakeLines(),
            std::vector<std::string>{std::to_string(std::min(1000, own + 150))});
}

TEST_F(ChildProcessTest, StopSignalsReachAChildThoughTheParentBlocksThem) {
  sigset_t set;
  sigset_t before;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  const auto child = Shell("echo up; exec sleep 60");
  ASSERT_TRUE(Eventually([&] { return !child->TakeLines().empty(); }));
  child->Signal(SIGTERM);
  EXPECT_TRUE(Eventually([&] { return child->Exit().has_value(); }));
  EXPECT_EQ(child->Exit(), 128 + SIGTERM);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_F(ChildProcessTest, AChildDiesWithAParentThatIsKilled) {
  // The middle process stands for a supervisor: it starts a child, says its pid, and is killed.
  const auto parent =
      Shell(OXBOW_BINARY_DIR "/oxbow_spawn $$ /bin/sh -c 'echo $$; exec sleep 60' & wait");
  std::vector<std::string> lines;
  ASSERT_TRUE(Eventually([&] { return !(lines = parent->TakeLines()).empty(); }));
  const pid_t grandchild = std::stoi(lines[0]);
  ASSERT_EQ(kill(grandchild, 0), 0);
  parent->Signal(SIGKILL);
  // A zombie nobody reaps still answers kill; its command line is empty.
  EXPECT_TRUE(Eventually([&] {
    std::string words;
    std::ifstream("/proc/" + std::to_string(grandchild) + "/cmdline") >> words;
    return kill(grandchild, 0) != 0 || words.empty();
  }));
}

TEST_F(ChildProcessTest, AMissingBinaryIsAnUnavailableExitWithItsPath) {
  const auto child = ChildProcess::Start({.spawner = OXBOW_BINARY_DIR "/oxbow_spawn",
                                          .argv = {"/no/such/binary"},
                                          .environment = {},
                                          .log = log()})
                         .value();
  ASSERT_TRUE(Eventually([&] { return child->Exit().has_value(); }));
  EXPECT_EQ(child->Exit(), 3);
  EXPECT_NE(LogTail(log(), 1).find("/no/such/binary"), std::string::npos);
}

// The log, the pipe and the child's own files each need some; any lack is said as one that passes.
// Promise: A port that answers stays open.
TEST_F(ChildProcessTest, WithoutDescriptorsAStartIsRefusedAsOneThatMayBePossibleLater) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int free = dup(STDIN_FILENO);  // The lowest number that is free.
  close(free);
  for (rlim_t more = 0; more < 3; ++more) {
    const rlimit few{.rlim_cur = static_cast<rlim_t>(free) + more, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const auto child = ChildProcess::Start({.spawner = OXBOW_BINARY_DIR "/oxbow_spawn",
                                            .argv = {"/bin/true"},
                                            .environment = {},
                                            .log = log()});
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_TRUE(absl::IsResourceExhausted(child.status())) << more << ": " << child.status();
  }
}

}  // namespace
}  // namespace oxbow::cli
