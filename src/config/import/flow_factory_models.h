// SPDX-License-Identifier: Apache-2.0
// The models of Flow-Factory's files that run here, and what their adapters there imply.
#pragma once

#include "config/import/translation.h"

namespace oxbow::config {

struct ForeignModel {
  const char* type;     // model.model_type
  const char* targets;  // Its default LoRA modules; nullptr: those of configs/defaults.yaml.
  const char*
      prompt_tokens;  // prompts.t5_length; nullptr: the default, or tools/encode_prompts decides.
  const char* guidance_key;  // The key that train.guidance_scale becomes.
  double guidance_min;       // Below it there is no guidance.
  const char* schedule;      // sampling.schedule
  bool draws_videos = false;
  const char* differs = nullptr;  // A difference that the user should know.
};

// The row of model.model_type, whose default is theirs. Refuses the file where there is none.
const ForeignModel& ForeignModelOf(const Translation& t);
void CheckForeignModel(Translation& t);

}  // namespace oxbow::config
