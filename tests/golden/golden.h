// SPDX-License-Identifier: Apache-2.0
// Reads the golden vectors: tests/golden/golden.json, or the file named by OXBOW_GOLDEN, and
// flow.json, branch.json, compression.json, reuse.json, and unipc.json.
#pragma once

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"

namespace oxbow::testing {

// Agreement asked of float64 results: a few roundings of numbers around one.
inline constexpr double kGoldenTolerance = 1e-12;

inline nlohmann::json ReadGolden(const std::string& path) {
  std::ifstream file(path);
  OXBOW_CHECK(file.good()) << "cannot read golden file " << path;
  return nlohmann::json::parse(file);
}

// The file that the environment variable `variable` names, or `file` of tests/golden.
inline nlohmann::json NamedGolden(const char* variable, const std::string& file) {
  const char* named = std::getenv(variable);
  return ReadGolden(named != nullptr ? named
                                     : std::string(OXBOW_SOURCE_DIR) + "/tests/golden/" + file);
}

inline const nlohmann::json& Golden() {
  static const nlohmann::json golden = NamedGolden("OXBOW_GOLDEN", "golden.json");
  return golden;
}

// tests/golden/flow.json: whole solver paths, windows, and dynamics that golden.json has not.
inline const nlohmann::json& FlowGolden() {
  static const nlohmann::json golden =
      ReadGolden(std::string(OXBOW_SOURCE_DIR) + "/tests/golden/flow.json");
  return golden;
}

// tests/golden/branch.json, or the file named by OXBOW_BRANCH_GOLDEN: trees of samples.
inline const nlohmann::json& BranchGolden() {
  static const nlohmann::json golden = NamedGolden("OXBOW_BRANCH_GOLDEN", "branch.json");
  return golden;
}

// tests/golden/compression.json, or the file named by OXBOW_COMPRESSION_GOLDEN: steps behind the
// stochastic window.
inline const nlohmann::json& CompressionGolden() {
  static const nlohmann::json golden = NamedGolden("OXBOW_COMPRESSION_GOLDEN", "compression.json");
  return golden;
}

// tests/golden/reuse.json, or the file named by OXBOW_REUSE_GOLDEN: need, added successes, draws,
// and GSPO's ratio.
inline const nlohmann::json& ReuseGolden() {
  static const nlohmann::json golden = NamedGolden("OXBOW_REUSE_GOLDEN", "reuse.json");
  return golden;
}

// tests/golden/unipc.json, or the file named by OXBOW_UNIPC_GOLDEN: noise levels and timesteps of
// diffusers' UniPC scheduler.
inline const nlohmann::json& UnipcGolden() {
  static const nlohmann::json golden = NamedGolden("OXBOW_UNIPC_GOLDEN", "unipc.json");
  return golden;
}

}  // namespace oxbow::testing
