// SPDX-License-Identifier: Apache-2.0
// "Did you mean": the name that a typing error most likely meant.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace oxbow {

// Number of insertions, deletions and substitutions that turn `a` into `b` (Levenshtein).
int EditDistance(std::string_view a, std::string_view b);

// The candidate nearest to `name`, or "" if none is near enough to be a typing error: at most 2
// edits or a third of the name. Ties go to the earlier candidate.
std::string NearestName(std::string_view name, const std::vector<std::string>& candidates);

// "; did you mean `configs/digits.yaml`?", where `missing` leads to nothing and each part of it
// that is not there has a nearest name in its folder; else "".
std::string DidYouMean(const std::filesystem::path& missing);

}  // namespace oxbow
