// SPDX-License-Identifier: Apache-2.0
// For any text as the file of a comparison of recipes: it is refused, or planned in full, each run
// in a directory of its own.
#include <set>

#include "base/check.h"
#include "cli/learning/learning_plan.h"
#include "tests/fuzz/bytes_input.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  static const fuzz::Scratch scratch;
  scratch.Write("bench.yaml", fuzz::Text(data, size));
  const auto bench = cli::ReadLearningBench(scratch.path() / "bench.yaml");
  if (!bench.ok()) {
    OXBOW_CHECK(absl::IsInvalidArgument(bench.status())) << bench.status().ToString();
    return 0;
  }
  if (bench->seeds() > 100) return 0;  // A plan of millions of runs is what was asked for.
  std::set<std::string> directories;
  for (const cli::LearningRun& run : cli::PlanRuns(*bench, "out")) {
    OXBOW_CHECK(directories.insert(run.directory.string()).second) << run.directory;
  }
  OXBOW_CHECK(directories.size() == size_t{bench->seeds()} * bench->recipes().size());
  return 0;
}
