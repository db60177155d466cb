// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/learning_runs.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "cli/run/child_log.h"
#include "cli/run/child_process.h"
#include "cli/run/progress_line.h"
#include "cli/run/run_display.h"
#include "io/metrics_file.h"
#include "metrics/step_metrics.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kPollMilliseconds = 100;
constexpr absl::Duration kShowEvery = absl::Seconds(1);

struct Training {
  const LearningRun* run = nullptr;
  std::unique_ptr<ChildProcess> process;
};

absl::StatusOr<Training> Start(const LearningRun& run) {
  const fs::path binaries = BinaryDirectory();
  std::vector<std::string> argv = {(binaries / "oxbow").string(), "train", run.file, "--overwrite",
                                   "--no-progress"};
  for (const std::string& set : run.set) {
    argv.emplace_back("--set");
    argv.push_back(set);
  }
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> process,
                         ChildProcess::Start({.spawner = binaries / "oxbow_spawn",
                                              .argv = std::move(argv),
                                              .environment = {},
                                              .log = run.directory.string() + ".log"}));
  return Training{.run = &run, .process = std::move(process)};
}

// Nothing while the run goes on.
std::optional<absl::Status> Ended(Training& training) {
  training.process->TakeLines();
  const std::optional<int> exit = training.process->Exit();
  if (!exit) return std::nullopt;
  if (*exit == kExitOk) return absl::OkStatus();
  const LearningRun& run = *training.run;
  const fs::path log = run.directory.string() + ".log";
  return absl::InternalError(absl::StrCat("run ", run.recipe, ", seed ", run.seed,
                                          ", ended with exit code ", *exit,
                                          "; its log: ", log.string(), "\n", LogTail(log, 5)));
}

// The last step that the run has logged; 0 before the first.
double StepOf(const LearningRun& run) {
  const auto rows = io::ReadMetrics(run.directory / io::kMetricsFile);
  return rows.ok() && !rows->empty() ? rows->back().at(metric::kStep) : 0;
}

// The last line of a terminal: what trains, and how long the rest will take. Nothing elsewhere.
class RunsLine {
 public:
  explicit RunsLine(const Clock& clock) : clock_(clock), start_(clock.Now()) {}
  ~RunsLine() { Clear(); }
  RunsLine(const RunsLine&) = delete;
  RunsLine& operator=(const RunsLine&) = delete;

  void Clear() {
    if (shown_) std::fputs("\r\033[K", stderr);
    shown_ = false;
  }

  void Show(const std::vector<Training>& training, size_t ended, size_t left) {
    const std::optional<size_t> columns = TerminalColumns(STDERR_FILENO);
    const absl::Duration now = clock_.Now();
    if (!columns || now - last_ < kShowEvery) return;
    last_ = now;
    std::string line;
    for (const Training& one : training) {
      absl::StrAppend(&line, line.empty() ? "" : "   ", one.run->recipe, " seed ", one.run->seed,
                      " step ", StepOf(*one.run));
    }
    if (ended > 0) {
      const double each = absl::ToDoubleSeconds(now - start_) / static_cast<double>(ended);
      absl::StrAppend(&line, "   ETA ", ClockText(each * static_cast<double>(left)));
    }
    Clear();
    std::fputs(line.substr(0, *columns - 1).c_str(), stderr);
    shown_ = true;
  }

 private:
  const Clock& clock_;
  const absl::Duration start_;
  absl::Duration last_ = -absl::InfiniteDuration();
  bool shown_ = false;
};

}  // namespace

absl::Status TrainUnfinished(const std::vector<LearningRun>& runs, uint32_t jobs) {
  RunsLine line(Clock::Steady());
  std::vector<Training> training;
  size_t next = 0;
  size_t ended = 0;
  while (next < runs.size() || !training.empty()) {
    while (next < runs.size() && training.size() < jobs) {
      const LearningRun& run = runs[next++];
      OXBOW_ASSIGN_OR_RETURN(const bool finished, IsFinished(run));
      line.Clear();
      std::fprintf(stderr, "%zu/%zu  %s, seed %u%s\n", next, runs.size(), run.recipe.c_str(),
                   run.seed, finished ? ": is there" : "");
      if (finished) continue;
      OXBOW_ASSIGN_OR_RETURN(Training started, Start(run));
      training.push_back(std::move(started));
    }
    for (size_t i = 0; i < training.size();) {
      const std::optional<absl::Status> status = Ended(training[i]);
      if (!status) {
        ++i;
        continue;
      }
      OXBOW_RETURN_IF_ERROR(*status);
      training.erase(training.begin() + static_cast<ptrdiff_t>(i));
      ++ended;
    }
    line.Show(training, ended, runs.size() - next + training.size());
    ::poll(nullptr, 0, kPollMilliseconds);
  }
  return absl::OkStatus();
}

}  // namespace oxbow::cli
