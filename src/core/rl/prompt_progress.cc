// SPDX-License-Identifier: Apache-2.0
#include "core/rl/prompt_progress.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace oxbow::rl {

size_t LevelOf(std::span<const double> rewards, double full) {
  OXBOW_CHECK(full > 0 && !rewards.empty()) << rewards.size() << " rewards, full is " << full;
  double sum = 0;
  for (const double reward : rewards) sum += std::clamp(reward / full, 0.0, 1.0);
  const auto count = static_cast<double>(rewards.size());
  if (sum >= count) return kPromptLevels - 1;
  return std::min<size_t>(static_cast<size_t>(std::ceil(4 * sum / count)), kPromptLevels - 2);
}

void PromptProgress::See(PromptId prompt, size_t level) {
  OXBOW_CHECK(level < kPromptLevels) << "level " << level;
  const auto [seen, is_new] = prompts_.try_emplace(prompt, PromptLevels{level, level, false});
  if (is_new) return;
  seen->second.latest = level;
  seen->second.again = true;
}

PromptProgress::Migration PromptProgress::Counts() const {
  Migration counts{};
  for (const auto& [prompt, levels] : prompts_) ++counts[levels.first][levels.latest];
  return counts;
}

std::optional<double> PromptProgress::SolvedShare() const {
  double unsolved = 0, solved = 0;
  for (const auto& [prompt, levels] : prompts_) {
    if (levels.first > 0 || !levels.again) continue;
    ++unsolved;
    solved += levels.latest > 0 ? 1 : 0;
  }
  if (unsolved == 0) return std::nullopt;
  return solved / unsolved;
}

}  // namespace oxbow::rl
