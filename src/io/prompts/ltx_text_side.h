// SPDX-License-Identifier: Apache-2.0
// The text side of LTX-Video: T5, which sees the padding, and a mask by which the transformer does
// not.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "io/diffusers_directory.h"
#include "io/prompts/text_encoders.h"

namespace oxbow::io {

// As TextEncoders::Open.
absl::StatusOr<std::unique_ptr<TextEncoders>> OpenLtxTextSide(const DiffusersComponents& components,
                                                              const TextEncoders::Options& options);

// As TextSide::prompt_tokens: T5's.
absl::StatusOr<int64_t> LtxPromptTokens(const DiffusersComponents& components, int64_t t5_length);

// As TextSide::token_counter.
absl::StatusOr<TokenCounter> LtxTokenCounter(const DiffusersComponents& components,
                                             int64_t t5_length);

}  // namespace oxbow::io
