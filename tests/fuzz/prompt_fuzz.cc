// SPDX-License-Identifier: Apache-2.0
// For any bytes of a prompt: both tokenizers of the golden pipeline encode it, and they treat
// malformed UTF-8 as U+FFFD.
#include <unicode/unistr.h>

#include <cstddef>
#include <cstdint>

#include "io/clip_tokenizer.h"
#include "io/t5_tokenizer.h"
#include "tests/fuzz/tokenizer_input.h"

namespace {

constexpr char kPipeline[] = OXBOW_SOURCE_DIR "/tests/golden/text/pipeline";

template <class Tokenizer>
const Tokenizer& Loaded(const char* folder) {
  static const Tokenizer tokenizer = [&] {
    auto loaded = Tokenizer::Load(std::filesystem::path(kPipeline) / folder);
    OXBOW_CHECK(loaded.ok()) << loaded.status().ToString();
    return *std::move(loaded);
  }();
  return tokenizer;
}

template <class Tokenizer>
void CheckPrompt(const Tokenizer& tokenizer, const std::string& text, const std::string& mended) {
  oxbow::fuzz::CheckRows(tokenizer, text);
  OXBOW_CHECK(tokenizer.Encode(text, 128) == tokenizer.Encode(mended, 128)) << "malformed UTF-8";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::string mended;
  icu::UnicodeString::fromUTF8(text).toUTF8String(mended);
  CheckPrompt(Loaded<oxbow::io::ClipTokenizer>("tokenizer"), text, mended);
  CheckPrompt(Loaded<oxbow::io::T5Tokenizer>("tokenizer_3"), text, mended);
  return 0;
}
