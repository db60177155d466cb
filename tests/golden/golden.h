// Reads the golden vectors: tests/golden/golden.json, or the file named by OXBOW_GOLDEN.
#pragma once

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"

namespace oxbow::testing {

// Agreement asked of float64 results: a few roundings of numbers around one.
inline constexpr double kGoldenTolerance = 1e-12;

inline const nlohmann::json& Golden() {
  static const nlohmann::json golden = [] {
    const char* named = std::getenv("OXBOW_GOLDEN");
    const std::string path =
        named != nullptr ? named : std::string(OXBOW_SOURCE_DIR) + "/tests/golden/golden.json";
    std::ifstream file(path);
    OXBOW_CHECK(file.good()) << "cannot read golden file " << path;
    return nlohmann::json::parse(file);
  }();
  return golden;
}

}  // namespace oxbow::testing
