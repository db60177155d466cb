// SPDX-License-Identifier: Apache-2.0
// The reader of the text in a picture: an OCR engine with its data.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/image8.h"

namespace oxbow::rewards {

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

}  // namespace oxbow::rewards
