// The examples of one pretraining step on the task `compose`, a pure function of (seed, step).
//
// Captions are wrong as those of `digits` are (pretraining_batch.h): each colour and shape, and the
// relation of the image are replaced by random ones with probability `caption_noise`. The objects'
// places are drawn from the four that the drawn relation allows.
#pragma once

#include <cstdint>
#include <vector>

#include "tasks/compose.h"
#include "tasks/pretraining_batch.h"

namespace oxbow::tasks {

struct ComposeExample {
  Scene caption;      // What the prompt says.
  Arrangement drawn;  // What the image shows.
  float time = 0;     // Noise level in (0, 1).
};

// Captions are drawn only from `prompts`. Requires prompts.
std::vector<ComposeExample> ComposeBatch(const BatchOptions& options, int64_t step,
                                         const std::vector<Scene>& prompts);

}  // namespace oxbow::tasks
