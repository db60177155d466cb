// SPDX-License-Identifier: Apache-2.0
// For any tokenizer.json: each of the three tokenizers refuses it, or encodes any text.
//
//   text, tokenizer.json, separated by byte 30
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "io/bpe_tokenizer.h"
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
  const auto pairs = io::BpeTokenizer::Load(scratch.path());
  if (!pairs.ok()) fuzz::CheckRefusal(pairs.status());
  // A language model's ids have no end and no length of their own.
  for (const int64_t id : pairs.ok() ? pairs->Ids(parts[0]) : std::vector<int64_t>()) {
    OXBOW_CHECK(id >= 0 && id < pairs->size()) << id << " of " << pairs->size();
  }
  return 0;
}
