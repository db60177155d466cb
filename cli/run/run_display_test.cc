// SPDX-License-Identifier: Apache-2.0
#include "cli/run/run_display.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "base/file.h"
#include "cli/terminal.h"
#include "io/evaluation_file.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::StatusResponse At(uint64_t step) {
  v1::StatusResponse status;
  status.set_learner_step(step);
  status.set_steps_total(100);
  status.set_phase("waiting for rollouts");
  return status;
}

class RunDisplayTest : public ::testing::Test {
 protected:
  RunDisplay Make(std::optional<size_t> columns, bool resumed = false) {
    return RunDisplay({.run_dir = directory_.path(),
                       .images_per_step = 64,
                       .resumed = resumed,
                       .columns = [columns] { return columns; }},
                      out_);
  }

  void Log(const std::string& lines) {
    auto file = AppendFile::Open(directory_.path() / "metrics.jsonl");
    ASSERT_TRUE(file.ok() && file->Append(lines, false).ok());
  }

  testing::ScopedDirectory directory_;
  std::ostringstream out_;
};

constexpr char kEvaluation[] =
    "{\"step\":10,\"time/wall_s\":12.5,\"eval/reward_mean\":0.943,\"eval/reward_digits_ocr_mean\":"
    "0.943,\"eval/reward_digits_row_mean\":0.5,\"eval/reward_digits_strict_mean\":0.836,"
    "\"eval/speckle_mean\":0.0138}\n";

TEST_F(RunDisplayTest, AnEvaluationStaysAboveTheLineThatIsRewritten) {
  RunDisplay display = Make(80);
  display.Show(absl::Seconds(1), At(9));
  Log("{\"step\":9,\"time/wall_s\":12,\"train/reward_mean\":0.9}\n");
  Log(kEvaluation);
  display.Show(absl::Seconds(2), At(10));
  display.End();
  EXPECT_THAT(out_.str(), HasSubstr("\r\033[Kstep 10     held-out 0.943  digits_strict 0.836  "
                                    "speckle 0.0138  0:13\n"));
  EXPECT_TRUE(out_.str().ends_with("\r\033[K"));
}

// Promise: A first run looks as at real sizes.
TEST_F(RunDisplayTest, ALineThatStandsSaysForHowLongAndInWhichPhase) {
  RunDisplay display = Make(80);
  display.Show(absl::Seconds(1), At(9));
  display.Show(absl::Seconds(2), At(9));
  EXPECT_THAT(out_.str(), Not(HasSubstr("0:01")));
  display.Show(absl::Seconds(27), At(9));
  EXPECT_TRUE(out_.str().ends_with("waiting for rollouts  0:26")) << out_.str();
  display.Show(absl::Seconds(28), At(10));  // From here on the line has a rate and no phase.
  EXPECT_THAT(out_.str(), Not(HasSubstr("0:27")));
  display.Show(absl::Seconds(60), At(10));
  EXPECT_TRUE(out_.str().ends_with("  waiting for rollouts  0:32")) << out_.str();
  const std::string last = out_.str().substr(out_.str().rfind('\r') + 4);
  EXPECT_LT(last.size(), 80);
}

TEST_F(RunDisplayTest, AWaitForRewardsThatStandsIsSaidOnce) {
  RunDisplay display = Make(std::nullopt);
  v1::StatusResponse status = At(9);
  status.set_phase("waiting for rewards");
  v1::WorkerStatus& worker = *status.add_workers();
  worker.set_worker_id("w0");
  worker.set_waiting_for("h:1 refuses");
  for (int second = 1; second <= 12; ++second) display.Show(absl::Seconds(second), status);
  EXPECT_EQ(out_.str(),
            "step 9/100  w0 waits for rewards: h:1 refuses\n"
            "step 9/100  w0 waits for rewards: h:1 refuses  0:10\n");
}

// Promise: A first run looks as at real sizes.
TEST_F(RunDisplayTest, ALearnerThatDoesNotAnswerIsNotSilence) {
  RunDisplay display = Make(80);
  display.ShowSilence(absl::Seconds(1));
  EXPECT_TRUE(out_.str().ends_with("starting: models and rewards are loaded"));
  display.ShowSilence(absl::Seconds(20));
  EXPECT_TRUE(out_.str().ends_with("are loaded  0:19"));
  display.Show(absl::Seconds(21), At(9));
  display.ShowSilence(absl::Seconds(22));  // It was busy once.
  EXPECT_THAT(out_.str(), Not(HasSubstr("waiting for the learner")));
  display.ShowSilence(absl::Seconds(30));
  EXPECT_TRUE(out_.str().ends_with("waiting for the learner"));
}

// A log file, or a job's output: somebody looks whether it hangs.
// Promise: A first run looks as at real sizes.
TEST_F(RunDisplayTest, WithoutATerminalALineEveryTenSecondsSaysWhereItStands) {
  RunDisplay display = Make(std::nullopt);
  for (int second = 1; second <= 12; ++second) display.ShowSilence(absl::Seconds(second));
  for (int second = 13; second <= 34; ++second) display.Show(absl::Seconds(second), At(9));
  for (int second = 35; second <= 46; ++second) display.ShowSilence(absl::Seconds(second));
  EXPECT_EQ(out_.str(),
            "starting: models and rewards are loaded  0:10\n"
            "step 9/100  waiting for rollouts\n"
            "step 9/100  waiting for rollouts  0:10\n"
            "step 9/100  waiting for rollouts  0:20\n"
            "waiting for the learner  0:06\n");
}

TEST_F(RunDisplayTest, AnEvaluationFitsANarrowTerminal) {
  RunDisplay display = Make(60);
  Log(kEvaluation);
  display.End();
  EXPECT_EQ(out_.str(), "step 10     held-out 0.943  digits_strict 0.836  0:13\n");
}

TEST_F(RunDisplayTest, AFailedEvaluationIsALineInItsWords) {
  RunDisplay display = Make(50);
  ASSERT_TRUE(io::WriteEvaluationFailure(
                  directory_.path(), {.step = 10, .reason = "no face", .missed = {"run.stop_if"}})
                  .ok());
  Log("{\"step\":10,\"time/wall_s\":12,\"eval/failed\":1}\n");
  Log("{\"step\":20,\"eval/reward_mean\":0.5,\"eval/samples_unscored\":3}\n");
  display.End();
  EXPECT_EQ(out_.str(),
            "step 10     held-out failed: no face; no number for run.stop_if\n"
            "step 20     held-out 0.500  3 without a score\n");
}

// The learner finishes its step after the last question that it answers.
TEST_F(RunDisplayTest, TheLastStepIsKnownFromWhatTheLearnerLogged) {
  RunDisplay display = Make(80);
  display.Show(absl::Seconds(1), At(5));
  Log("{\"step\":6,\"time/wall_s\":12,\"train/reward_mean\":0.9}\n");
  display.End();
  EXPECT_EQ(display.committed(), 6u);
  RunDisplay resumed = Make(80, /*resumed=*/true);
  resumed.End();
  EXPECT_EQ(resumed.committed(), 0u) << "those lines are of the start before";
}

TEST_F(RunDisplayTest, WordsThatAreNotPlainAreExplainedOnceWhereTheyAppear) {
  RunDisplay display = Make(80);
  display.Show(absl::Seconds(1), At(0));
  EXPECT_THAT(out_.str(), Not(HasSubstr("clip")));
  v1::StatusResponse status = At(1);
  v1::NamedValue& clip = *status.add_metrics();
  clip.set_name("train/clip_frac_total");
  clip.set_value(0.01);
  display.Show(absl::Seconds(2), status);
  display.Show(absl::Seconds(3), status);
  const std::string text = out_.str();
  EXPECT_THAT(text, HasSubstr("\r\033[Kclip: share of probability ratios that the clip cuts\n"));
  EXPECT_EQ(text.find("clip: "), text.rfind("clip: "));
  EXPECT_THAT(text, Not(HasSubstr("head age: ")));
}

TEST_F(RunDisplayTest, ANoticeStaysAndIsShownOnce) {
  RunDisplay display = Make(80);
  v1::StatusResponse status = At(9);
  status.add_notices("reward a gave 17");
  display.Show(absl::Seconds(1), status);
  display.Show(absl::Seconds(2), status);
  const std::string text = out_.str();
  EXPECT_THAT(text, HasSubstr("warning: reward a gave 17\n"));
  EXPECT_EQ(text.find("warning:"), text.rfind("warning:"));
}

TEST_F(RunDisplayTest, WithoutATerminalNothingIsRewritten) {
  RunDisplay display = Make(std::nullopt);
  for (int second = 0; second < 25; ++second) display.Show(absl::Seconds(second), At(second));
  Log(kEvaluation);
  display.End();
  EXPECT_THAT(out_.str(), Not(HasSubstr("\033")));
  EXPECT_THAT(out_.str(), Not(HasSubstr("\r")));
  const std::string text = out_.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3 + 1) << "every 10 s, and the evaluation";
}

TEST_F(RunDisplayTest, AResumedRunSaysWhereItGoesOnAndRepeatsNoEvaluation) {
  Log("{\"step\":0,\"eval/reward_mean\":0.5}\n");
  RunDisplay display = Make(std::nullopt, /*resumed=*/true);
  display.Show(absl::Seconds(1), At(5));
  Log(kEvaluation);
  display.Show(absl::Seconds(2), At(10));
  EXPECT_THAT(out_.str(), ::testing::StartsWith("resumed at step 5 of 100\n"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("step 0 ")));
  EXPECT_THAT(out_.str(), HasSubstr("step 10     held-out 0.943"));
}

// Recorded in a pseudo-terminal: no line is wider than it, whatever its width.
class PseudoTerminalTest : public RunDisplayTest, public ::testing::WithParamInterface<uint16_t> {};

TEST_P(PseudoTerminalTest, NoLineIsWiderThanTheTerminal) {
  winsize size{.ws_row = 24, .ws_col = GetParam(), .ws_xpixel = 0, .ws_ypixel = 0};
  int master = -1, slave = -1;
  ASSERT_EQ(openpty(&master, &slave, nullptr, nullptr, &size), 0);
  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
  EXPECT_EQ(TerminalColumns(slave), GetParam());
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(TerminalColumns(slave));
  setenv("TERM", "xterm", 1);
  RunDisplay display({.run_dir = directory_.path(),
                      .images_per_step = 64,
                      .columns = [slave] { return TerminalColumns(slave); }},
                     out_);
  v1::StatusResponse status = At(37);
  status.mutable_last_failure()->set_count(3);
  status.mutable_last_failure()->set_what("group");
  status.mutable_last_failure()->set_reason(std::string(300, 'x'));
  for (int step = 37; step < 40; ++step) {
    status.set_learner_step(step);
    display.Show(absl::Seconds(step), status);
  }
  std::istringstream lines(out_.str());
  int shown = 0;
  for (std::string line; std::getline(lines, line, '\r');) {
    if (line.empty()) continue;
    EXPECT_LT(line.size() - std::string_view("\033[K").size(), GetParam()) << line;
    EXPECT_THAT(line, HasSubstr("step 3"));
    ++shown;
  }
  EXPECT_EQ(shown, 3);
  close(master);
  close(slave);
}

INSTANTIATE_TEST_SUITE_P(Widths, PseudoTerminalTest, ::testing::Values(20, 60, 80, 200));

TEST(TerminalColumnsTest, AFileHasNone) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_FALSE(TerminalColumns(ends[1]));
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace oxbow::cli
