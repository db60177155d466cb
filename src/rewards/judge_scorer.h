// SPDX-License-Identifier: Apache-2.0
// `kind: vlm`: a vision language model that judges pictures, over the OpenAI chat protocol.
//
//   POST URL/chat/completions, one picture a request, as a data URL of PNG
//
// Pictures are asked about side by side, `concurrency` of them at most. A batch has one deadline: a
// judge that hangs costs it once.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/image8.h"
#include "core/reward/scorer.h"
#include "rewards/remote_server.h"

namespace oxbow::rewards {

// The question to a vision language model about a picture, and how its answer becomes a score.
//
//   preset         question                          score
//   unifiedreward  flow_grpo's, with the prompt;     s / 5 of "Final Score: s", s from 1 to 5; the
//                  the picture as 512 x 512          number is read as flow_grpo reads it
//   yes_no         "Is it a beautiful image?", or    P(Yes) / (P(Yes) + P(No)), from the
//                  one's own with {prompt}           20 likeliest first tokens
//
// An answer that has no score is an error; upstream counts it as 0.
// Sources: flow_grpo/rewards.py (unifiedreward_score_sglang) of flow_grpo, rewards/vllm_evaluate.py
// of Flow-Factory, which sends JPEG where PNG is sent here.
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

struct JudgeSettings {
  std::string name;
  std::string preset;                                          // As JudgePresetNamed.
  std::string llm;                                             // The model's name at the server.
  std::string question;                                        // For yes_no; empty: the preset's.
  int concurrency = 32;                                        // Requests at a time.
  absl::Duration time_max = absl::Seconds(kRemoteSecondsMax);  // For one batch, with all tries.
  RemoteServer::Options server = {};  // The URL ends in /v1, as clients of OpenAI name it.
};

// Asks nothing yet. kInvalidArgument for another preset, a question that it does not take, or as
// io::CheckHttpUrl.
absl::StatusOr<std::unique_ptr<reward::Scorer>> MakeJudge(JudgeSettings settings);

}  // namespace oxbow::rewards
