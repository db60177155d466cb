// What a forward pass of the SD3 transformer keeps for its backward pass, counted by hand from the
// network: an upper bound, known before any memory is taken.
#pragma once

#include <cstdint>

#include "core/model/architecture.h"
#include "core/model/sd3.h"

namespace oxbow::model {

// Bytes that a forward pass keeps, at most; the peak of its backward pass is within a quarter of
// it. Casts of weights are not counted. An adapter keeps less than all weights.
uint64_t Sd3ActivationBytes(const Sd3Params& params, const Execution& execution,
                            const ForwardSize& size);

}  // namespace oxbow::model
