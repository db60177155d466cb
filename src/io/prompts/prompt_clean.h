// SPDX-License-Identifier: Apache-2.0
// How diffusers' WanPipeline cleans a prompt before its tokenizer sees it.
#pragma once

#include <string>
#include <string_view>

namespace oxbow::io {

// References of HTML as their characters, twice; every run of white space as one space; none at
// either end. Before that what ftfy does character by character, as where it is installed: Latin
// ligatures and full-width forms taken apart, straight quotes, no control characters, NFC. Not done
// of ftfy: repair of text that was decoded wrongly (mojibake, C1 controls as Windows-1252),
// terminal escapes, and a third reading of HTML. Malformed UTF-8 becomes U+FFFD.
std::string CleanedPrompt(std::string_view text);

}  // namespace oxbow::io
