// SPDX-License-Identifier: Apache-2.0
// Rewards of the synthetic task `clip` (examples/worlds/clips.h), all in [0, 1]:
//
//   clip_ocr     share of right digits in a frame; of a video the mean over its frames, as the
//                video_ocr of flow_grpo
//   clip_steady  1 if all frames show one number, in one row, that moves by even steps, else 0
//
// A frame that cannot be read has no right digit. clip_steady does not ask which number it is:
// observe it and do not train on it.
#pragma once

#include <memory>

#include "core/reward/scorer.h"

namespace oxbow::worlds {

// Both require a prompt "clip dd" and grey frames of 20 x 8, clip_steady two of them at least;
// anything else is kInvalidArgument.
std::unique_ptr<reward::Scorer> MakeClipOcr();
std::unique_ptr<reward::Scorer> MakeClipSteady();

}  // namespace oxbow::worlds
