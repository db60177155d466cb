// SPDX-License-Identifier: Apache-2.0
#include "telemetry/run_log.h"

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>

#include "gtest/gtest.h"
#include "io/image.h"
#include "io/tensorboard/event_writer.h"
#include "tests/testing/photo_like.h"

namespace oxbow::telemetry {
namespace {

// The payloads of the records of an event file (io/tensorboard/event_writer.h).
std::vector<std::string> RecordsIn(const std::string& file) {
  std::vector<std::string> payloads;
  size_t at = 0;
  while (at + 16 <= file.size()) {
    uint64_t length = 0;
    std::memcpy(&length, file.data() + at, sizeof length);
    payloads.push_back(file.substr(at + 12, length));
    EXPECT_EQ(io::FrameRecord(payloads.back()), file.substr(at, 16 + length));
    at += 16 + length;
  }
  EXPECT_EQ(at, file.size());
  return payloads;
}

// No file grows beyond `bytes` while it lives, as on a full disk.
class NoRoomBeyond {
 public:
  explicit NoRoomBeyond(uintmax_t bytes) : before_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &unlimited_);
    const rlimit full{.rlim_cur = bytes, .rlim_max = unlimited_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &full);
  }
  ~NoRoomBeyond() {
    ::setrlimit(RLIMIT_FSIZE, &unlimited_);
    std::signal(SIGXFSZ, before_);
  }

 private:
  rlimit unlimited_{};
  void (*const before_)(int);
};

class RunLogTest : public ::testing::Test {
 protected:
  RunLogTest() { std::filesystem::remove_all(run_dir_); }

  std::unique_ptr<RunLog> Open(std::optional<int64_t> resume_after_step = std::nullopt) {
    auto log = RunLog::Open(run_dir_, resume_after_step, [] { return 1700000000.5; });
    EXPECT_TRUE(log.ok()) << log.status();
    return *std::move(log);
  }

  std::string Metrics() const { return *ReadFile(run_dir_ / "metrics.jsonl"); }

  // The records of each start's event file.
  std::vector<std::vector<std::string>> Events() const {
    std::vector<std::vector<std::string>> files;
    for (const auto& entry : std::filesystem::directory_iterator(run_dir_)) {
      if (!entry.path().filename().string().starts_with("events.out.tfevents.")) continue;
      files.push_back(RecordsIn(*ReadFile(entry.path())));
    }
    return files;
  }

  const std::filesystem::path run_dir_ =
      std::filesystem::path(::testing::TempDir()) / "run_log_test" /
      ::testing::UnitTest::GetInstance()->current_test_info()->name();
  const Image8 sheet_{2, 1, 1, {0, 255}};
};

TEST_F(RunLogTest, EveryStepIsReadableAsSoonAsItIsLogged) {
  const auto log = Open();
  ASSERT_TRUE(log->Step(1, 0.5, {{"train/loss", 0.25}, {"train/kl_div", std::nan("")}}).ok());
  const auto lines = ReadMetrics(run_dir_ / "metrics.jsonl");
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ(lines->size(), 1u);
  EXPECT_EQ(lines->front().at("step"), 1);
  EXPECT_EQ(lines->front().at("time/wall_s"), 0.5);
  EXPECT_EQ(lines->front().at("train/loss"), 0.25);
  EXPECT_TRUE(std::isnan(lines->front().at("train/kl_div")));
}

// Promise: Any process draws an evaluation with the same bytes.
TEST_F(RunLogTest, NumbersThatComeLaterAreOnTheLineOfTheirStepAlone) {
  const auto log = Open();
  std::vector<std::string> lines;
  for (const int step : {3, 4, 6}) {
    ASSERT_TRUE(log->Step(step, step / 2.0, {{"train/loss", 1.0 / step}}).ok());
    lines.push_back(io::FormatMetricsLine(step, step / 2.0, {{"train/loss", 1.0 / step}}));
  }
  ASSERT_TRUE(log->AddToStep(4, {{"eval/reward_mean", 0.1}, {"train/loss", 2}}).ok());
  const std::string four =
      io::FormatMetricsLine(4, 2, {{"eval/reward_mean", 0.1}, {"train/loss", 2}});
  EXPECT_EQ(Metrics(), lines[0] + four + lines[2]) << "once, with the newer numbers";

  ASSERT_TRUE(log->AddToStep(5, {{"eval/reward_mean", 0.2}}).ok());
  const std::string five = io::FormatMetricsLine(5, 2, {{"eval/reward_mean", 0.2}});
  ASSERT_TRUE(log->Step(7, 3.5, {}).ok());
  EXPECT_EQ(Metrics(), lines[0] + four + five + lines[2] + io::FormatMetricsLine(7, 3.5, {}))
      << "a line that was lost";
}

// Promise: A disk that fails for a while ends no run.
TEST_F(RunLogTest, ADiskThatIsFullForAWhileCostsNoLineAndNoEvent) {
  const auto log = Open();
  ASSERT_TRUE(log->Text(0, "config", std::string(4000, 'c')).ok());
  ASSERT_TRUE(log->Step(1, 0.5, {{"train/loss", 1}}).ok());
  const std::map<std::string, double> later = {{"eval/reward_mean", 0.1}};
  {
    const NoRoomBeyond none(0);
    EXPECT_FALSE(log->Step(2, 1, {{"train/loss", 2}}).ok());
    EXPECT_FALSE(log->AddToStep(1, later).ok());
  }
  ASSERT_TRUE(log->AddToStep(1, later).ok());
  const std::string one =
      io::FormatMetricsLine(1, 0.5, {{"train/loss", 1}, {"eval/reward_mean", 0.1}});
  EXPECT_EQ(Metrics(), one);
  ASSERT_EQ(Events().front().size(), 4u) << "the version, the config, the step, the evaluation";
  {
    const NoRoomBeyond none(4000);  // The lines fit, TensorBoard's file does not.
    EXPECT_TRUE(log->Step(2, 1, {{"train/loss", 2}}).ok());
  }
  EXPECT_EQ(Events().front().size(), 4u);
  ASSERT_TRUE(log->Step(3, 1.5, {}).ok());
  EXPECT_EQ(Metrics(), one + io::FormatMetricsLine(2, 1, {{"train/loss", 2}}) +
                           io::FormatMetricsLine(3, 1.5, {}));
  EXPECT_EQ(Events().front().size(), 6u);
}

TEST_F(RunLogTest, NumbersThatComeLaterHaveALineInAnEmptyLog) {
  ASSERT_TRUE(Open()->AddToStep(2, {{"eval/reward_mean", 0.2}}).ok());
  EXPECT_EQ(Metrics(), io::FormatMetricsLine(2, 0, {{"eval/reward_mean", 0.2}}));
}

TEST_F(RunLogTest, SheetsLieUnderTheirStepWithACaption) {
  ASSERT_TRUE(Open()->Images(10, "eval", "64 held-out prompts", {{sheet_}}).ok());
  const auto directory = run_dir_ / "samples" / "step_000010";
  EXPECT_EQ(*ReadFile(directory / "eval.txt"), "64 held-out prompts");
  const auto image = io::DecodePng(*ReadFile(directory / "eval.png"));
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(*image, sheet_);
}

// 64 pictures of 512 px, which a page, a tracker and a person can open one by one.
TEST_F(RunLogTest, AnEvaluationOfARealSizeIsFilesOfItsPicturesAndTakesLessThanTwelveMegabytes) {
  constexpr size_t kCount = 64;
  std::vector<io::FilmCell> cells;
  std::vector<io::PictureFile> files;
  std::vector<io::EvaluatedPicture> pictures(kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    cells.push_back({.frames = {oxbow::testing::PhotoLike(512, 512, i % 4)}, .label = "000"});
    files.push_back(io::PictureFileOf(i, kCount, cells.back().frames));
    pictures[i] = {.prompt = "a photograph", .picture = files.back().name, .width = 512};
  }
  ASSERT_TRUE(
      Open()->Evaluation(20, "", io::FilmGrid(cells, {}, int64_t{1} << 21), pictures, files).ok());
  const auto directory = run_dir_ / "samples" / "step_000020";
  const auto read = io::ReadEvaluation(directory / "eval.jsonl");
  ASSERT_TRUE(read.ok()) << read.status();
  for (const io::EvaluatedPicture& picture : *read) {
    EXPECT_TRUE(io::DecodeJpeg(*ReadFile(directory / picture.picture)).ok()) << picture.picture;
  }
  uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run_dir_)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  EXPECT_LT(bytes, 12'000'000u);
  EXPECT_NE(Events().at(0).at(1).find("\xff\xd8\xff"), std::string::npos) << "the sheet, as a JPEG";
}

TEST_F(RunLogTest, APictureThatCannotBeWrittenIsAnErrorThatNamesIt) {
  const auto log = Open();
  std::filesystem::create_directories(run_dir_ / "samples/step_000004/001.png");
  const absl::Status status =
      log->Evaluation(4, "", {{sheet_}}, std::vector<io::EvaluatedPicture>(2),
                      std::vector<io::PictureFile>{{"000.png", "x"}, {"001.png", "x"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_NE(status.message().find("step_000004/001.png"), std::string::npos) << status;
  EXPECT_FALSE(std::filesystem::exists(run_dir_ / "samples/step_000004/eval.png"));
}

TEST_F(RunLogTest, ATextIsReadBackFromTheEvents) {
  const std::string page = "```yaml\nrun:\n  name: digits\n```\n";
  const auto log = Open();
  ASSERT_TRUE(log->Text(7, "config", page).ok());
  EXPECT_TRUE(Events().empty()) << "a start without a number leaves no file";
  ASSERT_TRUE(log->Step(7, 1, {{"train/loss", 0.5}}).ok());
  const auto files = Events();
  ASSERT_EQ(files.size(), 1u);
  ASSERT_EQ(files[0].size(), 3u) << "the version, the text and the numbers";
  EXPECT_NE(files[0][1].find(page), std::string::npos);
  EXPECT_NE(files[0][1].find("config"), std::string::npos);
}

TEST_F(RunLogTest, AResumedRunLeavesTheFileOfOneThatNeverStopped) {
  const auto log_steps = [&](RunLog& log, int first, int last) {
    for (int step = first; step <= last; ++step) {
      ASSERT_TRUE(log.Step(step, step * 0.25, {{"train/loss", 1.0 / step}}).ok());
    }
  };
  log_steps(*Open(), 1, 10);
  const std::string uninterrupted = Metrics();

  {
    const auto log = Open();
    log_steps(*log, 1, 8);
    ASSERT_TRUE(log->Images(4, "eval", "", {{sheet_}}).ok());
    ASSERT_TRUE(log->Images(8, "eval", "", {{sheet_}}).ok());
  }
  ASSERT_TRUE(AppendFile::Open(run_dir_ / "metrics.jsonl")->Append("{\"step\":9,\"tr", false).ok());
  const auto log = Open(5);
  EXPECT_EQ(log->resumed_wall_seconds(), 1.25);
  EXPECT_TRUE(std::filesystem::exists(io::SampleDirectory(run_dir_, 4)));
  EXPECT_FALSE(std::filesystem::exists(io::SampleDirectory(run_dir_, 8)));
  log_steps(*log, 6, 10);
  EXPECT_EQ(Metrics(), uninterrupted);
  EXPECT_EQ(Events().size(), 2u) << "of the start that it goes on from, and its own";
}

// Before the last lines lies a hole of 5 GiB, which cannot be read in a moment, nor held.
// A directory that was moved away can be moved back to a free place.
TEST_F(RunLogTest, NothingMakesADirectoryThatIsGone) {
  const auto log = Open();
  std::filesystem::remove_all(run_dir_);
  EXPECT_EQ(log->Images(1, "eval", "", {{sheet_}}).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(log->EvaluationFailed({.step = 1, .reason = "no"}).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(run_dir_));
}

// Promise: Memory is bounded.
TEST_F(RunLogTest, ResumingReadsNoMoreThanTheStepsThatItDrops) {
  { Open(); }
  const auto path = run_dir_ / "metrics.jsonl";
  const uint64_t hole = uint64_t{5} << 30;
  std::filesystem::resize_file(path, hole);
  const std::string kept = "\n{\"step\":7,\"time/wall_s\":3}\n";
  const std::string dropped = "{\"step\":8,\"time/wall_s\":4}\n";
  ASSERT_TRUE(AppendFile::Open(path)->Append(kept + dropped, false).ok());
  EXPECT_EQ(Open(7)->resumed_wall_seconds(), 3);
  EXPECT_EQ(std::filesystem::file_size(path), hole + kept.size());
}

TEST_F(RunLogTest, ResumingWithDamagedMetricsNamesTheFileAndLeavesItAlone) {
  { Open(); }
  const auto path = run_dir_ / "metrics.jsonl";
  const std::string damaged = "{\"step\":1}\ngarbage\n{\"step\":2}\n";
  ASSERT_TRUE(WriteFileAtomically(path, damaged).ok());
  const auto log = RunLog::Open(run_dir_, 1);
  EXPECT_EQ(log.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(log.status().message().find("metrics.jsonl"), std::string::npos) << log.status();
  EXPECT_EQ(Metrics(), damaged);
}

}  // namespace
}  // namespace oxbow::telemetry
