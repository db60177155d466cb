// SPDX-License-Identifier: Apache-2.0
// For any bytes that a server of others may answer: nothing breaks, and a score is a finite number.
#include <cmath>
#include <string_view>

#include "base/check.h"
#include "rewards/judge_scorer.h"
#include "rewards/remote_server.h"
#include "tests/fuzz/bytes_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  const std::string_view text = fuzz::Text(data, size);
  constexpr size_t kItems = 3;
  if (const auto scores = rewards::RewardsOfAnswer(text, kItems); scores.ok()) {
    OXBOW_CHECK(scores->size() == kItems);
    for (const auto& score : *scores) OXBOW_CHECK(!score.ok() || std::isfinite(score->value));
  }
  const auto chat = rewards::ReadChatAnswer(text);
  for (const auto preset : {rewards::JudgePreset::kUnifiedReward, rewards::JudgePreset::kYesNo}) {
    if (!chat.ok()) break;
    const auto score = rewards::JudgeScore(preset, *chat);
    OXBOW_CHECK(!score.ok() || (score->value >= 0 && score->value <= 1.2)) << score->value;
  }
  for (const char c : rewards::ReasonOf(text)) OXBOW_CHECK(c >= ' ' && c <= '~');
  return 0;
}
