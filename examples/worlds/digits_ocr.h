// SPDX-License-Identifier: Apache-2.0
// Rewards of the synthetic task `digits` (examples/worlds/digits.h), all in [0, 1]:
//
//   digits_ocr     1 - min(edit distance of the digits read and wanted, 3) / 3
//   digits_strict  1 if all three digits are right, else 0
//
// An unreadable cell is a wrong digit.
//
//   digits_graded  1 if the digits stand in row 0, all cells are readable and at least as many
//                  digits are right as the prompt's metadata ask for ("digits": 0 to 3), else 0
//
// It makes prompts of different difficulty with one right layout.
#pragma once

#include <memory>

#include "core/reward/scorer.h"

namespace oxbow::worlds {

// Both require a prompt "text ddd" and a grey image of 20 x 8; anything else is kInvalidArgument.
std::unique_ptr<reward::Scorer> MakeDigitsOcr();
std::unique_ptr<reward::Scorer> MakeDigitsStrict();
// Also kInvalidArgument for metadata without "digits".
std::unique_ptr<reward::Scorer> MakeDigitsGraded();

// `digits_row`: the row in which the digits are. It measures diversity; do not train on it.
std::unique_ptr<reward::Scorer> MakeDigitsRow();

}  // namespace oxbow::worlds
