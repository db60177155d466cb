// SPDX-License-Identifier: Apache-2.0
// The text sides that TextSideTable names, with the columns of TextSide.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "io/diffusers_directory.h"
#include "io/prompts/text_encoders.h"

namespace oxbow::io {

// Stable Diffusion 3: one CLIP, or two CLIPs and perhaps T5, whose tokens come after theirs.
absl::StatusOr<std::unique_ptr<TextEncoders>> OpenSd3TextSide(const DiffusersComponents& components,
                                                              const TextEncoders::Options& options);
absl::StatusOr<int64_t> Sd3PromptTokens(const DiffusersComponents& components, int64_t t5_length);
absl::StatusOr<TokenCounter> Sd3TokenCounter(const DiffusersComponents& components,
                                             int64_t t5_length);

// The tokens of sides whose transformers see one encoder's alone.
absl::StatusOr<int64_t> T5PromptTokens(const DiffusersComponents& components, int64_t t5_length);

// FLUX.1: a CLIP for the whole prompt, T5 for its tokens.
absl::StatusOr<std::unique_ptr<TextEncoders>> OpenFluxTextSide(
    const DiffusersComponents& components, const TextEncoders::Options& options);
absl::StatusOr<TokenCounter> FluxTokenCounter(const DiffusersComponents& components,
                                              int64_t t5_length);

// LTX-Video: T5, which sees the padding, and a mask by which the transformer does not.
absl::StatusOr<std::unique_ptr<TextEncoders>> OpenLtxTextSide(const DiffusersComponents& components,
                                                              const TextEncoders::Options& options);
absl::StatusOr<TokenCounter> LtxTokenCounter(const DiffusersComponents& components,
                                             int64_t t5_length);

// Wan: UMT5, which sees a cleaned prompt and none of its padding.
absl::StatusOr<std::unique_ptr<TextEncoders>> OpenWanTextSide(const DiffusersComponents& components,
                                                              const TextEncoders::Options& options);
absl::StatusOr<TokenCounter> WanTokenCounter(const DiffusersComponents& components,
                                             int64_t t5_length);

// Qwen-Image (Qwen2.5-VL), Z-Image (Qwen3), FLUX.2 dev (Mistral Small 3) and klein (Qwen3): a
// language model reads the prompt within the pipeline's own words. The first two give the text's
// tokens and a mask, FLUX.2 those of the padding, too. prompts.t5_length is the number of tokens.
absl::StatusOr<std::unique_ptr<TextEncoders>> OpenLanguageModelTextSide(
    const DiffusersComponents& components, const TextEncoders::Options& options);
absl::StatusOr<TokenCounter> LanguageModelTokenCounter(const DiffusersComponents& components,
                                                       int64_t t5_length);

// HunyuanVideo, whose encoders are run outside: tools/encode_prompts writes what they say into the
// room that `oxbow encode` would fill, already as the parts that the transformer takes: the tokens,
// as many as the options say, a mask, and the pooled prompt.
absl::StatusOr<std::unique_ptr<TextEncoders>> OpenEncodedElsewhere(
    const DiffusersComponents& components, const TextEncoders::Options& options);

// How diffusers' WanPipeline cleans a prompt before its tokenizer sees it; so do CLIP's first
// tokenizer and open_clip's, which HPSv2 and Hessel's CLIPScore have, and then make it small.
// References of HTML as their characters, twice; every run of white space as one space; none at
// either end. Before that what ftfy does character by character, as where it is installed: Latin
// ligatures and full-width forms taken apart, straight quotes, no control characters, NFC. Not done
// of ftfy: repair of text that was decoded wrongly (mojibake, C1 controls as Windows-1252),
// terminal escapes, and a third reading of HTML. Malformed UTF-8 becomes U+FFFD.
std::string CleanedPrompt(std::string_view text);

}  // namespace oxbow::io
