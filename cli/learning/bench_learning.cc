// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/learning/learning_plan.h"
#include "cli/learning/learning_table.h"
#include "cli/learning/learning_tuning.h"
#include "cli/run/child_process.h"
#include "io/metrics_file.h"
#include "io/report/html.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kPollMilliseconds = 100;

struct Flags {
  std::string plan;
  std::string out;
  uint32_t seeds = 0;  // 0: as in the plan.
  double level = 0;    // 0: as in the plan.
  bool table_only = false;
};

// Trains one run from the start. kInternal if it fails; the message names its log.
absl::Status Train(const LearningRun& run) {
  const fs::path binaries = BinaryDirectory();
  std::vector<std::string> argv = {(binaries / "oxbow").string(), "train", run.file, "--overwrite",
                                   "--no-progress"};
  for (const std::string& set : run.set) {
    argv.emplace_back("--set");
    argv.push_back(set);
  }
  const fs::path log = run.directory.string() + ".log";
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<ChildProcess> child,
                         ChildProcess::Start({.spawner = binaries / "oxbow_spawn",
                                              .argv = std::move(argv),
                                              .environment = {},
                                              .log = log}));
  std::optional<int> exit;
  while (!(exit = child->Exit())) {
    child->TakeLines();
    ::poll(nullptr, 0, kPollMilliseconds);
  }
  if (*exit == kExitOk) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("run ", run.recipe, ", seed ", run.seed,
                                          ", ended with exit code ", *exit,
                                          "; its log: ", log.string(), "\n", LogTail(log, 5)));
}

// The first error in any run's config, before an hour was spent on the others.
absl::Status Check(const std::vector<LearningRun>& runs) {
  for (const LearningRun& run : runs) {
    const absl::Status status = IsFinished(run).status();
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat("recipe ", run.recipe, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status TrainUnfinished(const std::vector<LearningRun>& runs) {
  size_t number = 0;
  for (const LearningRun& run : runs) {
    ++number;
    OXBOW_ASSIGN_OR_RETURN(const bool finished, IsFinished(run));
    std::fprintf(stderr, "%zu/%zu  %s, seed %u%s\n", number, runs.size(), run.recipe.c_str(),
                 run.seed, finished ? ": is there" : "");
    if (!finished) OXBOW_RETURN_IF_ERROR(Train(run));
  }
  return absl::OkStatus();
}

// The comparison of the runs that have finished so far.
absl::StatusOr<Comparison> Compare(const v1::LearningBench& bench,
                                   const std::vector<LearningRun>& runs) {
  Comparison comparison{.name = bench.name(),
                        .baseline = bench.baseline(),
                        .level = bench.level(),
                        .recipes = {},
                        .levels = {bench.levels().begin(), bench.levels().end()}};
  for (const v1::BenchedRecipe& recipe : bench.recipes()) {
    RecipeCurves curves{.name = recipe.name(), .note = recipe.note(), .curves = {}, .seeds = {}};
    for (const LearningRun& run : runs) {
      if (run.recipe != recipe.name()) continue;
      OXBOW_ASSIGN_OR_RETURN(const bool finished, IsFinished(run));
      if (!finished) continue;
      OXBOW_ASSIGN_OR_RETURN(const auto rows, io::ReadMetrics(run.directory / io::kMetricsFile));
      curves.curves.push_back(io::CurveOf(rows));
      curves.seeds.push_back(run.seed);
    }
    comparison.recipes.push_back(std::move(curves));
  }
  return comparison;
}

// What the tuning runs that have finished so far say.
absl::StatusOr<std::vector<RateScore>> Scores(const std::vector<LearningRun>& runs) {
  std::map<std::pair<std::string, double>, std::vector<double>> scores;
  for (const LearningRun& run : runs) {
    std::vector<double>& of = scores[{run.recipe, run.rate}];
    OXBOW_ASSIGN_OR_RETURN(const bool finished, IsFinished(run));
    if (!finished) continue;
    OXBOW_ASSIGN_OR_RETURN(const auto rows, io::ReadMetrics(run.directory / io::kMetricsFile));
    of.push_back(io::MeanReward(io::CurveOf(rows)));
  }
  std::vector<RateScore> list;
  for (const auto& [key, of] : scores) {
    list.push_back({.recipe = key.first, .rate = key.second, .scores = of});
  }
  return list;
}

absl::Status Bench(const Flags& flags) {
  OXBOW_ASSIGN_OR_RETURN(v1::LearningBench bench, ReadLearningBench(flags.plan));
  if (flags.seeds > 0) bench.set_seeds(flags.seeds);
  if (flags.level > 0) bench.set_level(flags.level);
  const fs::path out =
      flags.out.empty() ? fs::path("runs/bench") / bench.name() : fs::path(flags.out);
  std::error_code error;
  fs::create_directories(out, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot make directory: ", error.message(), ": ", out.string()));
  }
  const std::vector<LearningRun> tuning = PlanTuning(bench, out);
  OXBOW_RETURN_IF_ERROR(Check(PlanRuns(bench, out)));
  OXBOW_RETURN_IF_ERROR(Check(tuning));
  fs::create_directories(out / "tuning", error);
  if (!flags.table_only) OXBOW_RETURN_IF_ERROR(TrainUnfinished(tuning));
  OXBOW_ASSIGN_OR_RETURN(const std::vector<RateScore> scores, Scores(tuning));
  const std::vector<LearningRun> runs = PlanRuns(bench, out, BestRates(scores));
  if (!flags.table_only) OXBOW_RETURN_IF_ERROR(TrainUnfinished(runs));
  OXBOW_ASSIGN_OR_RETURN(const Comparison comparison, Compare(bench, runs));
  std::string table = tuning.empty() ? "" : TuningTable(scores) + "\n";
  table += LearningTable(comparison);
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(out / "learning.md", table));
  OXBOW_RETURN_IF_ERROR(
      WriteFileAtomically(out / "learning.html", io::Page(bench.name(), LearningPlot(comparison))));
  std::cout << table;
  std::cerr << "written to " << (out / "learning.md").string() << " and learning.html\n";
  return absl::OkStatus();
}

}  // namespace

void AddBench(CLI::App& app, int& exit_code) {
  CLI::App* const bench = app.add_subcommand("bench", "Compare recipes");
  bench->require_subcommand(1);
  CLI::App* const command = bench->add_subcommand(
      "learning",
      "Train every recipe of a comparison with every seed; steps, time and cost to a level. What "
      "is finished is not trained again.");
  command->footer("Example: oxbow bench learning configs/bench/digits.yaml");
  const auto flags = std::make_shared<Flags>();
  command->add_option("PLAN", flags->plan, "comparison, a YAML file")->required();
  command->add_option("--out", flags->out,
                      "directory of runs and table (default: runs/bench/NAME)");
  command->add_option("--seeds", flags->seeds, "seeds of each recipe (default: the plan's)")
      ->check(CLI::Range(1, 1000));
  command
      ->add_option("--level", flags->level,
                   "held-out reward to reach (default: the plan's, or the baseline's at its end)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--table-only", flags->table_only, "train nothing, show what is finished");
  command->callback([flags, &exit_code] {
    const absl::Status status = Bench(*flags);
    exit_code = ExitCodeOf(status);
    if (!status.ok()) std::cerr << "oxbow bench learning: " << status.message() << "\n";
  });
}

}  // namespace oxbow::cli
