// SPDX-License-Identifier: Apache-2.0
// Transformers of committed graphs, for tests: tests/testing/graphs has small ones
// (tools/make_test_graphs.py), models/graphs those of published models.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "core/model/architecture.h"
#include "io/graph_files.h"

namespace oxbow::testing {

// The network of a graph's file, named from the root of the sources. Dies for one that is not read.
inline model::ArchitectureSource GraphSource(const std::string& file) {
  const auto json = io::ReadGraphFile(std::filesystem::path(OXBOW_SOURCE_DIR) / file);
  OXBOW_CHECK(json.ok()) << json.status().ToString();
  const auto graph = nlohmann::json::parse(*json);
  nlohmann::json config = graph["config"];
  config["_class_name"] = graph["class"];
  return {.class_name = graph["class"], .config_json = config.dump(), .graph_json = *json};
}

inline std::shared_ptr<const model::Architecture> GraphArchitecture(const std::string& file) {
  auto architecture = model::ReadArchitecture(GraphSource(file));
  OXBOW_CHECK(architecture.ok()) << file << ": " << architecture.status().ToString();
  return *std::move(architecture);
}

inline constexpr char kDigitsGraph[] = "models/digits/transformer/graph.json.gz";
inline constexpr char kSd35MediumGraph[] =
    "models/graphs/SD3Transformer2DModel-sd3.5-medium.json.gz";

}  // namespace oxbow::testing
