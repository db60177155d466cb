// SPDX-License-Identifier: Apache-2.0
#include "cli/report/run_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "config/run_config.h"
#include "run/run_lock.h"
#include "run/run_record.h"
#include "tests/testing/own_memory.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

using ::testing::HasSubstr;

class RunSummaryTest : public ::testing::Test {
 protected:
  void AddRun(const std::string& name, const std::string& metrics) {
    std::filesystem::create_directories(runs_.path() / name);
    const auto resolved = config::LoadRunConfig("", {"run.name=" + name, "run.steps=20"}, {});
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    ASSERT_TRUE(
        config::WriteResolved(*resolved, runs_.path() / name / "config.resolved.yaml").ok());
    ASSERT_TRUE(WriteFileAtomically(runs_.path() / name / "metrics.jsonl", metrics).ok());
  }

  testing::ScopedDirectory runs_;
};

constexpr char kDone[] =
    "{\"step\":0,\"eval/reward_mean\":0.5}\n{\"step\":10,\"eval/reward_mean\":0.9}\n"
    "{\"step\":20,\"eval/reward_mean\":0.8}\n";

TEST_F(RunSummaryTest, AnEndedRunSaysWhatItReachedAndHowItGoesOn) {
  AddRun("digits", kDone);
  const auto run = SummaryOf(runs_.path() / "digits");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->state(), "done");
  const std::string text = EndedText(*run, runs_.path() / "digits");
  EXPECT_THAT(text, HasSubstr("progress   step 20/20\n"));
  EXPECT_THAT(text, HasSubstr("held-out   0.5 -> 0.8, best 0.9 at step 10\n"));
  EXPECT_THAT(
      text, HasSubstr("oxbow resume " + (runs_.path() / "digits").string() + " --set run.steps=N"));
  EXPECT_THAT(text, HasSubstr("learning "));
}

TEST_F(RunSummaryTest, ARunThatEndedBeforeItsFirstNumberSaysWhenItWasStarted) {
  AddRun("digits", "");
  const auto directory = runs_.path() / "digits";
  std::filesystem::remove(directory / "metrics.jsonl");
  ASSERT_TRUE(run::WriteEnd(directory, {.end = run::RunEnd::kInterrupted}).ok());
  EXPECT_LT(absl::Now() - SummaryOf(directory)->changed, absl::Hours(1));
  EXPECT_THAT(EndedText(*SummaryOf(directory), directory), ::testing::Not(HasSubstr("infinite")));
}

TEST_F(RunSummaryTest, ARunWithoutItsSettingsIsNamedByTheMissingFile) {
  AddRun("digits", kDone);
  const auto file = runs_.path() / "digits/config.resolved.yaml";
  std::filesystem::remove(file);
  EXPECT_THAT(std::string(NoRun(runs_.path() / "digits").message()),
              HasSubstr("the run's settings are missing: " + file.string()));
  EXPECT_THAT(std::string(NoRun(runs_.path() / "absent").message()), HasSubstr("no run there: "));
}

TEST_F(RunSummaryTest, ARunThatWasRolledBackIsAtThatStepAndHasStepsLeft) {
  AddRun("digits", kDone);
  const auto directory = runs_.path() / "digits";
  ASSERT_TRUE(run::WriteEnd(directory, {.end = run::RunEnd::kRolledBack, .step = 10}).ok());
  const std::string text = EndedText(*SummaryOf(directory), directory);
  EXPECT_THAT(text, HasSubstr("(rolled back, "));
  EXPECT_THAT(text, HasSubstr("progress   step 10/20\n"));
  EXPECT_THAT(text, HasSubstr("held-out   0.5 -> 0.9, best 0.9 at step 10\n"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("run.steps=N")));
}

// No evaluation is left that can be compared: none was before that step.
TEST_F(RunSummaryTest, ARunThatWasRolledBackBeforeItsFirstRewardHasNoneToShow) {
  AddRun("digits",
         "{\"step\":10,\"train/reward_mean\":0.5}\n{\"step\":20,\"eval/reward_mean\":0.8}\n");
  const auto directory = runs_.path() / "digits";
  ASSERT_TRUE(run::WriteEnd(directory, {.end = run::RunEnd::kRolledBack, .step = 10}).ok());
  const auto run = SummaryOf(directory);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_FALSE(run->first || run->last || run->best);
  EXPECT_THAT(EndedText(*run, directory), ::testing::Not(HasSubstr("held-out   ")));
}

// Promise: Why a run ended is kept.
TEST_F(RunSummaryTest, ADoneRunWithoutACopyOfItsCheckpointSaysSo) {
  AddRun("digits", kDone);
  const auto directory = runs_.path() / "digits";
  ASSERT_TRUE(run::WriteEnd(directory, {.end = run::RunEnd::kDone, .step = 20}).ok());
  EXPECT_THAT(EndedText(*SummaryOf(directory), directory), ::testing::Not(HasSubstr("ended  ")));
  const run::EndRecord end{.end = run::RunEnd::kDone, .step = 20, .reason = "no copy"};
  ASSERT_TRUE(run::WriteEnd(directory, end).ok());
  EXPECT_THAT(EndedText(*SummaryOf(directory), directory),
              HasSubstr("ended      done at step 20: no copy\n"));
}

TEST_F(RunSummaryTest, ItsFirstStartIsShownAndTheLastResume) {
  AddRun("digits", kDone);
  const auto directory = runs_.path() / "digits";
  for (const char* const command : {"oxbow train a.yaml", "oxbow resume a", "oxbow resume b"}) {
    ASSERT_TRUE(run::AppendStart(directory, {.time = absl::UnixEpoch(), .command = command}).ok());
  }
  const std::string text = EndedText(*SummaryOf(directory), directory);
  EXPECT_THAT(text, HasSubstr("started    oxbow train a.yaml  (1970-01-01 00:00 UTC)\n"
                              "resumed    oxbow resume b  ("));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("oxbow resume a")));
}

TEST_F(RunSummaryTest, GoodHidesNothingThatIsNotKnown) {
  AddRun("digits", kDone);
  const auto run = SummaryOf(runs_.path() / "digits");
  RunSummary some = *run;
  for (io::VerdictLine& line : some.verdict) line.level = io::Level::kGood;
  some.verdict[1].level = io::Level::kUnknown;
  EXPECT_THAT(RunsText({some}, absl::Now()), HasSubstr("good (1 not known)"));
  some.verdict[2].level = some.verdict[3].level = io::Level::kUnknown;
  EXPECT_THAT(RunsText({some}, absl::Now()), HasSubstr("too early to say"));
  some.verdict[4].level = io::Level::kWatch;
  EXPECT_THAT(RunsText({some}, absl::Now()), HasSubstr("watch: limited by"));
}

// As `oxbow status --watch` does, every second.
// Promise: Memory does not grow with a run.
TEST_F(RunSummaryTest, ASecondLookReadsWhatIsNew) {
  std::string lines;
  for (int step = 0; step < 20'000; ++step) {
    lines += io::FormatMetricsLine(step, step, {{"train/reward_mean", 0.5}, {"train/samples", 8}});
  }
  AddRun("long", lines);
  io::RunReading reading(runs_.path() / "long");
  ASSERT_EQ(SummaryOf(runs_.path() / "long", reading)->step, 19'999u);
  auto file = AppendFile::Open(runs_.path() / "long" / "metrics.jsonl");
  ASSERT_TRUE(file->Append(io::FormatMetricsLine(20'000, 1, {{"train/samples", 8}}), false).ok());
  const int64_t before = testing::OwnBytesRead();
  const auto run = SummaryOf(runs_.path() / "long", reading);
  EXPECT_LT(testing::OwnBytesRead() - before, static_cast<int64_t>(lines.size() / 4));
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->step, 20'000u);
  EXPECT_EQ(run->samples, 8.0 * 20'001);
}

TEST_F(RunSummaryTest, AnEndedRunSaysWhatFailedInItAndWhoGotNoNumber) {
  AddRun(
      "digits",
      "{\"step\":0,\"eval/failed\":1}\n"
      "{\"step\":10,\"train/samples\":32,\"train/samples_unscored\":24,\"eval/reward_mean\":0.9}\n"
      "{\"step\":20,\"train/samples\":32,\"train/samples_unscored\":8,\"eval/failed\":1}\n");
  const std::filesystem::path directory = runs_.path() / "digits";
  ASSERT_TRUE(io::WriteEvaluationFailure(
                  directory, {.step = 20, .reason = "no face", .missed = {"run.stop_if"}})
                  .ok());
  ASSERT_TRUE(io::WriteUnscoredReason(directory, "reward server x: no").ok());
  const auto run = SummaryOf(directory);
  ASSERT_TRUE(run.ok()) << run.status();
  const std::string text = EndedText(*run, directory);
  EXPECT_THAT(text, HasSubstr("failed     2 of 3 evaluations failed, the last at step 20: no face; "
                              "no number for run.stop_if\n"));
  EXPECT_THAT(text, HasSubstr("unscored   50 % of the samples (32 of 64) have no score: reward "
                              "server x: no\n"));
}

TEST_F(RunSummaryTest, StatesAreToldApartAndDamageHidesNoOtherRun) {
  AddRun("done", kDone);
  AddRun("stopped", "{\"step\":7,\"train/reward_mean\":0.5}\n");
  AddRun("live", "{\"step\":3}\n");
  AddRun("damaged", "{\"step\":\n{\"step\":1}\n");
  std::filesystem::create_directories(runs_.path() / "no run");
  const auto lock = run::RunLock::Take(runs_.path() / "live", {.program = "a test"});
  const std::string text = RunsText(RunsIn(runs_.path()), absl::Now());
  EXPECT_THAT(text, HasSubstr("done     done           20/20  0.5 -> 0.8"));
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "stopped  stopped         7/20  - .*end unknown; until then "));
  EXPECT_THAT(text, HasSubstr("live     running         3/20  -"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
}

// Promise: Why a run ended is kept.
TEST_F(RunSummaryTest, WhyARunEndedIsSaidFirst) {
  AddRun("full", "{\"step\":7,\"train/reward_mean\":0.5}\n");
  const auto full = runs_.path() / "full";
  ASSERT_TRUE(run::WriteEnd(full, {.end = run::RunEnd::kFailed,
                                   .step = 7,
                                   .exit_code = 5,
                                   .reason = "No space left on device: a (learner ended)"})
                  .ok());
  EXPECT_THAT(RunsText(RunsIn(runs_.path()), absl::Now()),
              ::testing::ContainsRegex("full  failed: disk full .*failed; until then "));
  const std::string text = EndedText(*SummaryOf(full), full);
  EXPECT_THAT(text, HasSubstr("\nended      failed at step 7: No space left on device: a"));
  EXPECT_LT(text.find("ended  "), text.find("progress  "));
  // Room for a record that nobody has filled: the start was killed.
  ASSERT_TRUE(run::ReserveEnd(full).ok());
  EXPECT_EQ(SummaryOf(full)->state(), "stopped");
  std::filesystem::create_directories(full / "logs");
  ASSERT_TRUE(WriteFileAtomically(full / "logs" / "learner.log",
                                  "I 05:14:40.000 learner: a\nI 05:14:41.000 learner: b\n")
                  .ok());
  EXPECT_THAT(EndedText(*SummaryOf(full), full),
              ::testing::AllOf(HasSubstr("nobody wrote why"),
                               HasSubstr("\nlast line  I 05:14:41.000 learner: b (")));
}

TEST_F(RunSummaryTest, ARunThatIsNotThereNamesThoseBesideIt) {
  AddRun("digits", kDone);
  const auto run = SummaryOf(runs_.path() / "nope");
  EXPECT_EQ(run.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(run.status().message()), HasSubstr("nope; runs beside it: digits"));
  for (const char* newer : {"a", "b", "c", "d", "e", "f", "g", "h"}) AddRun(newer, kDone);
  const std::filesystem::path old = runs_.path() / "digits" / "metrics.jsonl";
  std::filesystem::last_write_time(old,
                                   std::filesystem::last_write_time(old) - std::chrono::hours(1));
  EXPECT_THAT(std::string(SummaryOf(runs_.path() / "digitz").status().message()),
              ::testing::AllOf(HasSubstr("digitz; did you mean `digits`?; runs beside it: "),
                               ::testing::Not(HasSubstr(", digits"))));
}

}  // namespace
}  // namespace oxbow::cli
