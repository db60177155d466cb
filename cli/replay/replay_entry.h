// SPDX-License-Identifier: Apache-2.0
// The questions of `oxbow replay`, and its `show` and `export`: one entry with its latents, which
// take LibTorch.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cli/replay/replay_source.h"

namespace oxbow::cli {

struct ReplayFlags {
  ReplayPlace place;
  double timeout_s = 10;
  std::string format = "text";
  std::string table = "best";
  std::string sort = "reward";
  bool reverse = false;
  uint64_t limit = 50;
  uint64_t entry = 0;
  std::string out = ".";
  std::string model;

  bool json() const { return format == "json"; }
  absl::Duration timeout() const { return absl::Seconds(timeout_s); }
};

// Prints everything of one entry.
absl::Status ShowEntry(const ReplayFlags& flags);

// Writes entry_ID.json, .safetensors and .png into flags.out, and prints their names.
absl::Status ExportEntry(const ReplayFlags& flags);

}  // namespace oxbow::cli
