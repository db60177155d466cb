// SPDX-License-Identifier: Apache-2.0
// A prompt of GenEval (arXiv:2310.11513) and what it asks for, from its metadata:
//
//   {"tag": "position", "include": [{"class": "bench", "count": 1},
//                                   {"class": "dog", "count": 1, "color": "red",
//                                    "position": ["left of", 0]}],
//    "exclude": [{"class": "bench", "count": 2}]}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace oxbow::reward {

// The things of COCO in the order of detectors, under GenEval's names; its colours; its relations.
absl::Span<const char* const> GenevalThings();
absl::Span<const char* const> GenevalColours();
absl::Span<const char* const> GenevalRelations();

struct GenevalPosition {
  int relation = 0;   // Index into GenevalRelations.
  size_t target = 0;  // An earlier entry of `include`.
};

struct GenevalDemand {
  int thing = 0;  // Index into GenevalThings.
  int64_t count = 1;
  std::optional<int> colour;  // Index into GenevalColours.
  std::optional<GenevalPosition> position;
};

struct GenevalPrompt {
  std::string tag;  // May be empty.
  std::vector<GenevalDemand> include;
  std::vector<GenevalDemand> exclude;
};

// kInvalidArgument: not a JSON object, no `include`, an unknown class or colour, a count outside of
// 1..1000, a position relative to no earlier entry, more than 100 entries. Other keys are ignored.
absl::StatusOr<GenevalPrompt> ParseGenevalPrompt(std::string_view metadata_json);

}  // namespace oxbow::reward
