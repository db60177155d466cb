// SPDX-License-Identifier: Apache-2.0
// Fresh weights of an SD3 transformer. Values depend on the stream's key alone.
//
//   "linear" of a module whose name has "norm" in it   0: AdaLN starts as the identity
//   proj_out of the whole network                      0: the velocity starts at 0
//   other weights of norms                             1
//   tensors that are no module's weight or bias        N(0, 1 / last size)
//   all others                                         uniform in +-1/sqrt(in), as PyTorch
//   positions                                          diffusers' 2-D sine-cosine table
#pragma once

#include "base/philox.h"
#include "core/model/architecture.h"
#include "core/model/parameters.h"

namespace oxbow::model {

// The position table of an SD3: in every checkpoint, never trained.
inline constexpr char kPositionTable[] = "pos_embed.pos_embed";

NamedTensors InitialWeights(const Architecture& sd3, RandomStream& random);

}  // namespace oxbow::model
