// SPDX-License-Identifier: Apache-2.0
// `oxbow eval --set`: a set's prompts, drawn by a model or read from a folder, scored or exported.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/model/drawn_images.h"
#include "rpc/tls.h"

namespace oxbow::cli {

struct EvalSetFlags {
  std::string set;                // The definition; empty: the run's own prompts and rewards.
  std::string prompts;            // Path of its prompts; empty: what the definition says.
  std::vector<std::string> keys;  // REWARD.KEY=VALUE
  // HOST:PORT of servers that have the rewards; empty: those of the run, if it has any.
  std::vector<std::string> endpoints;
  rpc::TlsOptions tls;        // For connections to them.
  ModelSource source;         // Neither: `images`.
  std::string images;         // Folder of pictures in the set's layout.
  std::string against;        // Another run, model or folder, by what it holds.
  std::string export_images;  // Folder to write pictures into, in place of scoring them.
  uint32_t pictures = 0;  // Whole rounds over the prompts, at least so many; 0: as the set says.
  std::string layout;     // Empty: the set's.
  ImageOptions drawing;
  std::optional<uint64_t> seed;  // In place of the set's seeds.
  uint64_t bootstrap_seed = 0;
  std::string html;  // File to write.
  bool json = false;
};

// Rounds over so many prompts, at least one, that give at least `pictures`. Requires a prompt.
uint32_t RoundsFor(uint32_t pictures, size_t prompts);

// Prints the report. kDataLoss if a picture has no score; else the errors of what it reads.
absl::Status EvaluateSet(const EvalSetFlags& flags);

}  // namespace oxbow::cli
