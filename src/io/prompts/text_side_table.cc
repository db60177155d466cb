// SPDX-License-Identifier: Apache-2.0
#include "io/prompts/text_encoders.h"
#include "io/prompts/text_sides.h"

namespace oxbow::io {

const std::vector<TextSide>& TextSideTable() {
  static const std::vector<TextSide> table = {
      {"sd3", OpenSd3TextSide, Sd3PromptTokens, Sd3TokenCounter, kT5LengthOfRecipes, "tokenizer_3"},
      {"flux", OpenFluxTextSide, T5PromptTokens, FluxTokenCounter, 512, "tokenizer_2"},
      {"wan", OpenWanTextSide, T5PromptTokens, WanTokenCounter, 512, "tokenizer"},
      {"ltx", OpenLtxTextSide, T5PromptTokens, LtxTokenCounter, 128, "tokenizer"},
      {"language_model", OpenLanguageModelTextSide, T5PromptTokens, LanguageModelTokenCounter, 512},
      {"encoded_elsewhere", OpenEncodedElsewhere, T5PromptTokens, nullptr, 512},
  };
  return table;
}

}  // namespace oxbow::io
