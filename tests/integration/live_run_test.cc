// SPDX-License-Identifier: Apache-2.0
// Nobody loses a run: starts on a live run, resumes with other settings, terminals that close, and
// what workers are told at the end. With the real binaries.
#include <signal.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/elastic_run.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr absl::Duration kEnds = absl::Seconds(60);

std::string Content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

struct Ended {
  int exit_code;
  std::string message;  // Its stderr.
};

Ended RunCommand(std::vector<std::string> command) {
  auto process = Process::Start({.argv = std::move(command)});
  OXBOW_CHECK(process.ok()) << process.status();
  const int exit_code = (*process)->WaitExit(kEnds).value();
  return {exit_code, (*process)->error_output()};
}

// The command line of a live run, as a person repeats it with something added.
std::vector<std::string> CommandOf(TrainingRun& run, const std::vector<std::string>& more) {
  const std::string line = Content(absl::StrCat("/proc/", run.process().pid(), "/cmdline"));
  std::vector<std::string> command = absl::StrSplit(line, '\0', absl::SkipEmpty());
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

std::string LastLine(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  return lines.empty() ? "" : lines.back();
}

// Promise: One process changes a run's directory. A start on a live run is refused with one line
// that names the process and its machine, and changes nothing. This holds for `oxbow train` with
// any flag, `learner`, and `rollback` with `--force`. A process that was killed leaves no lock.
// Where the file system has no locks, the process whose directory was taken over ends before its
// next checkpoint, step or `endpoints.json`; a checkpoint is checked right before its rename.
TEST(LiveRunTest, StartsOnALiveRunAreRefusedAndItGoesOn) {
  TrainingRun run({"run.steps=1000", "checkpoint.every=1"});
  ASSERT_TRUE(run.WaitForStep(2)) << run.process().error_output();
  const std::string config = Content(run.directory() / "config.resolved.yaml");
  const std::string endpoints = Content(run.directory() / "endpoints.json");
  const std::string pid = absl::StrCat("process ", run.process().pid(), " on ");
  for (const char* flag : {"--resume", "--overwrite", "--set-aside"}) {
    const Ended outcome = RunCommand(CommandOf(run, {flag, "--set", "run.steps=1001"}));
    EXPECT_EQ(outcome.exit_code, 3) << flag;
    EXPECT_THAT(LastLine(outcome.message),
                AllOf(HasSubstr("the run is live: oxbow train, "), HasSubstr(pid)))
        << flag;
  }
  const Ended rolled =
      RunCommand({BinaryPath("oxbow"), "rollback", run.directory(), "--to", "1", "--force"});
  EXPECT_EQ(rolled.exit_code, 3);
  EXPECT_THAT(rolled.message, HasSubstr(pid));
  const Ended learner =
      RunCommand({BinaryPath("learner"), "--config", run.directory() / "config.resolved.yaml",
                  "--run-dir", run.directory(), "--reward", "127.0.0.1:1", "--resume"});
  EXPECT_EQ(learner.exit_code, 3);
  EXPECT_THAT(learner.message, HasSubstr(pid));
  EXPECT_EQ(Content(run.directory() / "config.resolved.yaml"), config);
  EXPECT_EQ(Content(run.directory() / "endpoints.json"), endpoints);
  const int64_t reached = run.metrics().back()["step"];
  ASSERT_TRUE(run.WaitForStep(reached + 1)) << run.process().error_output();

  // A lock ends with its process: nothing has to be removed before the run goes on.
  run.process().Kill(SIGKILL);
  ASSERT_TRUE(run.WaitExit(kEnds).ok());
  const int64_t last = run.metrics().back()["step"];
  run.Resume({absl::StrCat("run.steps=", last + 2), "checkpoint.every=1"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_EQ(run.metrics().back()["step"], last + 2);
}

// Promise: Nobody loses a run.
TEST(LiveRunTest, AClosedTerminalDrainsTheRun) {
  TrainingRun first({"run.steps=1000", "checkpoint.every=0"});
  ASSERT_TRUE(first.WaitForStep(1)) << first.process().error_output();
  const std::vector<std::string> resume = CommandOf(first, {"--resume"});
  first.process().Kill(SIGHUP);
  first.process().Kill(SIGHUP);  // The kernel's and the shell's.
  EXPECT_EQ(first.WaitExit(kEnds).value(), 129);
  const int64_t reached = first.metrics().back()["step"];
  const std::filesystem::path newest = first.directory() / "checkpoints" / "newest";
  EXPECT_EQ(Content(newest), absl::StrFormat("step_%06d\n", reached));

  // Stdout and stderr are a pipe that nobody reads any more.
  std::vector<std::string> command = {"/bin/bash", "-c", "exec \"$@\" > >(true) 2>&1", "bash"};
  command.insert(command.end(), resume.begin(), resume.end());
  const auto unheard = Process::Start({.argv = std::move(command)});
  ASSERT_TRUE(unheard.ok()) << unheard.status();
  ASSERT_TRUE(
      first.files().WaitForStep(reached + 2, kRunDeadline, [&] { return (*unheard)->running(); }));
  (*unheard)->Kill(SIGHUP);
  EXPECT_EQ((*unheard)->WaitExit(kEnds).value(), 129);
  EXPECT_EQ(Content(newest),
            absl::StrFormat("step_%06d\n", first.metrics().back()["step"].get<int64_t>()));
}

TEST(LiveRunTest, AServiceDrainsWhenItsTerminalClosesButNotUnderNohup) {
  for (const bool nohup : {false, true}) {
    const std::string start = nohup ? "trap '' HUP; exec \"$@\"" : "exec \"$@\"";
    const auto service =
        Process::Start({.argv = {"/bin/bash", "-c", start, "bash", BinaryPath("reward_server"),
                                 "--rewards", "digits_ocr"}});
    ASSERT_TRUE(service.ok()) << service.status();
    ASSERT_TRUE((*service)->WaitForLine("READY", kEnds).ok());
    (*service)->Kill(SIGHUP);
    if (nohup) (*service)->Kill(SIGTERM);
    EXPECT_EQ((*service)->WaitExit(kEnds).value(), 0);
    EXPECT_THAT((*service)->error_output(),
                HasSubstr(absl::StrCat("stopping signal=", nohup ? SIGTERM : SIGHUP)));
  }
}

// Promise: Nobody loses a run.
// Promise: Workers end with their run. A worker that is connected when the run completes ends with
// exit code 0. One that finds no learner for `--give-up-after` ends with exit code 3.
TEST(LiveRunTest, ACompleteRunEndsItsWorkersAndAResumeChecksWhatItIsAskedFor) {
  ElasticRun elastic({"run.steps=2"});
  Process& worker = elastic.Join("w");
  TrainingRun& run = elastic.run();
  const std::vector<std::string> command = CommandOf(run, {"--resume"});
  ASSERT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_EQ(worker.WaitExit(kEnds).value(), 0) << worker.error_output();

  const std::string config = Content(run.directory() / "config.resolved.yaml");
  const auto resume = [&](const std::vector<std::string>& overrides) {
    std::vector<std::string> line = command;
    for (const std::string& override : overrides) {
      line.insert(line.end(), {"--set", override});
    }
    return RunCommand(line);
  };
  const Ended changed = resume({"run.steps=9", "optimizer.learning_rate=1e-5"});
  EXPECT_EQ(changed.exit_code, 2);
  EXPECT_THAT(changed.message, AllOf(HasSubstr("optimizer.learning_rate: "),
                                     HasSubstr(" in the run, 1e-05 here (--set)")));
  const Ended fewer = resume({"run.steps=1"});
  EXPECT_EQ(fewer.exit_code, 2);
  EXPECT_THAT(LastLine(fewer.message), HasSubstr("the run has 2 steps already"));
  EXPECT_EQ(Content(run.directory() / "config.resolved.yaml"), config);
  // A learner that was started by hand says the same.
  const std::filesystem::path by_hand = run.directory() / "by_hand.yaml";
  std::string shorter = config;
  ASSERT_NE(shorter.find("  steps: 2 "), std::string::npos) << config;
  std::ofstream(by_hand) << shorter.replace(shorter.find("  steps: 2 "), 10, "  steps: 1");
  const Ended learner = RunCommand({BinaryPath("learner"), "--config", by_hand, "--run-dir",
                                    run.directory(), "--reward", "127.0.0.1:1", "--resume"});
  EXPECT_EQ(learner.exit_code, 2);
  EXPECT_THAT(LastLine(learner.message), HasSubstr("the run has 2 steps already"));
  EXPECT_EQ(resume({"run.steps=2"}).exit_code, 0);
}

// The end on a file system without locks when the run was started on another machine.
// Promise: One process changes a run's directory.
TEST(LiveRunTest, ALearnerWhoseDirectoryWasTakenOverEndsWithTheReasonLast) {
  TrainingRun run({"run.steps=1000"});
  ASSERT_TRUE(run.WaitForStep(2)) << run.process().error_output();
  std::string record = R"({"program":"learner","pid":7,"host":"elsewhere","since":"2026"})";
  record.resize(512, ' ');
  std::ofstream(run.directory() / "learner.lock", std::ios::in | std::ios::out) << record;
  ASSERT_EQ(run.WaitExit(kEnds).value(), 4) << run.process().error_output();
  EXPECT_THAT(LastLine(run.process().error_output()),
              AllOf(StartsWith("oxbow train: learner ended with exit code 4: "),
                    HasSubstr("taken over by learner, process 7 on elsewhere since 2026")));
  EXPECT_THAT(run.process().output(), Not(HasSubstr("tensorboard --logdir")));
  EXPECT_EQ(Content(run.directory() / "learner.lock"), record) << "started again";
}

// The logs, where the reason would be, went with it.
TEST(LiveRunTest, ARunWhoseDirectoryWasMovedSaysSo) {
  TrainingRun run({"run.steps=1000", "checkpoint.every=1"});
  ASSERT_TRUE(run.WaitForStep(2)) << run.process().error_output();
  std::filesystem::rename(run.directory(), run.directory().string() + "_moved");
  ASSERT_EQ(run.WaitExit(kEnds).value(), 4) << run.process().error_output();
  EXPECT_THAT(
      LastLine(run.process().error_output()),
      AllOf(StartsWith("oxbow train: learner ended with exit code 4: the run's directory is "
                       "not there any more"),
            HasSubstr("oxbow resume"), HasSubstr(run.directory().string())));
  EXPECT_FALSE(std::filesystem::exists(run.directory())) << "moved back, it would lie in it";
}

}  // namespace
}  // namespace oxbow::testing
