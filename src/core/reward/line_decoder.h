// SPDX-License-Identifier: Apache-2.0
// Greedy decoding of a line of text that a network read (CTC, Graves et al. 2006): the most
// probable character of each step, without repeats and without the first one, which stands for
// none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace oxbow::reward {

struct LineText {
  std::string text;       // UTF-8.
  double confidence = 0;  // Mean probability of the characters that were kept; 0 if none was.
};

// The characters of a recogniser that tells `classes` apart: `character_list` of a
// preprocessor_config.json, which begins with a name for none. kInvalidArgument says what is wrong.
absl::StatusOr<std::vector<std::string>> ParseCharacters(std::string_view config_json,
                                                         int64_t classes);

// `classes` and their `probabilities` by step. Requires classes within `characters`.
LineText DecodeLine(absl::Span<const int64_t> classes, absl::Span<const float> probabilities,
                    const std::vector<std::string>& characters);

}  // namespace oxbow::reward
