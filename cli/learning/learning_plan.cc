#include "cli/learning/learning_plan.h"

#include <google/protobuf/util/message_differencer.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "config/run_config.h"
#include "config/yaml_message.h"
#include "io/metrics_file.h"
#include "metrics/step_metrics.h"

namespace oxbow::cli {
namespace {

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
  const absl::Status status = Check(bench);
  if (!status.ok()) return Annotate(status, path.string());
  return bench;
}

std::vector<LearningRun> PlanRuns(const v1::LearningBench& bench,
                                  const std::filesystem::path& out) {
  std::vector<LearningRun> runs;
  for (uint32_t seed = 0; seed < bench.seeds(); ++seed) {
    for (const v1::BenchedRecipe& recipe : bench.recipes()) {
      LearningRun run{
          .recipe = recipe.name(), .seed = seed, .file = recipe.file(), .set = {}, .directory = {}};
      run.set.assign(bench.set().begin(), bench.set().end());
      run.set.insert(run.set.end(), recipe.set().begin(), recipe.set().end());
      const std::string name = absl::StrCat(recipe.name(), "-seed", seed);
      run.set.push_back(absl::StrCat("run.seed=", seed));
      run.set.push_back("run.name=" + name);
      run.set.push_back("run.directory=" + out.string());
      run.directory = out / name;
      runs.push_back(std::move(run));
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
  if (!google::protobuf::util::MessageDifferencer::Equals(*done, wanted.config)) return false;
  const auto steps = static_cast<double>(wanted.config.run().steps());
  return std::any_of(rows->begin(), rows->end(),
                     [&](const auto& row) { return row.at(metric::kStep) >= steps; });
}

}  // namespace oxbow::cli
