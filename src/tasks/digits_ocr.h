// Rewards of the synthetic task `digits` (tasks/digits.h), both in [0, 1]:
//
//   digits_ocr     1 - min(edit distance of the digits read and wanted, 3) / 3
//   digits_strict  1 if all three digits are right, else 0
//
// An unreadable cell is a wrong digit.
#pragma once

#include <memory>

#include "core/reward/scorer.h"

namespace oxbow::reward {

// Both require a prompt "text ddd" and a grey image of 20 x 8; anything else is kInvalidArgument.
std::unique_ptr<Scorer> MakeDigitsOcr();
std::unique_ptr<Scorer> MakeDigitsStrict();

// `digits_row`: the row in which the digits are. It measures diversity; do not train on it.
std::unique_ptr<Scorer> MakeDigitsRow();

}  // namespace oxbow::reward
