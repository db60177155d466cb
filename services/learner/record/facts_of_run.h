// SPDX-License-Identifier: Apache-2.0
// Facts on a run's page besides numbers, from the run's config, its starts and its last pictures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/report/run_facts.h"
#include "io/report/sheets.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::learner {

// Facts of a run, in words: label and value of its method, model, prompts, reward and seed.
std::vector<std::pair<std::string, std::string>> HeadOf(const v1::RunConfig& config);

// The best checkpoint by the run's checkpoint.best.
struct BestCheckpoint {
  uint64_t step = 0;
  std::string metric;
  double value = 0;
};

// Nothing if no checkpoint was evaluated, or the run keeps none.
std::optional<BestCheckpoint> BestCheckpointOf(const std::filesystem::path& run_dir);

// Facts that cannot be known, because a file is missing, are left out. `live`: whether the run
// goes on. `sheets`: those of the run, where the caller has read them.
io::RunFacts FactsOfRun(const std::filesystem::path& run_dir, bool live,
                        const std::vector<io::Sheet>* sheets = nullptr);

}  // namespace oxbow::learner
