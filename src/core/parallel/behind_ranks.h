// Which ranks an error of Ranks or JoinRanks names: those that did not come, or were behind when a
// deadline passed. They travel with the status; its message says the same in words.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace oxbow::parallel {

inline constexpr char kBehindRanks[] = "oxbow/behind_ranks";

inline void NameBehind(const std::vector<int>& ranks, absl::Status& status) {
  if (!ranks.empty()) status.SetPayload(kBehindRanks, absl::Cord(absl::StrJoin(ranks, ",")));
}

// Empty: the error does not know.
inline std::vector<int> BehindRanks(const absl::Status& status) {
  std::vector<int> ranks;
  const auto payload = status.GetPayload(kBehindRanks);
  if (!payload.has_value()) return ranks;
  for (const absl::string_view text : absl::StrSplit(std::string(*payload), ',')) {
    int rank = 0;
    if (absl::SimpleAtoi(text, &rank)) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace oxbow::parallel
