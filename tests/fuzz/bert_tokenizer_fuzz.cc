// SPDX-License-Identifier: Apache-2.0
// For any vocabulary: it is refused, or it encodes any text.
//
//   text, vocab.txt, separated by byte 30
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "io/bert_tokenizer.h"
#include "tests/fuzz/tokenizer_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  constexpr int64_t kLong = 64;
  static const fuzz::Scratch scratch;
  const auto parts = fuzz::Parts(data, size, 2);
  scratch.Write("vocab.txt", parts[1]);
  const auto tokenizer = io::BertTokenizer::Load(scratch.path(), {"[DEC]", "[ENC]"});
  if (!tokenizer.ok()) {
    fuzz::CheckRefusal(tokenizer.status());
    return 0;
  }
  // Between the first id and the last: all of the vocabulary, a shorter row being the start of a
  // longer one.
  const std::vector<int64_t> row = tokenizer->Encode(parts[0], kLong);
  OXBOW_CHECK(row.size() >= 2 && row.size() <= size_t{kLong}) << row.size();
  for (const int64_t id : row) {
    OXBOW_CHECK(id >= 0 && id < tokenizer->size()) << id << " of " << tokenizer->size();
  }
  const std::vector<int64_t> start = tokenizer->Encode(parts[0], 9);
  OXBOW_CHECK(start.size() == std::min<size_t>(row.size(), 9)) << start.size();
  for (size_t i = 0; i + 1 < start.size(); ++i) OXBOW_CHECK(start[i] == row[i]) << i;
  OXBOW_CHECK(start.back() == row.back()) << start.back();
  return 0;
}
