// SPDX-License-Identifier: Apache-2.0

#include <chrono>
#include <fstream>
#include <map>
#include <string>

#include "base/file.h"
#include "gtest/gtest.h"
#include "io/report/report.h"
#include "tests/testing/made_up_run.h"
#include "tests/testing/own_memory.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;

class RunReadingTest : public ::testing::Test {
 protected:
  RunReadingTest() {
    fs::remove_all(run_dir_);
    fs::create_directories(run_dir_);
  }
  void Append(const std::string& text) {
    auto file = AppendFile::Open(run_dir_ / kMetricsFile);
    ASSERT_TRUE(file.ok() && file->Append(text, false).ok());
  }
  // As if the sheet had been written a while ago.
  void Age(const fs::path& directory) {
    fs::last_write_time(directory, fs::file_time_type::clock::now() - std::chrono::minutes(1));
  }
  std::vector<double> Steps(const RunReading& run) {
    std::vector<double> steps;
    for (const Point& point : run.history().Column("train/loss")) steps.push_back(point.x);
    return steps;
  }

  const fs::path run_dir_ = fs::path(::testing::TempDir()) / "run_reading_test" /
                            ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

std::string Line(int step) { return FormatMetricsLine(step, step, {{"train/loss", 0.5}}); }

// Promise: Watching a run does not slow it.
TEST_F(RunReadingTest, TakesWholeLinesAsTheyAreAppended) {
  RunReading run(run_dir_);
  EXPECT_EQ(run.Update().code(), absl::StatusCode::kNotFound);
  Append(Line(1));
  ASSERT_TRUE(run.Update().ok());
  EXPECT_EQ(Steps(run), std::vector<double>({1}));
  const std::string next = Line(2);
  Append(next.substr(0, 9));
  ASSERT_TRUE(run.Update().ok());
  EXPECT_EQ(Steps(run), std::vector<double>({1}));
  Append(next.substr(9) + Line(3));
  ASSERT_TRUE(run.Update().ok());
  EXPECT_EQ(Steps(run), std::vector<double>({1, 2, 3}));
}

TEST_F(RunReadingTest, AFileThatWasReplacedOrCutIsReadFromItsStart) {
  Append(Line(1) + Line(2) + Line(3));
  RunReading run(run_dir_);
  ASSERT_TRUE(run.Update().ok());
  fs::resize_file(run_dir_ / kMetricsFile, Line(1).size());
  ASSERT_TRUE(run.Update().ok());
  EXPECT_EQ(Steps(run), std::vector<double>({1}));
  // Longer than what was read, and another file.
  ASSERT_TRUE(WriteFileAtomically(run_dir_ / kMetricsFile, Line(7) + Line(8) + Line(9)).ok());
  ASSERT_TRUE(run.Update().ok());
  EXPECT_EQ(Steps(run), std::vector<double>({7, 8, 9}));
}

TEST_F(RunReadingTest, ADamagedLineIsAnErrorUntilItIsMended) {
  Append(Line(1) + "no object\n" + Line(2));
  RunReading run(run_dir_);
  EXPECT_EQ(run.Update().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(run.history().empty());
  ASSERT_TRUE(WriteFileAtomically(run_dir_ / kMetricsFile, Line(1) + Line(2)).ok());
  ASSERT_TRUE(run.Update().ok());
  EXPECT_EQ(Steps(run), std::vector<double>({1, 2}));
}

TEST_F(RunReadingTest, ASheetIsReadOnceAndAgainWhenItsDirectoryChanged) {
  Append(Line(1));
  AddMadeUpSheet(run_dir_, 0, "first", 0.5);
  const fs::path directory = run_dir_ / "samples/step_000000";
  Age(directory);
  RunReading run(run_dir_);
  ASSERT_TRUE(run.Update().ok());
  ASSERT_EQ(run.sheets().at(0).caption, "first");
  // In place, so that the directory does not change: nothing is read.
  std::ofstream(directory / "eval.txt") << "other";
  ASSERT_TRUE(run.Update().ok());
  EXPECT_EQ(run.sheets().at(0).caption, "first");
  ASSERT_TRUE(WriteFileAtomically(directory / "eval.txt", "second").ok());
  ASSERT_TRUE(run.Update().ok());
  EXPECT_EQ(run.sheets().at(0).caption, "second");
  // It was written a moment ago: perhaps it is not whole yet.
  std::ofstream(directory / "eval.txt") << "third";
  ASSERT_TRUE(run.Update().ok());
  EXPECT_EQ(run.sheets().at(0).caption, "third");
}

// The live report of a long run, and what `oxbow status`, `runs` and `doctor` say of it.
// Promise: Memory does not grow with a run. The live report takes what is new of `metrics.jsonl`
// and keeps a bounded history, thinned evenly; `status`, `runs`, `doctor` and the last report read
// the file in pieces. A report of 100,000 steps takes under 16 MiB, and the next one reads what was
// appended.
TEST_F(RunReadingTest, AHundredThousandStepsTakeTheMemoryOfAFewAndAreReadOnce) {
  constexpr int kSteps = 100'000;
  constexpr int64_t kMiB = int64_t{1} << 20;
  {
    std::ofstream file(run_dir_ / kMetricsFile);
    std::map<std::string, double> numbers;
    for (int i = 0; i < 16; ++i) numbers["train/number_" + std::to_string(i)] = i;
    for (int step = 0; step < kSteps; ++step) {
      numbers["train/loss"] = step % 2;
      file << FormatMetricsLine(step, step, numbers);
    }
  }
  const int64_t before = oxbow::testing::ForgetPeakMemory();
  RunReading run(run_dir_);
  ASSERT_TRUE(WriteReport(run_dir_, {.live = true}, run).ok());
  EXPECT_LT(oxbow::testing::OwnMemory("VmHWM") - before, 16 * kMiB);
  const History& history = run.history();
  EXPECT_EQ(history.Count("train/loss"), size_t{kSteps});
  EXPECT_EQ(history.Sum("train/loss"), kSteps / 2);
  EXPECT_EQ(history.First("train/loss")->x, 0);
  EXPECT_EQ(history.last_step(), kSteps - 1);
  EXPECT_EQ(history.Last("train/loss")->y, 1);
  const std::vector<Point> column = history.Column("train/loss");
  EXPECT_LT(column.size(), 2 * History::kPointsMax);
  EXPECT_GE(column.size(), History::kPointsMax);
  EXPECT_NEAR(column[column.size() / 2].x, kSteps / 2, kSteps / 100.0) << "evenly";
  EXPECT_NEAR(history.Weight("train/loss") * static_cast<double>(column.size()), kSteps, 20);

  Append(Line(kSteps));
  const int64_t read = oxbow::testing::OwnBytesRead();
  ASSERT_TRUE(WriteReport(run_dir_, {.live = true}, run).ok());
  EXPECT_LT(oxbow::testing::OwnBytesRead() - read, kMiB)
      << "of a file of " << fs::file_size(run_dir_ / kMetricsFile);
  EXPECT_EQ(run.history().last_step(), kSteps);
}

}  // namespace
}  // namespace oxbow::io
