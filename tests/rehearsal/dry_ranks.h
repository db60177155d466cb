// SPDX-License-Identifier: Apache-2.0
// The first of several ranks, alone: the others bring zeros.
#pragma once

#include <memory>

#include "core/parallel/ranks.h"

namespace oxbow::rehearsal {

// Collectives of a dry device's tensors change nothing and count as kernels that read and write
// what NCCL's do. Numbers in host memory are this rank's own: they stay there, since a dry device
// would lose them.
std::unique_ptr<parallel::Ranks> MakeDryRanks(int size);

}  // namespace oxbow::rehearsal
