// SPDX-License-Identifier: Apache-2.0
// The reward `ocr`: how well the text that an engine reads in a picture matches the text that the
// prompt asks for (core/reward/ocr_rule.h), 0 to 1. The note of a score is the text that was read.
//
// The target is `text` of the prompt's metadata, else what stands between its first quotation
// marks. Of a video every fourth frame is read.
//
// Source of the rule: flow_grpo and Flow-Factory, which read with PaddleOCR. Scores of another
// engine are not theirs. There a picture on which the engine fails scores 0; here it has no score.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/reward/scorer.h"
#include "rewards/text_reader.h"

namespace oxbow::rewards {

struct OcrSettings {
  std::string name = "ocr";
  std::string variant = "flow_grpo";  // Or flow_factory: without quotation, the whole prompt.
};

// kInvalidArgument for an unknown variant.
absl::StatusOr<std::unique_ptr<reward::Scorer>> MakeOcr(const OcrSettings& settings,
                                                        std::unique_ptr<TextReader> reader);

}  // namespace oxbow::rewards
