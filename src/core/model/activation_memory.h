// What a forward pass of the SD3 transformer keeps for its backward pass, counted by hand from the
// network: an upper bound, known before any memory is taken.
#pragma once

#include <cstdint>

#include "core/model/sd3.h"

namespace oxbow::model {

struct ForwardSize {
  int64_t rows = 1;           // Of one backward pass; guidance doubles them.
  bool on_cpu = true;         // Where few rows are padded.
  int64_t latent_height = 0;  // In latents, not patches.
  int64_t latent_width = 0;
  int64_t prompt_tokens = 0;
};

// Bytes that a forward pass keeps, at most; the peak of its backward pass is within a quarter of
// it. Casts of weights are not counted. An adapter keeps less than all weights.
uint64_t Sd3ActivationBytes(const Sd3Params& params, const Sd3Execution& execution,
                            const ForwardSize& size);

}  // namespace oxbow::model
