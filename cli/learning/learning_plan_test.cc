// SPDX-License-Identifier: Apache-2.0
#include "cli/learning/learning_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "config/run_config.h"
#include "io/metrics_file.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;

v1::LearningBench OneRecipe() {
  v1::LearningBench bench;
  bench.set_name("one");
  bench.set_seeds(1);
  bench.set_baseline("a");
  bench.add_set("run.steps=3");
  bench.add_recipes()->set_name("a");
  return bench;
}

// Writes the directory that a run of this many steps leaves.
void Leave(const LearningRun& run, int steps) {
  fs::create_directories(run.directory);
  const auto resolved = config::LoadRunConfig(run.file, run.set, {});
  ASSERT_TRUE(resolved.ok()) << resolved.status();
  ASSERT_TRUE(config::WriteResolved(*resolved, run.directory / "config.resolved.yaml").ok());
  ASSERT_TRUE(
      WriteFileAtomically(run.directory / io::kMetricsFile, io::FormatMetricsLine(steps, 1.0, {}))
          .ok());
}

bool Finished(const LearningRun& run) {
  const auto finished = IsFinished(run);
  EXPECT_TRUE(finished.ok()) << finished.status();
  return finished.ok() && *finished;
}

TEST(LearningPlanTest, AFileWithoutKeysIsAnErrorOfOneLine) {
  const testing::ScopedDirectory directory;
  const fs::path path = directory.path() / "bench.yaml";
  for (const char* text : {"", "# nothing\n", "- a\n", "7"}) {
    ASSERT_TRUE(WriteFileAtomically(path, text).ok());
    const auto bench = ReadLearningBench(path);
    EXPECT_EQ(bench.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(bench.status().message(),
              path.string() + ": expected keys such as `recipes:` at the top level");
  }
}

TEST(LearningPlanTest, EveryShippedPlanCanBeRun) {
  const fs::path source = OXBOW_SOURCE_DIR;
  int plans = 0;
  for (const fs::directory_entry& file : fs::directory_iterator(source / "configs/bench")) {
    SCOPED_TRACE(file.path().string());
    const auto bench = ReadLearningBench(file.path());
    ASSERT_TRUE(bench.ok()) << bench.status();
    std::vector<LearningRun> runs = PlanRuns(*bench, "out");
    const std::vector<LearningRun> tuning = PlanTuning(*bench, "out");
    runs.insert(runs.end(), tuning.begin(), tuning.end());
    for (const LearningRun& run : runs) {
      const auto config = config::LoadRunConfig(source / run.file, run.set, {});
      EXPECT_TRUE(config.ok()) << run.recipe << ": " << config.status();
    }
    ++plans;
  }
  EXPECT_GE(plans, 10);
}

TEST(LearningPlanTest, EveryRecipeIsTunedWithTheSameRatesAndSeedsApartFromItsComparison) {
  v1::LearningBench bench = OneRecipe();
  bench.add_recipes()->set_name("b");
  bench.set_seeds(2);
  bench.set_first_seed(400);
  EXPECT_TRUE(PlanTuning(bench, "out").empty());
  v1::BenchTuning& tuning = *bench.mutable_tuning();
  tuning.add_learning_rates(5e-4);
  tuning.add_learning_rates(1e-3);
  tuning.set_seeds(1);
  tuning.set_first_seed(500);
  tuning.add_set("prompts.eval=tune.txt");
  std::vector<std::string> directories;
  for (const LearningRun& run : PlanTuning(bench, "out")) {
    directories.push_back(run.directory.string());
    EXPECT_EQ(std::count(run.set.begin(), run.set.end(), "prompts.eval=tune.txt"), 1);
    EXPECT_EQ(std::count(run.set.begin(), run.set.end(), "run.seed=500"), 1);
  }
  EXPECT_EQ(directories, (std::vector<std::string>{
                             "out/tuning/a-0.0005-seed500", "out/tuning/a-0.001-seed500",
                             "out/tuning/b-0.0005-seed500", "out/tuning/b-0.001-seed500"}));
  const std::vector<LearningRun> runs = PlanRuns(bench, "out", {{"b", 1e-3}});
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_EQ(runs[0].directory, "out/a-seed400");
  EXPECT_EQ(runs[0].rate, 0) << "it was not tuned";
  EXPECT_EQ(std::count(runs[3].set.begin(), runs[3].set.end(), "optimizer.learning_rate=0.001"), 1);
  EXPECT_EQ(std::count(runs[3].set.begin(), runs[3].set.end(), "prompts.eval=tune.txt"), 0);
}

absl::StatusOr<v1::LearningBench> ReadText(const std::string& text) {
  const testing::ScopedDirectory directory;
  const fs::path path = directory.path() / "bench.yaml";
  EXPECT_TRUE(WriteFileAtomically(path, text).ok());
  return ReadLearningBench(path);
}

TEST(LearningPlanTest, ARateOfARecipesOwnDoesNotGoWithTuning) {
  const std::string tuning =
      "name: x\nseeds: 1\nfirst_seed: 9\nbaseline: a\ntuning: {learning_rates: [1e-4], seeds: 1}\n";
  EXPECT_TRUE(ReadText(tuning + "recipes:\n  - {name: a, file: f, set: [batch.groups=4]}\n").ok());
  const absl::Status status =
      ReadText(tuning +
               "recipes:\n  - {name: a, file: f}\n  - {name: b, file: f, grid: [{key: "
               "optimizer.learning_rate, values: [1e-4]}]}\n")
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "overridden by the rate that tuning chooses"))
      << status;
}

TEST(LearningPlanTest, AGridIsOneRecipeForEachCombinationOfItsValues) {
  const std::string head = "name: x\nseeds: 1\nset: [run.steps=2]\n";
  const std::string recipes =
      "recipes:\n"
      "  - {name: a, file: f}\n"
      "  - {name: b, file: f, note: n, set: [batch.groups=4], grid: [{key: "
      "optimizer.learning_rate, values: [1e-4, 3e-4]}, "
      "{key: batch.group_size, values: [8, 16]}]}\n";
  const auto bench = ReadText(head + "baseline: a\n" + recipes);
  ASSERT_TRUE(bench.ok()) << bench.status();
  std::vector<std::string> names;
  for (const LearningRun& run : PlanRuns(*bench, "out")) names.push_back(run.recipe);
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "a", "b-learning_rate-1e-4-group_size-8", "b-learning_rate-1e-4-group_size-16",
                "b-learning_rate-3e-4-group_size-8", "b-learning_rate-3e-4-group_size-16"}));
  const LearningRun last = PlanRuns(*bench, "out").back();
  EXPECT_EQ(std::vector<std::string>(last.set.begin(), last.set.begin() + 4),
            (std::vector<std::string>{"run.steps=2", "batch.groups=4",
                                      "optimizer.learning_rate=3e-4", "batch.group_size=16"}));
  EXPECT_EQ(bench->recipes(4).note(), "n");
  EXPECT_EQ(bench->recipes(4).grid_of(), "b");
  EXPECT_EQ(bench->recipes(4).point(), "learning_rate 3e-4, group_size 16");

  EXPECT_TRUE(
      ReadText(head + "baseline: b-learning_rate-1e-4-group_size-8\n" + recipes).status().ok());
  EXPECT_EQ(ReadText(head + "baseline: b\n" + recipes).status().code(),
            absl::StatusCode::kInvalidArgument);
  for (const char* grid : {"{key: run.steps}", "{values: [1]}", "{key: run.steps, values: [1, 1]}",
                           "{key: prompts.train, values: [a/b]}"}) {
    EXPECT_EQ(ReadText(absl::StrCat(head, "baseline: a\nrecipes:\n  - {name: a, file: f}\n",
                                    "  - {name: b, file: f, grid: [", grid, "]}\n"))
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument)
        << grid;
  }
}

TEST(LearningPlanTest, ASeedThatTunesDoesNotJudge) {
  const testing::ScopedDirectory directory;
  const fs::path path = directory.path() / "bench.yaml";
  const auto read = [&](const std::string& tuning) {
    EXPECT_TRUE(WriteFileAtomically(path,
                                    "name: x\nseeds: 4\nfirst_seed: 10\nbaseline: a\n"
                                    "recipes: [{name: a, file: f}]\ntuning: " +
                                        tuning + "\n")
                    .ok());
    return ReadLearningBench(path).status();
  };
  EXPECT_TRUE(read("{learning_rates: [1e-3], seeds: 2, first_seed: 14}").ok());
  EXPECT_TRUE(read("{learning_rates: [1e-3], seeds: 2, first_seed: 8}").ok());
  for (const char* tuning :
       {"{learning_rates: [1e-3], seeds: 2, first_seed: 13}",
        "{learning_rates: [1e-3], seeds: 2, first_seed: 9}", "{learning_rates: [1e-3]}",
        "{seeds: 2, first_seed: 20}", "{learning_rates: [1e-3, 0.001], seeds: 1, first_seed: 20}",
        "{learning_rates: [-1], seeds: 1, first_seed: 20}"}) {
    EXPECT_EQ(read(tuning).code(), absl::StatusCode::kInvalidArgument) << tuning;
  }
}

TEST(LearningPlanTest, AFinishedRunIsKnownWhereverItsDirectoryWasMoved) {
  const testing::ScopedDirectory directory;
  const LearningRun made = PlanRuns(OneRecipe(), directory.path() / "made").front();
  EXPECT_FALSE(Finished(made));
  Leave(made, 3);
  EXPECT_TRUE(Finished(made));
  fs::rename(directory.path() / "made", directory.path() / "moved");
  EXPECT_TRUE(Finished(PlanRuns(OneRecipe(), directory.path() / "moved").front()));
}

TEST(LearningPlanTest, ARunThatEndedEarlyOrOfOtherSettingsIsMadeAgain) {
  const testing::ScopedDirectory directory;
  const LearningRun run = PlanRuns(OneRecipe(), directory.path()).front();
  Leave(run, 2);
  EXPECT_FALSE(Finished(run));
  Leave(run, 3);
  v1::LearningBench other = OneRecipe();
  other.add_set("optimizer.learning_rate=1e-5");
  EXPECT_FALSE(Finished(PlanRuns(other, directory.path()).front()));
}

}  // namespace
}  // namespace oxbow::cli
