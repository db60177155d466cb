// SPDX-License-Identifier: Apache-2.0
#include "core/reward/ocr_rule.h"

#include <unicode/locid.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status_macros.h"

namespace oxbow::reward {
namespace {

constexpr char kTextKey[] = "text";

// Without spaces, in lower case, one element per code point.
std::u32string NormalisedAnswer(const std::string& text) {
  icu::UnicodeString unicode = icu::UnicodeString::fromUTF8(text);
  unicode.findAndReplace(icu::UnicodeString(u' '), icu::UnicodeString());
  unicode.toLower(icu::Locale::getRoot());
  std::u32string points;
  for (int32_t i = 0; i < unicode.length(); i = unicode.moveIndex32(i, 1)) {
    points.push_back(static_cast<char32_t>(unicode.char32At(i)));
  }
  return points;
}

// min(Levenshtein(a, b), |a|): no need to count when the lengths alone differ by as much.
size_t CappedDistance(const std::u32string& a, const std::u32string& b) {
  if (b.size() >= 2 * a.size()) return a.size();
  std::vector<size_t> row(a.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t j = 1; j <= b.size(); ++j) {
    size_t diagonal = std::exchange(row[0], j);
    for (size_t i = 1; i <= a.size(); ++i) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[i];
      row[i] = std::min({replaced, row[i] + 1, row[i - 1] + 1});
    }
  }
  return std::min(row.back(), a.size());
}

double RewardOf(size_t distance, size_t length) {
  return 1 - static_cast<double>(distance) / static_cast<double>(length);
}

absl::StatusOr<std::u32string> CheckedTarget(const std::string& target) {
  std::u32string points = NormalisedAnswer(target);
  if (points.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text that an image should show is empty: \"", target, "\""));
  }
  if (points.size() > kOcrTargetMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text that an image should show is longer than ", kOcrTargetMax,
                     " characters: ", points.size()));
  }
  return points;
}

// `text` of the metadata, or empty if they have none.
absl::StatusOr<std::string> TextOfMetadata(const std::string& metadata_json) {
  if (metadata_json.empty()) return std::string();
  const auto metadata = ParseJson(metadata_json);
  if (!metadata.is_object()) {
    return absl::InvalidArgumentError("the prompt's metadata are not a JSON object: " +
                                      metadata_json.substr(0, 80));
  }
  const auto text = metadata.find(kTextKey);
  if (text == metadata.end()) return std::string();
  if (!text->is_string()) {
    return absl::InvalidArgumentError("`text` in the prompt's metadata is not a string: " +
                                      text->dump().substr(0, 80));
  }
  return text->get<std::string>();
}

absl::StatusOr<std::string> FindTarget(const std::string& prompt, const std::string& metadata_json,
                                       OcrVariant variant) {
  OXBOW_ASSIGN_OR_RETURN(std::string text, TextOfMetadata(metadata_json));
  if (!text.empty()) return text;
  const size_t open = prompt.find('"');
  if (open != std::string::npos) {
    return prompt.substr(open + 1, prompt.find('"', open + 1) - open - 1);
  }
  if (variant == OcrVariant::kFlowFactory) return prompt;
  return absl::InvalidArgumentError(
      absl::StrCat("nothing says which text the image should show: give the prompt metadata {\"",
                   kTextKey, "\": ...} or put the text in double quotes: ", prompt.substr(0, 200)));
}

}  // namespace

absl::StatusOr<std::string> OcrTarget(const std::string& prompt_text,
                                      const std::string& prompt_metadata_json, OcrVariant variant) {
  OXBOW_ASSIGN_OR_RETURN(std::string target,
                         FindTarget(prompt_text, prompt_metadata_json, variant));
  OXBOW_RETURN_IF_ERROR(CheckedTarget(target).status());
  return target;
}

absl::StatusOr<double> OcrReward(const std::string& target, const std::string& read) {
  OXBOW_ASSIGN_OR_RETURN(const std::u32string wanted, CheckedTarget(target));
  const std::u32string found = NormalisedAnswer(read);
  const bool contained = found.find(wanted) != std::u32string::npos;
  return RewardOf(contained ? 0 : CappedDistance(wanted, found), wanted.size());
}

absl::StatusOr<double> OcrVideoReward(const std::string& target,
                                      const std::vector<std::string>& read) {
  OXBOW_ASSIGN_OR_RETURN(const std::u32string wanted, CheckedTarget(target));
  double sum = 0;
  size_t counted = 0;
  for (const std::string& frame : read) {
    const double reward = RewardOf(CappedDistance(wanted, NormalisedAnswer(frame)), wanted.size());
    if (reward <= 0) continue;
    sum += reward;
    ++counted;
  }
  return counted == 0 ? 0 : sum / static_cast<double>(counted);
}

}  // namespace oxbow::reward
