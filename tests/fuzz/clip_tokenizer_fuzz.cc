// SPDX-License-Identifier: Apache-2.0
// For any files: a directory of CLIP's tokenizer is refused, or it encodes any text.
//
//   tokenizer_config.json, text, merges.txt, vocab.json, separated by byte 30
#include <cstddef>
#include <cstdint>

#include "io/clip_tokenizer.h"
#include "tests/fuzz/tokenizer_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  static const fuzz::Scratch scratch;
  const auto parts = fuzz::Parts(data, size, 4);
  scratch.Write("tokenizer_config.json", parts[0]);
  scratch.Write("merges.txt", parts[2]);
  scratch.Write("vocab.json", parts[3]);
  const auto tokenizer = io::ClipTokenizer::Load(scratch.path());
  if (tokenizer.ok()) {
    fuzz::CheckRows(*tokenizer, parts[1]);
  } else {
    fuzz::CheckRefusal(tokenizer.status());
  }
  return 0;
}
