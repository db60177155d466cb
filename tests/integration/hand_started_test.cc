// SPDX-License-Identifier: Apache-2.0
// A learner that was started by hand leaves what `oxbow train` leaves: status, doctor and rollback
// find the run by its directory.
#include <signal.h>

#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
#include "tests/launchers/launched_run.h"

namespace oxbow::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Waits for a report with this text: it is written beside the steps.
bool ReportSays(const std::string& directory, const std::string& text) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (absl::Now() < deadline) {
    const auto page = ReadFile(directory + "/report.html");
    if (page.ok() && absl::StrContains(*page, text)) return true;
    std::this_thread::yield();
  }
  return false;
}

// Promise: A run's page is as new as the run.
TEST(HandStartedTest, TheRunIsFoundByItsDirectoryWhileItLivesAndAfterwards) {
  LaunchedRun run({"run.steps=100000", "checkpoint.every=2", "checkpoint.keep=100"});
  Process& learner = run.Launch({});
  run.Work(learner);
  ASSERT_TRUE(run.WaitForStep(4)) << learner.error_output();
  const std::string directory = run.files().directory().string();

  EXPECT_TRUE(ReportSays(directory, "data-reload=\"10\"")) << "it lives as the run does";
  const Outcome status = RunOxbow({"status", "--run", directory});
  EXPECT_EQ(status.exit_code, 0) << status.message;
  EXPECT_THAT(status.output, AllOf(HasSubstr("run        run"), HasSubstr("weights    version")));
  const Outcome doctor = RunOxbow({"doctor", "--run-dir", directory});
  EXPECT_THAT(doctor.output,
              AllOf(HasSubstr("fleet/learner"), HasSubstr("fleet/replay_buffer " + run.buffer()),
                    HasSubstr("fleet/reward_server-0")));
  const Outcome early = RunOxbow({"rollback", directory, "--to", "2"});
  EXPECT_NE(early.exit_code, 0);
  EXPECT_THAT(early.message, HasSubstr("the run is live"));

  learner.Kill(SIGTERM);
  ASSERT_THAT(run.WaitExit(), ::testing::ElementsAre(9)) << learner.error_output();
  EXPECT_TRUE(ReportSays(directory, "What next"));
  EXPECT_FALSE(absl::StrContains(*ReadFile(directory + "/report.html"), "data-reload=\"10\""));
  const Outcome ended = RunOxbow({"status", "--run", directory});
  EXPECT_THAT(ended.output, HasSubstr("run        run  (interrupted"));
  const Outcome rolled = RunOxbow({"rollback", directory, "--to", "2"});
  EXPECT_EQ(rolled.exit_code, 0) << rolled.message;
}

}  // namespace
}  // namespace oxbow::testing
