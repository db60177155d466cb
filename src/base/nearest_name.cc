// SPDX-License-Identifier: Apache-2.0
#include "base/nearest_name.h"

#include <algorithm>
#include <numeric>

namespace oxbow {

int EditDistance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

std::string NearestName(std::string_view name, const std::vector<std::string>& candidates) {
  int best = std::max(2, static_cast<int>(name.size()) / 3) + 1;
  std::string nearest;
  for (const std::string& candidate : candidates) {
    const int distance = EditDistance(name, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string DidYouMean(const std::filesystem::path& missing) {
  namespace fs = std::filesystem;
  fs::path found;
  std::error_code error;
  for (const fs::path& part : missing) {
    if (fs::exists(found / part, error)) {
      found /= part;
      continue;
    }
    std::vector<std::string> names;
    fs::directory_iterator entries(found.empty() ? "." : found, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      names.push_back(entries->path().filename().string());
    }
    std::sort(names.begin(), names.end());
    const std::string nearest = NearestName(part.string(), names);
    if (nearest.empty()) return "";
    found /= nearest;
  }
  return found == missing ? "" : "; did you mean `" + found.string() + "`?";
}

}  // namespace oxbow
