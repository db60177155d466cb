#include "cli/learning/learning_plan.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

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
