// SPDX-License-Identifier: Apache-2.0
// Fresh weights of each architecture, for pretraining from nothing.
//
// Linear layers as PyTorch initialises them (uniform in +-1/sqrt(in)), except where stated. Values
// depend on the stream's key alone.
#pragma once

#include "base/philox.h"
#include "core/model/clip_text.h"
#include "core/model/parameters.h"
#include "core/model/sd3.h"
#include "core/model/t5.h"

namespace oxbow::model {

// Weights of any diffusers transformer, by the names of its tensors:
//
//   "linear" of a module whose name has "norm" in it   0: AdaLN starts as the identity
//   proj_out of the whole network                      0: the velocity starts at 0
//   other weights of norms                             1
//   tensors that are no module's weight or bias        N(0, 1 / last size)
//   all others                                         uniform in +-1/sqrt(in)
//
// Requires weights for all biases that are not 0. Buffers have no rule: leave them out.
NamedTensors InitialTransformerWeights(const Shapes& shapes, RandomStream& random);

// The same, and diffusers' 2-D sine-cosine table of positions.
NamedTensors InitialSd3Weights(const Sd3Params& params, RandomStream& random);

// Token and position embeddings N(0, embedding_std). The customary .02 is too small for short
// prompts and narrow models: positions then never get through to the image.
NamedTensors InitialClipTextWeights(const ClipTextParams& params, double embedding_std,
                                    RandomStream& random);

// As for CLIP. The bias of a distance is N(0, 1): order is all that tells equal tokens apart.
NamedTensors InitialT5Weights(const T5Params& params, double embedding_std, RandomStream& random);

}  // namespace oxbow::model
