// What one step of pretraining on the world `compose` sees, as a pure function of (seed, step).
//
// Captions lie as those of `digits` do (pretraining_batch.h): with probability `caption_noise`
// each, a colour, a shape and the relation of the picture are drawn anew. Where the objects stand
// is drawn among the four places that the drawn relation allows.
#pragma once

#include <cstdint>
#include <vector>

#include "core/task/compose.h"
#include "core/task/pretraining_batch.h"

namespace oxbow::task {

struct ComposeExample {
  Scene caption;      // What the prompt says.
  Arrangement drawn;  // What the picture shows.
  float time = 0;     // Noise level in (0, 1).
};

// Captions are drawn from `prompts` alone. Requires prompts.
std::vector<ComposeExample> ComposeBatch(const BatchOptions& options, int64_t step,
                                         const std::vector<Scene>& prompts);

}  // namespace oxbow::task
