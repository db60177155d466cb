// SPDX-License-Identifier: Apache-2.0
#include "run/prompt.h"

#include "base/sha256.h"

namespace oxbow::run {

uint64_t PromptIdOf(const std::string& text, const std::string& metadata_json) {
  return Fingerprint64(text + "\n" + metadata_json);
}

v1::Prompt MakePrompt(const std::string& text, const std::string& metadata_json) {
  v1::Prompt prompt;
  prompt.set_id(PromptIdOf(text, metadata_json));
  prompt.set_text(text);
  prompt.set_metadata_json(metadata_json);
  return prompt;
}

}  // namespace oxbow::run
