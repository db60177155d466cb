#include "core/model/lora_targets.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/nearest_name.h"

namespace oxbow::model {
namespace {

// The name or end of a name with the fewest edits; among equals one with as many
// parts as the target.
std::string NearestTarget(const std::string& target, const std::vector<std::string>& modules) {
  std::set<std::string> candidates;
  for (const std::string& module : modules) {
    for (size_t begin = 0; begin != std::string::npos;) {
      candidates.insert(module.substr(begin));
      const size_t dot = module.find('.', begin);
      begin = dot == std::string::npos ? dot : dot + 1;
    }
  }
  const auto parts = [](const std::string& name) {
    return std::count(name.begin(), name.end(), '.');
  };
  std::string nearest;
  int fewest = std::numeric_limits<int>::max();
  for (const std::string& candidate : candidates) {
    const int edits =
        2 * EditDistance(target, candidate) + (parts(candidate) == parts(target) ? 0 : 1);
    if (edits >= fewest) continue;
    fewest = edits;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> MatchTargets(const std::vector<std::string>& modules,
                                                      const std::vector<std::string>& targets) {
  std::set<std::string> matched;
  for (const std::string& target : targets) {
    bool any = false;
    for (const std::string& module : modules) {
      if (target.empty() || (module != target && !module.ends_with("." + target))) continue;
      matched.insert(module);
      any = true;
    }
    if (!any) {
      return absl::InvalidArgumentError(
          absl::StrCat("LoRA target matches no linear layer, did you mean `",
                       NearestTarget(target, modules), "`? (", target, ")"));
    }
  }
  if (matched.empty()) return absl::InvalidArgumentError("LoRA has no targets");
  return std::vector<std::string>(matched.begin(), matched.end());
}

}  // namespace oxbow::model
