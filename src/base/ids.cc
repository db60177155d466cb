// SPDX-License-Identifier: Apache-2.0
#include "base/ids.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace oxbow {
namespace {

constexpr size_t kBytesMax = 128;
constexpr char kMarks[] = "-_.:@/";

}  // namespace

absl::Status CheckWorkerId(std::string_view id) {
  const bool known = std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           std::string_view(kMarks).find(c) != std::string_view::npos;
  });
  if (known && !id.empty() && id.size() <= kBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("worker_id must be 1 to ", kBytesMax, " letters, digits or \"", kMarks,
                   "\" (rollout_worker --id): \"",
                   absl::CHexEscape(std::string(id.substr(0, kBytesMax))), "\""));
}

std::string_view BaseWorkerId(std::string_view id) {
  const size_t dot = id.rfind('.');
  if (dot == std::string_view::npos) return id;
  const std::string_view base = id.substr(0, dot);
  const std::string_view number = id.substr(dot + 1);
  const auto is = [](bool (*kind)(unsigned char)) {
    return [kind](char c) { return kind(static_cast<unsigned char>(c)); };
  };
  const bool counts =
      !number.empty() && std::all_of(number.begin(), number.end(), is(absl::ascii_isdigit));
  const bool named = std::any_of(base.begin(), base.end(), is(absl::ascii_isalpha));
  return counts && named ? base : id;
}

}  // namespace oxbow
