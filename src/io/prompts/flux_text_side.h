// SPDX-License-Identifier: Apache-2.0
// The text side of FLUX.1: a CLIP for the whole prompt, T5 for its tokens.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "io/diffusers_directory.h"
#include "io/prompts/text_encoders.h"

namespace oxbow::io {

// As TextEncoders::Open.
absl::StatusOr<std::unique_ptr<TextEncoders>> OpenFluxTextSide(
    const DiffusersComponents& components, const TextEncoders::Options& options);

// As TextSide::prompt_tokens: T5's.
absl::StatusOr<int64_t> FluxPromptTokens(const DiffusersComponents& components, int64_t t5_length);

// As TextSide::token_counter.
absl::StatusOr<TokenCounter> FluxTokenCounter(const DiffusersComponents& components,
                                              int64_t t5_length);

}  // namespace oxbow::io
