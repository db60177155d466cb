// SPDX-License-Identifier: Apache-2.0
// GenEval's rules (arXiv:2310.11513): whether the objects found in an image are those that its
// prompt asks for.
//
// Objects of a class count by score, at most 16, above .3 (.9 if the tag is "counting").
//
//   official    right if every `include` has `count` objects at least, its best `count` ones have
//               its colour and stand where `position` says to each of the entry that it names, and
//               no `exclude` has `count` objects
//   flow_grpo   the training score of Flow-GRPO (arXiv:2505.05470): the mean of parts. An `include`
//               adds 1 - |found - count| / count, which may be negative; if found = count, the same
//               for those of its colour; if these are right, too, and there is a position, 1, with
//               a 0 before it where the position is wrong: as published. `exclude` is ignored.
//
// A relation holds if a component of the unit vector between the centres is beyond .5, once each
// component of the offset is shortened by a tenth of the sum of both sizes. All in float32.
//
// Source: evaluation/evaluate_images.py of github.com/djghosh13/geneval and
// reward_server/gen_eval.py of github.com/yifan123/reward-server.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "core/reward/geneval_prompt.h"

namespace oxbow::reward {

enum class GenevalVariant { kOfficial, kFlowGrpo };

// One finding of a detector.
struct Detection {
  int thing = 0;
  std::array<float, 4> box = {};  // x0, y0, x1, y1 in pixels; x1 and y1 are behind the last.
  float score = 0;
};

// A detection counts if its score is greater.
float GenevalThreshold(std::string_view tag);

// Class -> indices of the detections that count, best first; of equal ones the last is first.
using CountedDetections = std::map<int, std::vector<size_t>>;
CountedDetections CountDetections(absl::Span<const Detection> detections, std::string_view tag);

// Indices of the detections whose colours the verdict needs, ascending.
std::vector<size_t> DetectionsToColour(const GenevalPrompt& prompt,
                                       const CountedDetections& counted, GenevalVariant variant);

struct GenevalVerdict {
  bool correct = false;
  double score = 0;    // official: 1 if correct, else 0.
  std::string reason;  // The faults, a line each, in upstream's words. Empty if there are none.
};

// `colours` (detection -> colour) has all of DetectionsToColour.
GenevalVerdict JudgeGeneval(const GenevalPrompt& prompt, absl::Span<const Detection> detections,
                            const CountedDetections& counted, const std::map<size_t, int>& colours,
                            GenevalVariant variant);

}  // namespace oxbow::reward
