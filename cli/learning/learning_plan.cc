// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/learning_plan.h"

#include <google/protobuf/util/message_differencer.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "config/fingerprint.h"
#include "config/run_config.h"
#include "config/yaml_message.h"
#include "io/metrics_file.h"
#include "metrics/step_metrics.h"

namespace oxbow::cli {
namespace {

// Seeds that chose a rate must not judge it.
absl::Status CheckTuning(const v1::LearningBench& bench) {
  const v1::BenchTuning& tuning = bench.tuning();
  if (tuning.seeds() == 0 || tuning.learning_rates().empty()) {
    return absl::InvalidArgumentError("tuning: needs learning_rates and seeds");
  }
  std::set<std::string> texts;
  for (const double rate : tuning.learning_rates()) {
    if (!(rate > 0) || !texts.insert(absl::StrFormat("%g", rate)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tuning.learning_rates: must be above 0 and differ in six digits: ", rate));
    }
  }
  for (const v1::BenchedRecipe& recipe : bench.recipes()) {
    for (const std::string& set : recipe.set()) {
      if (!absl::StartsWith(set, "optimizer.learning_rate=")) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("recipe ", recipe.name(), ": ", set,
                       " would be overridden by the rate that tuning chooses: leave one out"));
    }
  }
  const uint64_t first = tuning.first_seed();
  const uint64_t judged = bench.first_seed();
  if (first < judged + bench.seeds() && judged < first + tuning.seeds()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tuning.first_seed: a seed is used for tuning and for the comparison: ", first,
                     " + ", tuning.seeds(), " and ", judged, " + ", bench.seeds()));
  }
  return absl::OkStatus();
}

LearningRun RunOf(const v1::LearningBench& bench, const v1::BenchedRecipe& recipe, uint32_t seed) {
  LearningRun run{
      .recipe = recipe.name(), .seed = seed, .file = recipe.file(), .set = {}, .directory = {}};
  run.set.assign(bench.set().begin(), bench.set().end());
  run.set.insert(run.set.end(), recipe.set().begin(), recipe.set().end());
  return run;
}

void SetRate(double rate, LearningRun& run) {
  run.rate = rate;
  run.set.push_back(absl::StrFormat("optimizer.learning_rate=%.15g", rate));
}

void Place(const std::string& name, const std::filesystem::path& out, LearningRun& run) {
  run.set.push_back(absl::StrCat("run.seed=", run.seed));
  run.set.push_back("run.name=" + name);
  run.set.push_back("run.directory=" + out.string());
  run.directory = out / name;
}

// One recipe for each combination of the grid's values; the recipe itself if it has no grid.
absl::StatusOr<std::vector<v1::BenchedRecipe>> PointsOf(const v1::BenchedRecipe& recipe) {
  std::vector<v1::BenchedRecipe> points(1, recipe);
  points.front().clear_grid();
  points.front().clear_grid_of();
  points.front().clear_point();
  for (const v1::BenchedValues& axis : recipe.grid()) {
    if (axis.key().empty() || axis.values().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("recipes: ", recipe.name(), ": grid: needs a key and values"));
    }
    std::vector<v1::BenchedRecipe> finer;
    for (const v1::BenchedRecipe& point : points) {
      for (const std::string& value : axis.values()) {
        v1::BenchedRecipe& made = finer.emplace_back(point);
        const std::string leaf = axis.key().substr(axis.key().rfind('.') + 1);
        made.set_name(absl::StrCat(point.name(), "-", leaf, "-", value));
        made.add_set(absl::StrCat(axis.key(), "=", value));
        made.set_grid_of(recipe.name());
        const std::string here = absl::StrCat(leaf, " ", value);
        made.set_point(point.point().empty() ? here : absl::StrCat(point.point(), ", ", here));
      }
    }
    points = std::move(finer);
  }
  return points;
}

// Puts the points of every grid in place of their recipe.
absl::Status ExpandGrids(v1::LearningBench& bench) {
  google::protobuf::RepeatedPtrField<v1::BenchedRecipe> recipes;
  for (const v1::BenchedRecipe& recipe : bench.recipes()) {
    OXBOW_ASSIGN_OR_RETURN(const std::vector<v1::BenchedRecipe> points, PointsOf(recipe));
    if (recipe.grid_size() > 0 && recipe.name() == bench.baseline()) {
      return absl::InvalidArgumentError(
          absl::StrCat("baseline: name one point of the grid, such as ", points.front().name()));
    }
    recipes.Add(points.begin(), points.end());
  }
  bench.mutable_recipes()->Swap(&recipes);
  return absl::OkStatus();
}

absl::Status Check(const v1::LearningBench& bench) {
  if (bench.seeds() == 0) return absl::InvalidArgumentError("seeds: must be 1 or more");
  if (bench.recipes().empty()) return absl::InvalidArgumentError("recipes: there are none");
  std::set<std::string> names;
  for (const v1::BenchedRecipe& recipe : bench.recipes()) {
    if (recipe.name().empty() || recipe.name().find_first_of("/ ") != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("recipes: a name is part of a directory's name: \"", recipe.name(), "\""));
    }
    if (!names.insert(recipe.name()).second) {
      return absl::InvalidArgumentError(absl::StrCat("recipes: name repeats: ", recipe.name()));
    }
  }
  if (bench.has_tuning()) OXBOW_RETURN_IF_ERROR(CheckTuning(bench));
  for (const double level : bench.levels()) {
    if (!(level > 0)) return absl::InvalidArgumentError("levels: must be above 0");
  }
  if (names.count(bench.baseline()) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("baseline: is no recipe: \"", bench.baseline(), "\""));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::LearningBench> ReadLearningBench(const std::filesystem::path& path) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const config::YamlSource source{.name = path.string(), .has_lines = true};
  OXBOW_ASSIGN_OR_RETURN(const YAML::Node node, config::ParseYaml(text, source));
  if (!node.IsMap()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path.string(), ": expected keys such as `recipes:` at the top level"));
  }
  v1::LearningBench bench;
  config::Provenance provenance;
  OXBOW_RETURN_IF_ERROR(config::MergeYaml(node, source, "", &bench, &provenance));
  absl::Status status = ExpandGrids(bench);
  if (status.ok()) status = Check(bench);
  if (!status.ok()) return Annotate(status, path.string());
  return bench;
}

std::vector<LearningRun> PlanRuns(const v1::LearningBench& bench, const std::filesystem::path& out,
                                  const std::map<std::string, double>& rates) {
  std::vector<LearningRun> runs;
  for (uint32_t i = 0; i < bench.seeds(); ++i) {
    for (const v1::BenchedRecipe& recipe : bench.recipes()) {
      LearningRun run = RunOf(bench, recipe, bench.first_seed() + i);
      if (const auto rate = rates.find(recipe.name()); rate != rates.end()) {
        SetRate(rate->second, run);
      }
      Place(absl::StrCat(recipe.name(), "-seed", run.seed), out, run);
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

std::vector<LearningRun> PlanTuning(const v1::LearningBench& bench,
                                    const std::filesystem::path& out) {
  const v1::BenchTuning& tuning = bench.tuning();
  std::vector<LearningRun> runs;
  for (uint32_t i = 0; i < tuning.seeds(); ++i) {
    for (const v1::BenchedRecipe& recipe : bench.recipes()) {
      for (const double rate : tuning.learning_rates()) {
        LearningRun run = RunOf(bench, recipe, tuning.first_seed() + i);
        run.set.insert(run.set.end(), tuning.set().begin(), tuning.set().end());
        SetRate(rate, run);
        Place(absl::StrFormat("%s-%g-seed%d", recipe.name(), rate, run.seed), out / "tuning", run);
        runs.push_back(std::move(run));
      }
    }
  }
  return runs;
}

absl::StatusOr<bool> IsFinished(const LearningRun& run) {
  // Resolved as `oxbow train` does, but without the environment, because a comparison must not
  // depend on it.
  OXBOW_ASSIGN_OR_RETURN(config::ResolvedConfig wanted,
                         config::LoadRunConfig(run.file, run.set, {}));
  auto done = config::LoadResolved(run.directory / "config.resolved.yaml");
  const auto rows = io::ReadMetrics(run.directory / io::kMetricsFile);
  if (!done.ok() || !rows.ok() || rows->empty()) return false;
  // Ignore the directory: it may have been moved, or written differently.
  done->mutable_run()->clear_directory();
  wanted.config.mutable_run()->clear_directory();
  if (!google::protobuf::util::MessageDifferencer::Equals(config::AsFormerly(*done),
                                                          config::AsFormerly(wanted.config))) {
    return false;
  }
  const auto steps = static_cast<double>(wanted.config.run().steps());
  return std::any_of(rows->begin(), rows->end(),
                     [&](const auto& row) { return row.at(metric::kStep) >= steps; });
}

}  // namespace oxbow::cli
