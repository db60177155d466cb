// SPDX-License-Identifier: Apache-2.0
// The text rule of OCR rewards: how well text that was read in an image matches the text that the
// prompt asks for.
//
//   a, b = target and text read, without spaces (U+0020 alone), in lower case;  n = |a|
//   d = 0                       if b contains a  (images; frames have no such clause)
//   d = min(Levenshtein(a, b), n)  else
//   reward = 1 - d / n,  0..1
//
// Lengths and distances count Unicode code points, as Python's strings do. Lower case is Unicode's
// full mapping without a language, final sigma included, which is Python's str.lower(): that of
// ICU's version of Unicode, so characters assigned after the older of the two versions may differ.
//
// Source: flow_grpo/ocr.py of flow_grpo and src/flow_factory/rewards/ocr.py of Flow-Factory. Unlike
// these, a prompt without a target, or with an empty one, is an error and never a score.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::reward {

// Where the target comes from if neither metadata nor a quotation gives one.
enum class OcrVariant {
  kFlowGrpo,     // An error.
  kFlowFactory,  // The whole prompt.
};

inline constexpr size_t kOcrTargetMax = 4096;  // Code points, without spaces.

// The target: `text` of the metadata (a JSON object, or empty), else what follows the first '"' of
// the prompt up to the next one or the end, else by variant. kInvalidArgument: there is none, it
// has no characters but spaces or more than kOcrTargetMax, or the metadata is malformed.
absl::StatusOr<std::string> OcrTarget(const std::string& prompt_text,
                                      const std::string& prompt_metadata_json, OcrVariant variant);

// The rule for one image. kInvalidArgument for a target that OcrTarget would refuse.
absl::StatusOr<double> OcrReward(const std::string& target, const std::string& read);

inline constexpr uint32_t kOcrFrameStride = 4;  // Frames 0, 4, 8, .. of a video are read.

// flow_grpo's rule for a video: the mean over frames whose own reward is above 0; 0 if there are
// none. `read` has one text per frame that is read. kInvalidArgument as OcrReward.
absl::StatusOr<double> OcrVideoReward(const std::string& target,
                                      const std::vector<std::string>& read);

}  // namespace oxbow::reward
