// SPDX-License-Identifier: Apache-2.0
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
#include "cli/learning/learning_runs.h"
#include "cli/learning/learning_table.h"
#include "cli/learning/learning_tuning.h"
#include "io/metrics_file.h"
#include "io/report/html.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;

struct Flags {
  std::string plan;
  std::string out;
  uint32_t seeds = 0;  // 0: as in the plan.
  double level = 0;    // 0: as in the plan.
  uint32_t jobs = 1;
  bool table_only = false;
};

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

// The comparison of the runs that have finished so far.
absl::StatusOr<Comparison> Compare(const v1::LearningBench& bench,
                                   const std::vector<LearningRun>& runs) {
  Comparison comparison{.name = bench.name(),
                        .baseline = bench.baseline(),
                        .level = bench.level(),
                        .recipes = {},
                        .levels = {bench.levels().begin(), bench.levels().end()}};
  for (const v1::BenchedRecipe& recipe : bench.recipes()) {
    RecipeCurves curves{.name = recipe.name(),
                        .note = recipe.note(),
                        .curves = {},
                        .seeds = {},
                        .grid = recipe.grid_of(),
                        .point = recipe.point()};
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

// The scores of the tuning runs that have finished so far.
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
  if (!flags.table_only) OXBOW_RETURN_IF_ERROR(TrainUnfinished(tuning, flags.jobs));
  OXBOW_ASSIGN_OR_RETURN(const std::vector<RateScore> scores, Scores(tuning));
  const std::vector<LearningRun> runs = PlanRuns(bench, out, BestRates(scores));
  if (!flags.table_only) OXBOW_RETURN_IF_ERROR(TrainUnfinished(runs, flags.jobs));
  OXBOW_ASSIGN_OR_RETURN(const Comparison comparison, Compare(bench, runs));
  std::string table = tuning.empty() ? "" : TuningTable(scores) + "\n";
  table += LearningTable(comparison);
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(out / "learning.md", table));
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(
      out / "learning.html", io::Page(bench.name(), LearningPage(comparison, table))));
  const std::string picture = LearningPicture(comparison);
  if (!picture.empty()) {
    OXBOW_RETURN_IF_ERROR(WriteFileAtomically(out / "learning.svg", picture));
  }
  std::cout << table;
  std::cerr << "written to " << (out / "learning.md").string()
            << ", learning.html and learning.svg\n";
  return absl::OkStatus();
}

}  // namespace

void AddBench(CLI::App& app, int& exit_code) {
  CLI::App* const bench = app.add_subcommand("bench", "Compare recipes");
  bench->footer("Example: oxbow bench learning configs/bench/digits.yaml");
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
  command
      ->add_option("--jobs", flags->jobs,
                   "runs that train at once (default: 1); times are comparable with 1 alone")
      ->check(CLI::Range(1, 1000));
  command->add_flag("--table-only", flags->table_only, "train nothing, show what is finished");
  command->callback([flags, &exit_code] {
    const absl::Status status = Bench(*flags);
    exit_code = ExitCodeOf(status);
    if (!status.ok()) std::cerr << "oxbow bench learning: " << status.message() << "\n";
  });
}

}  // namespace oxbow::cli
