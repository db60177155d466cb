// SPDX-License-Identifier: Apache-2.0
// Reads text in pictures with PP-OCRv5 or v6 (PaddleOCR 3): a network that finds lines, and one
// that reads them. What is around them is PaddleX's pipeline OCR without its classifiers of
// orientation, as Flow-Factory calls it.
//
//   DIRECTORY/det   the detector: config.json, model.safetensors, perhaps graph.json
//   DIRECTORY/rec   the recogniser: the same, and preprocessor_config.json with its characters
//
// as PaddlePaddle/PP-OCRv5_{mobile,server}_{det,rec}_safetensors and those of PP-OCRv6 have them;
// models/ppocr_v6_tiny is one. The networks learned blue, green, red; flow_grpo and Flow-Factory
// hand red, green, blue over, and so does this. Sees no torch header.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "rewards/ocr_scorer.h"

namespace oxbow::rewards {

struct PpocrSettings {
  std::filesystem::path directory;
  std::string device;         // As model.device; empty: cpu.
  std::string dtype;          // f32, bf16 or f16; empty: f32.
  double confidence_min = 0;  // Lines of less are not read. flow_grpo's PaddleOCR 2 has 0.5.
};

// The errors of settings that need no file: kInvalidArgument.
absl::Status CheckPpocr(const PpocrSettings& settings);

// Loads both networks. The errors of CheckPpocr and OpenNetwork; kFailedPrecondition for a
// directory of another kind of model, and for characters that are not those of the recogniser.
//
// Read: kInvalidArgument for a picture that is not grey or RGB of 1 to 4000 pixels a side;
// kFailedPrecondition if the detector finds more regions than text has; kInternal for outputs that
// are not finite.
absl::StatusOr<std::unique_ptr<TextReader>> OpenPpocr(const PpocrSettings& settings);

}  // namespace oxbow::rewards
