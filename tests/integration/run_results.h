// SPDX-License-Identifier: Apache-2.0
// The results of a run, to be compared with another run's.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {

struct RunResults {
  std::vector<double> losses;
  std::vector<double> steps;                 // In the order of the lines of metrics.jsonl.
  std::string weights;                       // Their bytes.
  std::map<std::string, double> numbers;     // Evaluations' numbers by step and name.
  std::map<std::string, std::string> files;  // Evaluations' files: bytes by path.
};

// Waits for the run's end, which must be a good one.
inline RunResults ResultsOf(TrainingRun& run) {
  EXPECT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  RunResults results = {run.Series("train/loss"), run.Series("step"), run.FinalWeights(), {}, {}};
  for (const nlohmann::json& row : run.metrics()) {
    for (const auto& [name, value] : row.items()) {
      if (name.starts_with("eval/")) results.numbers[row["step"].dump() + " " + name] = value;
    }
  }
  const std::filesystem::path samples = run.directory() / "samples";
  for (const auto& file : std::filesystem::recursive_directory_iterator(samples)) {
    if (!file.is_regular_file()) continue;
    std::ifstream in(file.path(), std::ios::binary);
    results.files[file.path().lexically_relative(samples)] = {std::istreambuf_iterator<char>(in),
                                                              {}};
  }
  return results;
}

inline void ExpectTheSame(const RunResults& results, const RunResults& expected) {
  EXPECT_THAT(results.losses, ::testing::ElementsAreArray(expected.losses));
  EXPECT_THAT(results.steps, ::testing::ElementsAreArray(expected.steps));
  EXPECT_TRUE(results.weights == expected.weights) << "other bytes";
  EXPECT_EQ(results.numbers, expected.numbers);
  EXPECT_TRUE(results.files == expected.files) << "other evaluations";
}

}  // namespace oxbow::testing
