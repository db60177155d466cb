// SPDX-License-Identifier: Apache-2.0
// Runs side by side on one page: what their configs differ in, their curves over each other, and
// their last pictures.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::cli {

// A setting that is not the same in all runs; a run without a config has "".
struct Difference {
  std::string key;
  std::vector<std::string> values;  // One for each run.
};

// In the schema's order; run.name and run.directory are left out.
std::vector<Difference> DifferencesOf(const std::vector<std::filesystem::path>& run_dirs);

// One line, where the runs are not trained on the same reward: their means are of different scales.
// "" where they are, or where a config is missing.
std::string RewardsApart(const std::vector<std::filesystem::path>& run_dirs);

// A table of them for a terminal: a column for each run, with its name.
std::string DifferencesText(const std::vector<std::filesystem::path>& run_dirs);

// The page that is to be written to `page`, from where it links to pictures. kNotFound, kDataLoss
// for a run whose metrics cannot be read.
absl::StatusOr<std::string> ComparisonPage(const std::vector<std::filesystem::path>& run_dirs,
                                           const std::filesystem::path& page);

}  // namespace oxbow::cli
