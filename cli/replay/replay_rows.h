// SPDX-License-Identifier: Apache-2.0
// Output of `oxbow replay`, for people and for programs: one row per entry of a table (`list`), and
// everything of one entry (`show`, `export`). Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "oxbow/v1/replay_buffer.pb.h"

namespace oxbow::cli {

struct ReplayRow {
  uint64_t entry = 0;
  std::string prompt;
  double reward = 0;               // Raw.
  std::optional<double> priority;  // Decayed to the buffer's step; unknown without the decay.
  uint64_t birth = 0;
  uint64_t age = 0;  // Learner steps since the step it was made for.
  uint64_t uses = 0;
  uint64_t last_used = 0;  // Meaningless while uses is 0.
  // Learner steps between the oldest weights that took one of its steps and the buffer's step.
  // Unknown without the number of updates of a learner step, and for entries without steps.
  std::optional<double> staleness;
  uint64_t bytes = 0;
};

// Facts that the rows are computed with.
struct RowContext {
  uint64_t step = 0;            // The buffer's.
  uint64_t updates = 0;         // Optimiser updates of a learner step; 0: unknown.
  bool priority_known = false;  // The decay is.
};

ReplayRow RowOf(const v1::ReplayEntry& entry, const RowContext& context);

inline constexpr const char* kRowKeys[] = {"id",  "prompt", "reward",    "priority",
                                           "age", "uses",   "staleness", "bytes"};

// Keeps the first `limit` rows in an order, whatever comes: largest first, "id" and "prompt"
// smallest first, the other way round if `reverse`; what is unknown comes last; equal ones by id.
// Holds at most 2 * limit rows.
class TopRows {
 public:
  // kInvalidArgument for a key that is none of kRowKeys.
  static absl::StatusOr<TopRows> By(const std::string& key, bool reverse, uint64_t limit);

  void Add(ReplayRow row);
  std::vector<ReplayRow> Take() &&;
  uint64_t seen() const { return seen_; }

 private:
  TopRows(std::string key, bool reverse, uint64_t limit)
      : key_(std::move(key)), reverse_(reverse), limit_(limit) {}
  bool Before(const ReplayRow& a, const ReplayRow& b) const;
  void Trim();

  std::string key_;
  bool reverse_;
  uint64_t limit_;
  uint64_t seen_ = 0;
  std::vector<ReplayRow> rows_;
};

// Prompts are cut to `prompt_width` columns.
std::string RowsText(const std::vector<ReplayRow>& rows, size_t prompt_width = 60);

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
