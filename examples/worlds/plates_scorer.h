// SPDX-License-Identifier: Apache-2.0
// Rewards of the synthetic task `plates` (examples/worlds/plates.h) by its own reader, both in [0,
// 1]. They are witnesses of runs that an OCR engine's reward trains: observe them.
//
//   plates_reader  1 - min(edit distance of the digits read and wanted, 3) / 3
//   plates_strict  1 if all three digits are right, else 0
//
// An unreadable cell is a wrong digit.
#pragma once

#include <memory>

#include "core/reward/scorer.h"

namespace oxbow::worlds {

// Both require a prompt `text "ddd"` and a grey image of 32 x 16; anything else is
// kInvalidArgument.
std::unique_ptr<reward::Scorer> MakePlatesReader();
std::unique_ptr<reward::Scorer> MakePlatesStrict();

}  // namespace oxbow::worlds
