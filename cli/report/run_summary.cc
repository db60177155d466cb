// SPDX-License-Identifier: Apache-2.0
#include "cli/report/run_summary.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/first_part.h"
#include "base/nearest_name.h"
#include "cli/commands.h"
#include "cli/run/child_process.h"
#include "cli/run_option.h"
#include "cli/terminal.h"
#include "io/report/svg_chart.h"
#include "metrics/step_metrics.h"
#include "run/run_lock.h"

namespace oxbow::cli {

namespace {

namespace fs = std::filesystem;

constexpr size_t kNamesShown = 8;
constexpr size_t kLineShown = 160;  // Bytes of a line of a log.

bool IsRun(const fs::path& directory) {
  std::error_code ignored;
  return fs::exists(directory / "config.resolved.yaml", ignored) ||
         fs::exists(directory / io::kMetricsFile, ignored);
}

absl::Time ChangedAt(const fs::path& run_dir) {
  std::error_code error;
  auto when = fs::last_write_time(run_dir / io::kMetricsFile, error);
  if (error) when = fs::last_write_time(run_dir / "config.resolved.yaml", error);
  if (error) return absl::InfinitePast();
  return absl::FromChrono(std::chrono::file_clock::to_sys(when));
}

}  // namespace

absl::Status NoRun(const fs::path& run_dir) {
  const fs::path whole = run_dir.has_filename() ? run_dir : run_dir.parent_path();
  std::error_code ignored;
  if (IsRun(run_dir) || fs::exists(run_dir / "checkpoints", ignored)) {
    return absl::NotFoundError(absl::StrCat(
        "the run's settings are missing: ", (run_dir / "config.resolved.yaml").string(),
        "; put the file back, or go on with `oxbow train RUN.yaml --resume`"));
  }
  // A name alone was looked for in runs, too.
  const bool name = !whole.has_parent_path() && fs::is_directory("runs", ignored);
  std::vector<std::string> names;
  for (const RunSummary& run : RunsIn(name ? "runs" : whole.parent_path())) {
    names.push_back(run.name);
  }
  const std::string nearest = NearestName(whole.filename().string(), names);
  if (names.size() > kNamesShown) names.resize(kNamesShown);
  return absl::NotFoundError(absl::StrCat(
      "no run there: ", run_dir.string(),
      nearest.empty() ? "" : absl::StrCat("; did you mean `", nearest, "`?"),
      names.empty() ? ""
                    : absl::StrCat(name ? "; there are in runs: " : "; runs beside it: ",
                                   absl::StrJoin(names, ", "))));
}

absl::Status FindRun(const fs::path& run_dir) {
  std::error_code ignored;
  return fs::is_directory(run_dir, ignored) ? absl::OkStatus() : NoRun(run_dir);
}

namespace {

std::string AgeText(absl::Duration age) {
  if (age > absl::Hours(24 * 3650)) return "-";
  if (age < absl::Minutes(1)) return absl::StrFormat("%.0f s", absl::ToDoubleSeconds(age));
  if (age < absl::Hours(1)) return absl::StrFormat("%.0f min", absl::ToDoubleMinutes(age));
  if (age < absl::Hours(48)) return absl::StrFormat("%.0f h", absl::ToDoubleHours(age));
  return absl::StrFormat("%.0f days", absl::ToDoubleHours(age) / 24);
}

// The topics that are bad, or else to be watched; how many are not known where the others are good.
// A few that are good say nothing of a run where most are open.
std::string Worst(const io::Verdict& verdict) {
  io::Level worst = io::Level::kUnknown;
  for (const io::VerdictLine& line : verdict) worst = std::max(worst, line.level);
  const auto unknown = std::ranges::count(verdict, io::Level::kUnknown, &io::VerdictLine::level);
  if (worst <= io::Level::kGood) {
    if (2 * static_cast<size_t>(unknown) > verdict.size()) return "too early to say";
    return absl::StrCat(io::LevelWord(worst), worst < io::Level::kGood || unknown == 0
                                                  ? ""
                                                  : absl::StrCat(" (", unknown, " not known)"));
  }
  std::vector<std::string> topics;
  for (const io::VerdictLine& line : verdict) {
    if (line.level == worst) topics.push_back(line.topic);
  }
  return absl::StrCat(io::LevelWord(worst), ": ", absl::StrJoin(topics, ", "));
}

// How it learned is half of the truth where a run did not come to its end.
std::string WordsOn(const RunSummary& run) {
  const std::string end = run.EndsBadly();
  return absl::StrCat(end, end.empty() ? "" : "; until then ", Worst(run.verdict));
}

}  // namespace

std::string RunSummary::state() const {
  if (live) return "running";
  const bool complete = steps_total > 0 && step >= steps_total;
  // A run that was done has more to do after a rollback.
  const bool told = ended && ended->end != run::RunEnd::kDone && ended->end != run::RunEnd::kUnsaid;
  if (told) return run::WordOf(ended->end);
  return complete ? "done" : "stopped";
}

std::string RunSummary::EndsBadly() const {
  const std::string now = state();
  if (now == run::WordOf(run::RunEnd::kFailed)) return now;
  return now == run::WordOf(run::RunEnd::kUnsaid) ? "end unknown" : "";
}

std::string RunSummary::StateAndCause() const {
  const bool failed = ended && ended->end == run::RunEnd::kFailed;
  return live || !failed ? state() : absl::StrCat(state(), ": ", run::CauseOf(*ended));
}

absl::StatusOr<RunSummary> SummaryOf(const fs::path& run_dir) {
  io::RunReading reading(run_dir);
  return SummaryOf(run_dir, reading);
}

absl::StatusOr<RunSummary> SummaryOf(const fs::path& run_dir, io::RunReading& reading) {
  if (!IsRun(run_dir)) return NoRun(run_dir);
  const absl::Status read = reading.UpdateHistory();
  if (!read.ok() && !absl::IsNotFound(read)) return read;
  const io::History& history = reading.history();
  const bool live = run::IsLive(run_dir);
  const io::RunFacts facts = learner::FactsOfRun(run_dir, live);
  io::History rest;
  const io::History& comparable = io::Comparable(history, facts, rest);
  RunSummary run{.name = facts.name,
                 .live = live,
                 .step = static_cast<uint64_t>(history.last_step()),
                 .steps_total = facts.steps_total,
                 .reward_name = facts.reward_name,
                 .best_checkpoint = learner::BestCheckpointOf(run_dir),
                 .changed = ChangedAt(run_dir),
                 .verdict = io::VerdictOf(history, facts)};
  if (!live) run.ended = run::ReadEnd(run_dir);
  const bool rolled_back = run.ended && run.ended->end == run::RunEnd::kRolledBack;
  if (rolled_back) run.step = run.ended->step;
  run.evaluations_failed = history.Count(metric::kEvalFailed);
  run.evaluations = run.evaluations_failed + history.Count(metric::kEvalRewardMean);
  run.evaluation_failure = io::LastEvaluationFailure(run_dir);
  run.samples = history.Sum(metric::kTrainSamples);
  run.samples_unscored = history.Sum(metric::kTrainSamplesUnscored);
  run.unscored_reason = facts.unscored_reason;
  for (const io::Point& point : comparable.Column(metric::kEvalRewardMean)) {
    if (!std::isfinite(point.y)) continue;
    if (rolled_back && point.x > static_cast<double>(run.step)) break;
    if (!run.first) run.first = point;
    run.last = point;
    if (!run.best || point.y > run.best->y) run.best = point;
  }
  return run;
}

std::vector<RunSummary> RunsIn(const fs::path& directory) {
  std::vector<RunSummary> runs;
  std::error_code error;
  fs::directory_iterator entries(directory.empty() ? "." : directory, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    if (!IsRun(entries->path())) continue;
    if (auto run = SummaryOf(entries->path()); run.ok()) runs.push_back(*std::move(run));
  }
  std::sort(runs.begin(), runs.end(), [](const RunSummary& a, const RunSummary& b) {
    return a.changed != b.changed ? a.changed > b.changed : a.name < b.name;
  });
  return runs;
}

std::string FailedText(const RunSummary& run) {
  if (run.evaluations_failed == 0) return "";
  const auto& last = run.evaluation_failure;
  return absl::StrCat(
      run.evaluations_failed, " of ", run.evaluations, " evaluations failed",
      last ? absl::StrCat(", the last at step ", last->step, ": ", io::FailureText(*last)) : "");
}

std::string UnscoredText(const RunSummary& run) {
  if (run.samples_unscored == 0) return "";
  return absl::StrCat(
      absl::StrFormat("%.3g %% of the samples (%.0f of %.0f) have no score",
                      100 * run.samples_unscored / run.samples, run.samples_unscored, run.samples),
      run.unscored_reason.empty() ? "" : ": ", run.unscored_reason);
}

namespace {

// Where nobody wrote why a run ended, its learner's last line says when that was, and in what.
std::string LastLine(const RunSummary& run, const fs::path& run_dir) {
  if (!run.ended || run.ended->end != run::RunEnd::kUnsaid) return "";
  const fs::path log = run_dir / "logs" / "learner.log";
  const std::string line = LogTail(log, 1);
  if (line.empty()) return "";
  return absl::StrCat(FirstPart(line, kLineShown), " (", log.string(), ")");
}

}  // namespace

std::string EndedText(const RunSummary& run, const fs::path& run_dir) {
  const auto at = [](absl::Time time) {
    return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone());
  };
  const bool says_end = run.ended && (run.state() != "done" || !run.ended->reason.empty());
  std::string text = absl::StrCat(
      LabelledLine("run", absl::StrCat(run.name, "  (", run.state(), ", ", at(run.changed), ")")),
      LabelledLine("ended", says_end ? run::EndText(*run.ended) : ""),
      LabelledLine("last line", LastLine(run, run_dir)),
      LabelledLine("progress",
                   absl::StrCat("step ", run.step,
                                run.steps_total > 0 ? absl::StrCat("/", run.steps_total) : "")));
  if (run.last) {
    text += LabelledLine(
        "held-out",
        absl::StrCat(io::Number(run.first->y), " -> ", io::Number(run.last->y), ", best ",
                     io::Number(run.best->y), " at step ", static_cast<uint64_t>(run.best->x)));
  }
  absl::StrAppend(&text, LabelledLine("failed", FailedText(run)),
                  LabelledLine("unscored", UnscoredText(run)));
  if (run.best_checkpoint) {
    text +=
        LabelledLine("best", absl::StrFormat("checkpoint of step %d, %s %.4g (--checkpoint best)",
                                             run.best_checkpoint->step, run.best_checkpoint->metric,
                                             run.best_checkpoint->value));
  }
  absl::StrAppend(&text, "\n", io::VerdictText(run.verdict), "\n");
  std::error_code ignored;
  const fs::path report = run_dir / "report.html";
  if (fs::exists(report, ignored)) text += LabelledLine("report", report.string());
  const std::vector<run::StartRecord> starts = run::ReadStarts(run_dir);
  const auto say = [&](const char* label, const run::StartRecord& start) {
    text += LabelledLine(label, absl::StrCat(start.command, "  (", at(start.time), ")"));
  };
  if (!starts.empty()) say("started", starts.front());
  if (starts.size() > 1) say("resumed", starts.back());
  const std::string command =
      run::CommandToGoOn(starts.empty() ? "" : starts.back().command, run_dir);
  return text + LabelledLine(
                    "go on",
                    absl::StrCat(command, run.step >= run.steps_total ? " --set run.steps=N" : ""));
}

std::string RunsText(const std::vector<RunSummary>& runs, absl::Time now) {
  size_t name_width = 4, state_width = 8;
  for (const RunSummary& run : runs) {
    name_width = std::max(name_width, run.name.size());
    state_width = std::max(state_width, run.StateAndCause().size());
  }
  const int name = static_cast<int>(name_width), state = static_cast<int>(state_width);
  std::string text = absl::StrFormat("%-*s  %-*s %11s  %-16s %-13s %8s  %s\n", name, "run", state,
                                     "state", "step", "held-out", "best", "age", "verdict");
  for (const RunSummary& run : runs) {
    const std::string reward =
        run.last ? absl::StrCat(io::Number(run.first->y), " -> ", io::Number(run.last->y)) : "-";
    const std::string best =
        run.best_checkpoint
            ? absl::StrFormat("%.3f @%d", run.best_checkpoint->value, run.best_checkpoint->step)
            : "-";
    absl::StrAppendFormat(&text, "%-*s  %-*s %11s  %-16s %-13s %8s  %s\n", name, run.name, state,
                          run.StateAndCause(), absl::StrCat(run.step, "/", run.steps_total), reward,
                          best, AgeText(now - run.changed), WordsOn(run));
  }
  return text;
}

void AddRuns(CLI::App& app, int& exit_code) {
  CLI::App* const command =
      app.add_subcommand("runs", "List runs: state, held-out reward, age, verdict");
  command->footer("Example: oxbow runs\nThe run that logged a step last comes first.");
  const auto directory = std::make_shared<std::string>("runs");
  command->add_option("DIR", *directory, "directory of runs")->capture_default_str();
  command->callback([directory, &exit_code] {
    if (!std::filesystem::is_directory(*directory)) {
      std::cerr << "oxbow runs: no such directory: " << *directory << "\n";
      exit_code = kExitUsage;
      return;
    }
    const std::vector<RunSummary> runs = RunsIn(*directory);
    if (runs.empty()) std::cerr << "oxbow runs: no run in " << *directory << "\n";
    if (!runs.empty()) std::cout << RunsText(runs, absl::Now());
    exit_code = kExitOk;
  });
}

void AddReport(CLI::App& app, int& exit_code) {
  CLI::App* const command =
      app.add_subcommand("report", "Write report.html of a run, finished or in progress");
  command->footer("Example: oxbow report runs/digits");
  // Shared: the callback lives in the App and outlives this call.
  const auto run_dir = std::make_shared<std::string>();
  AddRunDirectory(*command, *run_dir, "directory of the run, with metrics.jsonl in it")->required();
  command->callback([run_dir, &exit_code] {
    absl::Status status = FindRun(*run_dir);
    if (status.ok()) {
      status = io::WriteReport(*run_dir, learner::FactsOfRun(*run_dir, run::IsLive(*run_dir)));
    }
    exit_code = Ended("report", status);
    if (status.ok()) std::cout << (fs::path(*run_dir) / "report.html").string() << "\n";
  });
}

}  // namespace oxbow::cli
