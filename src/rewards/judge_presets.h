// SPDX-License-Identifier: Apache-2.0
// The question to a vision language model about a picture, and how its answer becomes a score.
//
//   preset         question                          score
//   unifiedreward  flow_grpo's, with the prompt;     s / 5 of "Final Score: s", s from 1 to 5; the
//                  the picture as 512 x 512          number is read as flow_grpo reads it
//   yes_no         "Is it a beautiful image?", or    P(Yes) / (P(Yes) + P(No)), from the 20
//   likeliest
//                  one's own with {prompt}           first tokens
//
// An answer that has no score is an error; upstream counts it as 0.
// Sources: flow_grpo/rewards.py (unifiedreward_score_sglang) of flow_grpo, rewards/vllm_evaluate.py
// of Flow-Factory, which sends JPEG where PNG is sent here.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/image8.h"
#include "core/reward/scorer.h"
#include "rewards/remote_answer.h"

namespace oxbow::rewards {

enum class JudgePreset { kUnifiedReward, kYesNo };

// unifiedreward or yes_no; kInvalidArgument names both.
absl::StatusOr<JudgePreset> JudgePresetNamed(const std::string& name);

// The question as it is before the prompt is put in at `{prompt}`.
std::string JudgeQuestion(JudgePreset preset);

// The request of the OpenAI chat protocol, as JSON.
std::string JudgeRequest(JudgePreset preset, const std::string& llm, std::string_view question,
                         std::string_view prompt, const Image8& picture);

// kDataLoss if the answer has no score; the message has what the judge said. The note of a score is
// what it said.
absl::StatusOr<reward::Score> JudgeScore(JudgePreset preset, const ChatAnswer& answer);

}  // namespace oxbow::rewards
