// SPDX-License-Identifier: Apache-2.0
// The text side of Stable Diffusion 3: one CLIP, or two CLIPs and perhaps T5.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "io/diffusers_directory.h"
#include "io/prompts/text_encoders.h"

namespace oxbow::io {

// As TextEncoders::Open.
absl::StatusOr<std::unique_ptr<TextEncoders>> OpenSd3TextSide(const DiffusersComponents& components,
                                                              const TextEncoders::Options& options);

// As TextSide::prompt_tokens: CLIP's, and T5's after them.
absl::StatusOr<int64_t> Sd3PromptTokens(const DiffusersComponents& components, int64_t t5_length);

// As TextSide::token_counter.
absl::StatusOr<TokenCounter> Sd3TokenCounter(const DiffusersComponents& components,
                                             int64_t t5_length);

}  // namespace oxbow::io
