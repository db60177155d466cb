// SPDX-License-Identifier: Apache-2.0
// The output of `oxbow --version`: this build and the libraries it was built against.
#pragma once

#include <string>

namespace oxbow::cli {

struct BuildFacts {
  std::string version;
  std::string git;  // Commit at configure time, or "unknown".
  std::string libtorch;
  std::string grpc;
  std::string protobuf;
  std::string build_type;
};

BuildFacts ThisBuild();

// One line, or one JSON object on one line.
std::string VersionText(const BuildFacts& facts, bool json);

}  // namespace oxbow::cli
