// The reward `ocr`: how well the text that Tesseract reads in a picture matches the text that the
// prompt asks for (core/reward/ocr_rule.h), 0 to 1. The note of a score is the text that was read.
//
// The target is `text` of the prompt's metadata, else what stands between its first quotation
// marks. Of a video every fourth frame is read. Pictures under 64 pixels in height are enlarged
// three times, framed in white and read as one line, so that small worlds can be trained with the
// same engine (rewards/tesseract_reader.h).
//
// Source of the rule: flow_grpo and Flow-Factory, which read with PaddleOCR. Scores of another
// engine are not theirs. There a picture on which the engine fails scores 0; here it has no score.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/reward/scorer.h"
#include "rewards/tesseract_reader.h"

namespace oxbow::rewards {

struct OcrSettings {
  std::string name = "ocr";
  std::string variant = "flow_grpo";  // Or flow_factory: without quotation, the whole prompt.
  TesseractSettings tesseract;
};

// kInvalidArgument for an unknown variant, else as TesseractReader::Create.
absl::StatusOr<std::unique_ptr<reward::Scorer>> MakeOcr(const OcrSettings& settings);

}  // namespace oxbow::rewards
