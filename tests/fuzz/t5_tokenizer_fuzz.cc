// SPDX-License-Identifier: Apache-2.0
// For any files: a directory of T5's tokenizer is refused, or it encodes any text. The vocabulary
// is a sentencepiece model with its character map.
//
//   tokenizer_config.json, text, spiece.model, separated by byte 30
#include <cstddef>
#include <cstdint>

#include "io/t5_tokenizer.h"
#include "tests/fuzz/tokenizer_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  static const fuzz::Scratch scratch;
  const auto parts = fuzz::Parts(data, size, 3);
  scratch.Write("tokenizer_config.json", parts[0]);
  scratch.Write("spiece.model", parts[2]);
  const auto tokenizer = io::T5Tokenizer::Load(scratch.path());
  if (tokenizer.ok()) {
    fuzz::CheckRows(*tokenizer, parts[1]);
  } else {
    fuzz::CheckRefusal(tokenizer.status());
  }
  return 0;
}
