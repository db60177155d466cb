// SPDX-License-Identifier: Apache-2.0
#include "cli/replay/replay_rows.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/first_part.h"
#include "cli/plan/bytes_text.h"

namespace oxbow::cli {
namespace {

// The oldest policy version that took a step of the entry's trajectories.
std::optional<uint64_t> OldestVersion(const v1::ReplayEntry& entry) {
  std::optional<uint64_t> oldest;
  const auto look = [&](const v1::Trajectory& trajectory) {
    for (const uint64_t version : trajectory.behaviour_version()) {
      oldest = std::min(oldest.value_or(version), version);
    }
  };
  look(entry.trajectory());
  for (const v1::Trajectory& member : entry.group().trajectories()) look(member);
  return oldest;
}

// The number that a row is ordered by; larger is earlier. Unknown is last in either direction.
std::optional<double> RowNumberOf(const ReplayRow& row, const std::string& key) {
  if (key == "reward") return row.reward;
  if (key == "priority") return row.priority;
  if (key == "age") return static_cast<double>(row.age);
  if (key == "uses") return static_cast<double>(row.uses);
  if (key == "staleness") return row.staleness;
  return static_cast<double>(row.bytes);
}

std::string Cell(const std::optional<double>& value, int digits) {
  return value.has_value() ? absl::StrFormat("%.*f", digits, *value) : "-";
}

}  // namespace

ReplayRow RowOf(const v1::ReplayEntry& entry, const RowContext& context) {
  ReplayRow row{.entry = entry.entry_id(),
                .prompt = entry.prompt().text(),
                .reward = entry.raw_reward(),
                .priority = std::nullopt,
                .birth = entry.birth_step(),
                .age = context.step - std::min(context.step, entry.birth_step()),
                .uses = entry.uses(),
                .last_used = entry.last_used_step(),
                .staleness = std::nullopt,
                .bytes = entry.stored_bytes()};
  if (context.priority_known) row.priority = entry.priority();
  if (const auto version = OldestVersion(entry); version.has_value() && context.updates > 0) {
    row.staleness =
        std::max(0.0, static_cast<double>(context.step) -
                          static_cast<double>(*version) / static_cast<double>(context.updates));
  }
  return row;
}

absl::StatusOr<TopRows> TopRows::By(const std::string& key, bool reverse, uint64_t limit) {
  const bool known = std::any_of(std::begin(kRowKeys), std::end(kRowKeys),
                                 [&](const char* name) { return key == name; });
  if (!known) return absl::InvalidArgumentError(absl::StrCat("not a column to sort by: ", key));
  return TopRows(key, reverse, std::max<uint64_t>(1, limit));
}

bool TopRows::Before(const ReplayRow& a, const ReplayRow& b) const {
  if (key_ == "id") return reverse_ ? a.entry > b.entry : a.entry < b.entry;
  if (key_ == "prompt") {
    if (a.prompt != b.prompt) return reverse_ ? a.prompt > b.prompt : a.prompt < b.prompt;
    return a.entry < b.entry;
  }
  const std::optional<double> left = RowNumberOf(a, key_);
  const std::optional<double> right = RowNumberOf(b, key_);
  if (left.has_value() != right.has_value()) return left.has_value();
  if (left.has_value() && *left != *right) return reverse_ ? *left < *right : *left > *right;
  return a.entry < b.entry;
}

void TopRows::Add(ReplayRow row) {
  ++seen_;
  rows_.push_back(std::move(row));
  if (rows_.size() >= 2 * limit_) Trim();
}

void TopRows::Trim() {
  std::sort(rows_.begin(), rows_.end(),
            [this](const ReplayRow& a, const ReplayRow& b) { return Before(a, b); });
  if (rows_.size() > limit_) rows_.erase(rows_.begin() + static_cast<int64_t>(limit_), rows_.end());
}

std::vector<ReplayRow> TopRows::Take() && {
  Trim();
  return std::move(rows_);
}

std::string RowsText(const std::vector<ReplayRow>& rows, size_t prompt_width) {
  std::string text = absl::StrFormat("%20s %8s %8s %6s %5s %6s %10s  %s\n", "entry", "reward",
                                     "priority", "age", "uses", "stale", "bytes", "prompt");
  for (const ReplayRow& row : rows) {
    absl::StrAppend(
        &text, absl::StrFormat("%20d %8.4f %8s %6d %5d %6s %10s  %s\n", row.entry, row.reward,
                               Cell(row.priority, 4), row.age, row.uses, Cell(row.staleness, 1),
                               BytesText(row.bytes), FirstPart(row.prompt, prompt_width)));
  }
  return text;
}

}  // namespace oxbow::cli
