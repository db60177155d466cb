// SPDX-License-Identifier: Apache-2.0
// Everything of one replay entry in words and as JSON: what `oxbow replay show` prints and `export`
// writes. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/replay/replay_rows.h"
#include "oxbow/v1/replay_buffer.pb.h"

namespace oxbow::cli {

// Statistics of the numbers of one stored latent.
struct LatentFacts {
  uint32_t sample = 0;  // The member of the group whose path it is on.
  uint64_t index = 0;   // x_i
  double min = 0;
  double max = 0;
  double mean = 0;
  bool finite = true;
};

std::string EntryText(const v1::ReplayEntry& entry, const ReplayRow& row,
                      const std::vector<LatentFacts>& latents);

// Ids are strings: 64-bit integers do not survive every JSON reader. What is not finite is null.
nlohmann::ordered_json EntryJson(const v1::ReplayEntry& entry, const ReplayRow& row,
                                 const std::vector<LatentFacts>& latents);

// One object of `list`.
nlohmann::ordered_json RowJson(const ReplayRow& row);

}  // namespace oxbow::cli
