// SPDX-License-Identifier: Apache-2.0
// The files in a run's directory, for tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace oxbow::testing {

class RunFiles {
 public:
  explicit RunFiles(std::filesystem::path directory) : directory_(std::move(directory)) {}

  const std::filesystem::path& directory() const { return directory_; }

  // Rows of metrics.jsonl so far.
  std::vector<nlohmann::json> metrics() const;

  // One value per step >= 1, in order.
  std::vector<double> Series(const std::string& key) const;

  // Bytes of the weights of a finished run; empty if there are none.
  std::string FinalWeights() const;

  // Waits until metrics.jsonl has a row of `step` or later. False after `timeout`, or when the run
  // is no longer `alive`.
  bool WaitForStep(int64_t step, absl::Duration timeout, const std::function<bool()>& alive) const;

 private:
  const std::filesystem::path directory_;
};

}  // namespace oxbow::testing
