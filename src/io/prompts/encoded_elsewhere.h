// SPDX-License-Identifier: Apache-2.0
// The text side of pipelines whose encoders are run outside: tools/encode_prompts writes what they
// say into the room that `oxbow encode` would fill, already as the parts that the transformer
// takes.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "io/diffusers_directory.h"
#include "io/prompts/text_encoders.h"

namespace oxbow::io {

// As TextEncoders::Open; kFailedPrecondition for a transformer that no such pipeline has.
absl::StatusOr<std::unique_ptr<TextEncoders>> OpenEncodedElsewhere(
    const DiffusersComponents& components, const TextEncoders::Options& options);

// As TextSide::prompt_tokens: those of the options, with a mask where the transformer takes one.
absl::StatusOr<int64_t> TokensEncodedElsewhere(const DiffusersComponents& components,
                                               int64_t t5_length);

}  // namespace oxbow::io
