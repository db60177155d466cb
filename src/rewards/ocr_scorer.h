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
#include "base/image8.h"
#include "core/reward/scorer.h"

namespace oxbow::rewards {

// The reader of the text in a picture: an OCR engine with its data.
class TextReader {
 public:
  virtual ~TextReader() = default;

  // The text in a picture, UTF-8; '\n' between lines; empty if there is none. It depends on picture
  // and settings alone. kInvalidArgument for a picture that the engine does not take. Thread-safe.
  virtual absl::StatusOr<std::string> Read(const Image8& picture) = 0;

  // Readings of equal identities are equal: versions, hashes of data, settings that change text.
  virtual const std::string& identity() const = 0;
  virtual int engines() const = 0;       // Pictures that are read at a time, at most.
  virtual std::string help() const = 0;  // The reader and its method: ends a sentence for people.
};

// kInvalidArgument for a picture that is not grey or RGB of 1 to `side_max` pixels a side.
absl::Status CheckReadable(const Image8& picture, int side_max);

struct OcrSettings {
  std::string name = "ocr";
  std::string variant = "flow_grpo";  // Or flow_factory: without quotation, the whole prompt.
};

// kInvalidArgument for an unknown variant.
absl::StatusOr<std::unique_ptr<reward::Scorer>> MakeOcr(const OcrSettings& settings,
                                                        std::unique_ptr<TextReader> reader);

}  // namespace oxbow::rewards
