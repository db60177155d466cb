// SPDX-License-Identifier: Apache-2.0
#include "core/reward/line_decoder.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json.h"

namespace oxbow::reward {

absl::StatusOr<std::vector<std::string>> ParseCharacters(std::string_view config_json,
                                                         int64_t classes) {
  using Json = nlohmann::json;
  const Json config = ParseJson(config_json);
  if (!config.is_object()) return absl::InvalidArgumentError("is not a JSON object");
  const auto list = config.find("character_list");
  const auto is_string = [](const Json& item) { return item.is_string(); };
  if (list == config.end() || !list->is_array() ||
      !std::all_of(list->begin(), list->end(), is_string)) {
    return absl::InvalidArgumentError("character_list is not a list of strings");
  }
  if (std::cmp_not_equal(list->size(), classes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has ", list->size(), " characters, but the recogniser tells ", classes, " apart"));
  }
  return list->get<std::vector<std::string>>();
}

LineText DecodeLine(absl::Span<const int64_t> classes, absl::Span<const float> probabilities,
                    const std::vector<std::string>& characters) {
  LineText line;
  double sum = 0;
  int kept = 0;
  for (size_t step = 0; step < classes.size(); ++step) {
    if (classes[step] == 0 || (step > 0 && classes[step] == classes[step - 1])) continue;
    line.text += characters.at(static_cast<size_t>(classes[step]));
    sum += probabilities[step];
    ++kept;
  }
  if (kept > 0) line.confidence = sum / kept;
  return line;
}

}  // namespace oxbow::reward
