// SPDX-License-Identifier: Apache-2.0
// chaos --runs 200 --seed 1: that many runs with real processes, each with the faults of its seed.
// Prints a line for each, and a table at the end. Exit code 1 if a promise was broken; the files of
// such a run are kept. `--seed N --runs 1` repeats trial N.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "tests/chaos/full_disk.h"
#include "tests/chaos/preloaded_number.h"
#include "tests/chaos/trial.h"
#include "tests/testing/faulty_disk.h"

namespace oxbow::chaos {
namespace {

struct Flags {
  uint64_t runs = 200;
  uint64_t seed = 1;
  std::string binaries = OXBOW_BINARY_DIR;
  std::string scratch;
  double deadline_seconds = 180;
  double seconds_max = 0;
  bool keep = false;
  bool plans_only = false;
};

std::string ScratchOf(const Flags& flags) {
  if (!flags.scratch.empty()) return flags.scratch;
  return absl::StrFormat("%s/oxbow_chaos_%d", std::filesystem::temp_directory_path().string(),
                         getpid());
}

int RunAll(const Flags& flags) {
  EnterMountNamespace();
  const std::filesystem::path scratch = ScratchOf(flags);
  std::filesystem::create_directories(scratch);
  Trials trials({.binaries = flags.binaries,
                 .source = OXBOW_SOURCE_DIR,
                 .preloaded = kPreloaded,
                 .disk = testing::kDiskFaults,
                 .scratch = scratch,
                 .deadline = absl::Seconds(flags.deadline_seconds),
                 .keep = flags.keep});
  const absl::Duration start = Clock::Steady().Now();
  std::vector<TrialReport> reports;
  uint64_t broken = 0;
  for (uint64_t seed = flags.seed; seed < flags.seed + flags.runs; ++seed) {
    const double seconds = absl::ToDoubleSeconds(Clock::Steady().Now() - start);
    if (flags.seconds_max > 0 && seconds > flags.seconds_max) break;
    reports.push_back(trials.Run(PlanTrial(seed)));
    broken += reports.back().violations.empty() ? 0 : 1;
    std::printf("%s\n", LineOf(reports.back()).c_str());
    std::fflush(stdout);
  }
  std::error_code error;
  std::filesystem::remove(scratch, error);  // Stays if it is not empty.
  std::printf("\nseeds %lu to %lu: %zu trials, %lu with violations, %.0f s\n\n%s", flags.seed,
              flags.seed + reports.size() - 1, reports.size(), broken,
              absl::ToDoubleSeconds(Clock::Steady().Now() - start), TableOf(reports).c_str());
  return broken == 0 ? 0 : 1;
}

}  // namespace
}  // namespace oxbow::chaos

int main(int argc, char** argv) {
  oxbow::chaos::Flags flags;
  CLI::App app("Runs under seeded faults, and what became of their promises.", "chaos");
  app.add_option("--runs", flags.runs, "trials; their seeds follow each other");
  app.add_option("--seed", flags.seed, "seed of the first trial");
  app.add_option("--binaries", flags.binaries, "directory of the processes to run");
  app.add_option("--directory", flags.scratch, "directory of the runs; failed runs are kept");
  app.add_option("--deadline", flags.deadline_seconds, "seconds after which a run has failed");
  app.add_option("--seconds", flags.seconds_max, "start no trial after this time; 0: no limit");
  app.add_flag("--keep", flags.keep, "keep the files of every run in --directory");
  app.add_flag("--plans", flags.plans_only, "print the plans and run nothing");
  CLI11_PARSE(app, argc, argv);
  if (!flags.plans_only) return oxbow::chaos::RunAll(flags);
  for (uint64_t seed = flags.seed; seed < flags.seed + flags.runs; ++seed) {
    std::printf("%s\n", oxbow::chaos::Describe(oxbow::chaos::PlanTrial(seed)).c_str());
  }
  return 0;
}
