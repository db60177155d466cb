// SPDX-License-Identifier: Apache-2.0
// A prompt and its id, which is the hash of what it says.
#pragma once

#include <cstdint>
#include <string>

#include "oxbow/v1/common.pb.h"

namespace oxbow::run {

// Stable for all time: Fingerprint64(text + "\n" + metadata).
uint64_t PromptIdOf(const std::string& text, const std::string& metadata_json);

// The prompt with its id filled in.
v1::Prompt MakePrompt(const std::string& text, const std::string& metadata_json);

}  // namespace oxbow::run
