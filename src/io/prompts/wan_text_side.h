// SPDX-License-Identifier: Apache-2.0
// The text side of Wan: UMT5, which sees a cleaned prompt and none of its padding.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "io/diffusers_directory.h"
#include "io/prompts/text_encoders.h"

namespace oxbow::io {

// As TextEncoders::Open.
absl::StatusOr<std::unique_ptr<TextEncoders>> OpenWanTextSide(const DiffusersComponents& components,
                                                              const TextEncoders::Options& options);

// As TextSide::prompt_tokens: UMT5's.
absl::StatusOr<int64_t> WanPromptTokens(const DiffusersComponents& components, int64_t t5_length);

// As TextSide::token_counter.
absl::StatusOr<TokenCounter> WanTokenCounter(const DiffusersComponents& components,
                                             int64_t t5_length);

}  // namespace oxbow::io
