// SPDX-License-Identifier: Apache-2.0
// Rewards of the synthetic task `compose` (tasks/compose.h), computed from the pixels.
#pragma once

#include <memory>

#include "core/reward/scorer.h"

namespace oxbow::reward {

std::unique_ptr<Scorer> MakeCompose();        // Partial credit, as in GenEval.
std::unique_ptr<Scorer> MakeComposeStrict();  // 1 if everything is right.

}  // namespace oxbow::reward
