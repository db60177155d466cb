// SPDX-License-Identifier: Apache-2.0
#include "io/prompts/text_encoders.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "io/tokenizer_files.h"

namespace oxbow::io {
namespace {

constexpr size_t kCountedMax = 50'000;  // Some seconds.

absl::StatusOr<const TextSide*> TextSideOf(const DiffusersComponents& components) {
  OXBOW_ASSIGN_OR_RETURN(const Pipeline* const pipeline, PipelineOf(components));
  for (const TextSide& side : TextSideTable()) {
    if (side.name == pipeline->text_side) return &side;
  }
  return absl::FailedPreconditionError("the pipeline has no text side here: " +
                                       pipeline->class_name);
}

// A tokenizer that cannot be read is another's error.
int64_t T5LengthOf(const TextSide& side, const DiffusersComponents& components) {
  const auto tokenizer = components.find(side.t5_tokenizer);
  if (tokenizer == components.end()) return side.t5_length;
  const auto settings = ReadTokenizerSettings(tokenizer->second.directory, {});
  const int64_t most = settings.ok() ? settings->model_max_length.value_or(0) : 0;
  return most < 1 ? side.t5_length : std::min(side.t5_length, most);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextEncoders>> TextEncoders::Open(
    const DiffusersComponents& components, const Options& options) {
  OXBOW_CHECK(options.t5_length >= 0) << options.t5_length;
  OXBOW_CHECK(options.dtype == at::kFloat || options.dtype == at::kBFloat16) << options.dtype;
  OXBOW_ASSIGN_OR_RETURN(const TextSide* const side, TextSideOf(components));
  Options known = options;
  if (known.t5_length == 0) known.t5_length = T5LengthOf(*side, components);
  return side->open(components, known);
}

absl::StatusOr<int64_t> PromptTokens(const DiffusersComponents& components, int64_t t5_length) {
  OXBOW_ASSIGN_OR_RETURN(const TextSide* const side, TextSideOf(components));
  return side->prompt_tokens(components,
                             t5_length == 0 ? T5LengthOf(*side, components) : t5_length);
}

absl::StatusOr<std::optional<CutPrompts>> CountCut(const DiffusersComponents& components,
                                                   int64_t t5_length,
                                                   const std::vector<std::string>& texts) {
  OXBOW_ASSIGN_OR_RETURN(const TextSide* const side, TextSideOf(components));
  if (side->token_counter == nullptr) return std::optional<CutPrompts>();
  OXBOW_ASSIGN_OR_RETURN(
      const TokenCounter counter,
      side->token_counter(components, t5_length == 0 ? T5LengthOf(*side, components) : t5_length));
  CutPrompts prompts{.counted = std::min(texts.size(), kCountedMax),
                     .tokens_max = counter.tokens_max,
                     .by_t5_length = counter.by_t5_length};
  for (size_t i = 0; i < prompts.counted; ++i) {
    const int64_t tokens = counter.count(texts[i]);
    prompts.cut += tokens > counter.tokens_max;
    prompts.longest = std::max(prompts.longest, tokens);
  }
  return std::optional(prompts);
}

std::string CutText(const CutPrompts& prompts) {
  if (prompts.cut == 0) return "";
  const bool one = prompts.cut == 1;
  return absl::StrCat(
      prompts.cut, " of ", prompts.counted, one ? " prompts is" : " prompts are", " longer than ",
      prompts.tokens_max, one ? " tokens and is" : " tokens and are", " cut (longest ",
      prompts.longest, ")",
      prompts.settable()
          ? absl::StrCat(": raise prompts.t5_length to ", std::min(prompts.longest, kT5LengthMax))
          : ": no setting reads more, shorten them");
}

}  // namespace oxbow::io
