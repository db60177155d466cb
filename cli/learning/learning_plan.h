// SPDX-License-Identifier: Apache-2.0
// The runs of a comparison of recipes, and which of them are done.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "oxbow/v1/learning_bench.pb.h"

namespace oxbow::cli {

struct LearningRun {
  std::string recipe;
  uint32_t seed = 0;
  std::string file;
  std::vector<std::string> set;  // Overrides, including the run's name and directory.
  std::filesystem::path directory;
  double rate = 0;  // The learning rate it was planned with; 0: its recipe's.
};

// Reads a YAML file of proto/oxbow/v1/learning_bench.proto. A recipe with a grid is replaced by its
// points. kNotFound without the file; kInvalidArgument, with the place, for an error in it.
absl::StatusOr<v1::LearningBench> ReadLearningBench(const std::filesystem::path& path);

// The first seed of every recipe, then the second and so on, so that the finished runs are
// comparable at any time. The directory of a run is `out`/RECIPE-seedK. `rates` has the learning
// rates of recipes that were tuned.
std::vector<LearningRun> PlanRuns(const v1::LearningBench& bench, const std::filesystem::path& out,
                                  const std::map<std::string, double>& rates = {});

// The runs that choose every recipe's learning rate; none where the plan has no tuning. Their
// directories are `out`/tuning/RECIPE-RATE-seedK.
std::vector<LearningRun> PlanTuning(const v1::LearningBench& bench,
                                    const std::filesystem::path& out);

// Whether the run is finished: it has the same config, and as many steps as the config asks for.
// kInvalidArgument if its file or overrides are wrong.
absl::StatusOr<bool> IsFinished(const LearningRun& run);

}  // namespace oxbow::cli
