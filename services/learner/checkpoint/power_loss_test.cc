// SPDX-License-Identifier: Apache-2.0
// The power goes at every change that a history of starts, steps, checkpoints and a rollback makes
// to a run's directory, and the file system keeps what it likes of what was not fsynced. The next
// start finds every acknowledged step in the step log, the newest acknowledged checkpoint or one
// that was being written, and never a part of a file.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/log.h"
#include "services/learner/checkpoint/checkpoint_store.h"
#include "services/learner/record/step_log.h"
#include "tests/testing/power_loss_disk.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::learner {
namespace {

namespace fs = std::filesystem;
using testing::PowerLossDisk;
using testing::ScopedDirectory;
using Left = PowerLossDisk::Left;

std::string WeightsOf(uint64_t steps, uint64_t epoch) {
  return absl::StrCat("weights of ", steps, " steps, start ", epoch, std::string(200, 'w'));
}

absl::Status WriteCheckpoint(const CheckpointStore& store, uint64_t steps, uint64_t epoch) {
  const auto content = [](std::string bytes) -> FileContent {
    return [bytes = std::move(bytes)](const WritePiece& write) {
      const size_t half = bytes.size() / 2;
      const absl::Status status = write(std::string_view(bytes).substr(0, half));
      return status.ok() ? write(std::string_view(bytes).substr(half)) : status;
    };
  };
  return store
      .Write({.committed_steps = steps, .epoch = epoch},
             {{"weights", content(WeightsOf(steps, epoch))}, {"moments", content("m")}})
      .status();
}

// A checkpoint and how many lines the step log had when it was begun.
struct Point {
  uint64_t steps = 0;
  uint64_t epoch = 0;
  size_t lines = 0;
};

// A run as its learner writes it, and what it was told is durable.
class LearnerFiles {
 public:
  LearnerFiles(fs::path directory, uint32_t keep)
      : directory_(std::move(directory)), store_(directory_ / "checkpoints", keep) {}

  void Start() {
    log_.reset();
    ASSERT_TRUE(MakeDirectories(directory_).ok());
    const absl::StatusOr<Epoch> epoch = NextEpoch(directory_ / "epoch");
    ASSERT_TRUE(epoch.ok()) << epoch.status();
    epoch_ = epoch->value;
    absl::StatusOr<StepLog> log = StepLog::Open(directory_ / "steps.jsonl");
    ASSERT_TRUE(log.ok()) << log.status();
    log_ = std::move(*log);
  }

  void Step(uint64_t step) {
    begun_.emplace_back(epoch_, step);
    ASSERT_TRUE(log_->Freeze(Epoch(epoch_), LearnerStep(step), PolicyVersion(step), {}).ok());
    ++frozen_;
  }

  void Checkpoint(uint64_t steps) {
    allowed_.push_back({.steps = steps, .epoch = epoch_, .lines = frozen_});
    const absl::Status status = WriteCheckpoint(store_, steps, epoch_);
    ASSERT_TRUE(status.ok()) << status;
    allowed_ = {allowed_.back()};
    known_.push_back(allowed_.back());
  }

  // While it goes on, each checkpoint since `steps` may be the newest.
  void RollBack(uint64_t steps) {
    Point to;
    for (const Point& point : known_) {
      if (point.steps == steps) to = point;
      if (point.steps >= steps) allowed_.push_back(point);
    }
    ASSERT_TRUE(store_.RollBack(steps).ok());
    allowed_ = {to};
  }

  // Faults that the next start finds in `image`, a copy of the directory after a power loss.
  std::string Faults(const fs::path& image, uint32_t keep) const {
    std::string faults = FaultsOfLog(image) + FaultsOfCheckpoints(image / "checkpoints", keep);
    const absl::StatusOr<Epoch> next = NextEpoch(image / "epoch");
    if (epoch_ > 0 && !(next.ok() && next->value > epoch_)) {
      faults += absl::StrCat("; no start after ", epoch_, ": ", next.status().ToString());
    }
    return faults;
  }

 private:
  std::string FaultsOfLog(const fs::path& image) const {
    if (!fs::exists(image)) return frozen_ == 0 ? "" : "; no directory of the run";
    {
      absl::StatusOr<StepLog> log = StepLog::Open(image / "steps.jsonl");
      if (!log.ok()) return absl::StrCat("; ", log.status().ToString());
      if (!log->Freeze(Epoch(9), LearnerStep(999), PolicyVersion(0), {}).ok()) return "; no line";
    }
    const std::string content = ReadFile(image / "steps.jsonl").value();
    std::vector<std::string> lines = absl::StrSplit(content, '\n');
    lines.pop_back();
    if (lines.size() - 1 < frozen_ || lines.size() - 1 > begun_.size()) {
      return absl::StrCat("; ", lines.size() - 1, " lines of ", frozen_, " in the step log");
    }
    for (size_t i = 0; i < lines.size(); ++i) {
      const auto line = nlohmann::json::parse(lines[i], nullptr, /*allow_exceptions=*/false);
      if (line.is_discarded()) return absl::StrCat("; half a line: ", lines[i]);
      const uint64_t expected = i + 1 < lines.size() ? begun_[i].second : 999;
      if (line["step"] != expected) return absl::StrCat("; another step: ", lines[i]);
    }
    return "";
  }

  std::string FaultsOfCheckpoints(const fs::path& image, uint32_t keep) const {
    const CheckpointStore store(image, keep);
    const absl::StatusOr<learner::Checkpoint> found = store.LoadNewest();
    if (!found.ok() && known_.empty()) return "";
    if (!found.ok()) return absl::StrCat("; ", found.status().ToString());
    const bool is_allowed = std::any_of(allowed_.begin(), allowed_.end(), [&](const Point& point) {
      return point.steps == found->state.committed_steps && point.epoch == found->state.epoch &&
             point.lines <= frozen_;
    });
    std::string faults;
    if (!is_allowed) {
      faults = absl::StrCat("; the checkpoint of step ", found->state.committed_steps, ", start ",
                            found->state.epoch);
    }
    if (ReadFile(found->directory / "weights").value() !=
        WeightsOf(found->state.committed_steps, found->state.epoch)) {
      faults += "; other weights";
    }
    // Files that were left do not hinder the next one.
    if (!WriteCheckpoint(store, 500, 9).ok() || store.LoadNewest()->state.committed_steps != 500) {
      faults += "; no next checkpoint";
    }
    for (const auto& entry : fs::directory_iterator(image)) {
      if (entry.path().extension() == ".tmp") faults += "; litter: " + entry.path().string();
    }
    return faults;
  }

  const fs::path directory_;
  const CheckpointStore store_;
  std::optional<StepLog> log_;
  uint64_t epoch_ = 0;
  size_t frozen_ = 0;                                 // Lines that are durable.
  std::vector<std::pair<uint64_t, uint64_t>> begun_;  // Epoch and step of all lines.
  std::vector<Point> known_;
  std::vector<Point> allowed_;  // The newest checkpoint is one of these.
};

// Two starts. The second writes a checkpoint of a step that has one, and goes back.
void Live(LearnerFiles& run) {
  run.Start();
  for (uint64_t step = 0; step < 6; ++step) {
    run.Step(step);
    if (step % 2 == 1) run.Checkpoint(step + 1);
  }
  run.Start();
  run.Checkpoint(6);
  run.Step(6);
  run.Step(7);
  run.Checkpoint(8);
}

class PowerLossTest : public ::testing::Test {
 protected:
  // The power goes at each change of `live` in every way. Returns how often.
  size_t LoseInEveryWay(uint32_t keep, const std::function<void(LearnerFiles&)>& live) {
    ConfigureLog(LogLevel::kError, LogFormat::kText, "");  // Thousands of skipped checkpoints.
    const fs::path root = directory_.path() / "disk";
    fs::create_directory(root);
    PowerLossDisk disk(root);
    LearnerFiles run(root / "runs/one", keep);
    const fs::path image = directory_.path() / "image";
    size_t losses = 0;
    std::map<std::string, std::string> seen;  // The first loss that leaves each fault.
    disk.OnChange([&] {
      const auto lose = [&](Left left, uint64_t seed) {
        disk.CopyTo(image, left, seed);
        const std::string faults = run.Faults(image / "runs/one", keep);
        if (!faults.empty()) {
          seen.try_emplace(faults, absl::StrCat("loss ", losses, ", left ", static_cast<int>(left),
                                                ", seed ", seed));
        }
        ++losses;
      };
      for (const Left left : {Left::kNothing, Left::kNames, Left::kNamesAndHalf,
                              Left::kNamesAndZeros, Left::kBytes, Left::kAll}) {
        lose(left, 0);
      }
      for (uint64_t i = 0; i < 4; ++i) lose(Left::kAnything, losses + 1);
    });
    live(run);
    for (const auto& [faults, loss] : seen) ADD_FAILURE() << loss << faults;
    return losses;
  }

  const ScopedDirectory directory_{ScopedDirectory::Memory()};
};

// Promise: Resume continues from the checkpoint.
TEST_F(PowerLossTest, TheNextStartFindsAllThatWasAcknowledgedAndNoPart) {
  EXPECT_GT(LoseInEveryWay(4, Live), 1000u);
}

// Promise: Resume continues from the checkpoint.
TEST_F(PowerLossTest, TheOnlyCheckpointIsThereWhileAnotherTakesItsPlace) {
  EXPECT_GT(LoseInEveryWay(1, Live), 1000u);
}

// Promise: Resume continues from the checkpoint.
TEST_F(PowerLossTest, ARollbackHappensOrDoesNot) {
  const auto live = [](LearnerFiles& run) {
    Live(run);
    run.RollBack(4);
    run.Step(4);
    run.Step(5);
    run.Checkpoint(6);
  };
  EXPECT_GT(LoseInEveryWay(4, live), 1000u);
}

}  // namespace
}  // namespace oxbow::learner
