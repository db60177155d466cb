// SPDX-License-Identifier: Apache-2.0
// A part that hangs inside a process that is otherwise well, and a wall clock that is set back.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/elastic_run.h"

namespace oxbow::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kExpired[] = "oxbow_learner_leases_total{event=\"expired\"}";
constexpr char kHeld[] = "oxbow_rollout_groups_in_flight";
constexpr char kAccepted[] = "oxbow_rollout_groups_total{outcome=\"accepted\"}";

// The oldest thread of this name: threads inherit the name of the one that starts them.
pid_t ThreadNamed(pid_t process, const std::string& name) {
  pid_t oldest = 0;
  const std::filesystem::path tasks = "/proc/" + std::to_string(process) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::string found;
    std::getline(std::ifstream(task.path() / "comm"), found);
    pid_t id = 0;
    if (found != name || !absl::SimpleAtoi(task.path().filename().string(), &id)) continue;
    if (oldest == 0 || id < oldest) oldest = id;
  }
  return oldest;
}

// True if the address lies in code of a mapped file whose path ends like this.
bool IsCodeOf(pid_t process, uint64_t address, const std::string& file) {
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    uint64_t from = 0;
    uint64_t to = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64, &from, &to) != 2) continue;
    if (from <= address && address < to) return absl::EndsWith(line, file);
  }
  return false;
}

// Stops one thread of a child, as a device that does not answer does, until the end of the scope.
class Hanging {
 public:
  explicit Hanging(pid_t thread) : thread_(thread) {
    OXBOW_CHECK(ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) == 0) << "no leave to trace a child";
    OXBOW_CHECK(ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) == 0) << "interrupt";
    OXBOW_CHECK(waitpid(thread, nullptr, __WALL) == thread) << "stop";
  }
  ~Hanging() { ptrace(PTRACE_DETACH, thread_, nullptr, nullptr); }

  // True if it stands in a forward pass, as it would with a device that hangs. Anywhere else it may
  // hold a lock that the other threads need, or have nothing to do.
  bool InTorch(pid_t process) const {
    std::ifstream in("/proc/" + std::to_string(thread_) + "/syscall");
    std::string call;
    std::string stack;
    std::string at;  // "-1" outside of a system call, and two addresses.
    uint64_t address = 0;
    return in >> call >> stack >> at && call == "-1" && absl::SimpleHexAtoi(at, &address) &&
           IsCodeOf(process, address, "/libtorch_cpu.so");
  }

 private:
  const pid_t thread_;
};

// Promise: A stalled worker delays nobody.
TEST(HangingTest, AWorkerWhoseSamplerHangsLosesItsGroupsToOthersThoughItsProcessLives) {
  ElasticRun run({"run.steps=100000", "batch.groups=4", "services.lease_seconds=1",
                  "services.groups_in_flight=2", "services.speculation_factor=0",
                  "batch.group_size=16"});
  run.Join("steady");
  Process& hung = run.Join("hung");
  ASSERT_TRUE(run.AwaitWorker("hung", kAccepted, 1));
  const pid_t sampler = ThreadNamed(hung.pid(), "sampler");
  ASSERT_NE(sampler, 0);
  std::unique_ptr<Hanging> hanging;
  // Where it does not hang in its work, it goes on at once: a long pause from which a sampler comes
  // back makes the worker patient.
  for (int tries = 0; hanging == nullptr && tries < 1000; ++tries) {
    ASSERT_TRUE(run.AwaitWorker("hung", kHeld, 1));
    hanging = std::make_unique<Hanging>(sampler);
    if (!hanging->InTorch(hung.pid()) || run.Worker("hung", kHeld) < 1) hanging.reset();
  }
  ASSERT_NE(hanging, nullptr) << "it never samples";
  ASSERT_TRUE(run.AwaitLearner(kExpired, 1, absl::Seconds(60))) << "its leases end";
  EXPECT_TRUE(run.AwaitSteps(3)) << "and others make its groups";
  EXPECT_TRUE(hung.WaitForErrorLine("E", absl::Seconds(60)).ok());
  EXPECT_THAT(hung.error_output(), HasSubstr("the sampler stands still"));
  hanging.reset();
  const double before = run.Worker("hung", kAccepted);
  EXPECT_TRUE(run.AwaitWorker("hung", kAccepted, before + 1, absl::Seconds(60))) << "it goes on";
  run.run().process().Kill(SIGINT);
  EXPECT_EQ(run.run().WaitExit().value(), 130) << run.run().process().error_output();
}

#ifdef OXBOW_WALL_CLOCK_AHEAD
// Each time of the wall clock that a process computes is an hour before its time in the kernel, as
// if the clock had been set back at once. Leases expire, and the run ends.
// Promise: A stalled worker delays nobody.
TEST(HangingTest, ARunEndsThoughTheWallClockIsSetBackByAnHourAllTheTime) {
  ASSERT_EQ(setenv("LD_PRELOAD", OXBOW_WALL_CLOCK_AHEAD, 1), 0);
  TrainingRun run({"run.steps=8", "services.lease_seconds=2", "replay.fraction=0.25",
                   "services.rollout_workers=2"});
  unsetenv("LD_PRELOAD");
  ASSERT_TRUE(run.WaitForStep(2)) << run.process().error_output();
  ASSERT_TRUE(run.KillChild("rollout_worker", SIGKILL));
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_THAT(run.Series("train/loss"), SizeIs(8));
}
#endif

}  // namespace
}  // namespace oxbow::testing
