// SPDX-License-Identifier: Apache-2.0
// `kind: vlm`: a vision language model that judges pictures, over the OpenAI chat protocol.
//
//   POST URL/chat/completions, one picture a request, as a data URL of PNG
//   (rewards/judge_presets.h)
//
// Pictures are asked about side by side, `concurrency` of them at most. A batch has one deadline: a
// judge that hangs costs it once.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/reward/scorer.h"
#include "rewards/remote_server.h"

namespace oxbow::rewards {

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
