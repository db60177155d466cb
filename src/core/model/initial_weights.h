// Fresh weights of each architecture, for pretraining from nothing.
//
// Linear layers as PyTorch initialises them (uniform in +-1/sqrt(in)), except where stated. Values
// depend on the stream's key alone.
#pragma once

#include "base/philox.h"
#include "core/model/clip_text.h"
#include "core/model/parameters.h"
#include "core/model/sd3.h"

namespace oxbow::model {

// AdaLN linears, norm_out.linear and proj_out are zero, so that every block starts as the identity.
// The position table is diffusers' 2-D sine-cosine table.
NamedTensors InitialSd3Weights(const Sd3Params& params, RandomStream& random);

// Token and position embeddings N(0, embedding_std). The customary .02 is too small for short
// prompts and narrow models: positions then never get through to the image.
NamedTensors InitialClipTextWeights(const ClipTextParams& params, double embedding_std,
                                    RandomStream& random);

}  // namespace oxbow::model
