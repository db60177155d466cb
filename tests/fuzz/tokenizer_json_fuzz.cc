// SPDX-License-Identifier: Apache-2.0
// For any tokenizer.json: each of the two tokenizers refuses it, or encodes any text.
//
//   text, tokenizer.json, separated by byte 30
#include <cstddef>
#include <cstdint>

#include "io/clip_tokenizer.h"
#include "io/t5_tokenizer.h"
#include "tests/fuzz/tokenizer_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  static const fuzz::Scratch scratch;
  const auto parts = fuzz::Parts(data, size, 2);
  scratch.Write("tokenizer.json", parts[1]);
  const auto check = [&](const auto& tokenizer) {
    if (tokenizer.ok()) {
      fuzz::CheckRows(*tokenizer, parts[0]);
    } else {
      fuzz::CheckRefusal(tokenizer.status());
    }
  };
  check(io::ClipTokenizer::Load(scratch.path()));
  check(io::T5Tokenizer::Load(scratch.path()));
  return 0;
}
