// SPDX-License-Identifier: Apache-2.0
// The text side of a model directory: its tokenizers and encoders, from texts to what a velocity
// model gets of them.
//
// The pipeline decides how (TextSideTable). Weights are read when something has to be encoded
// and can leave again: T5-XXL is 10 GB that a learner needs for a few minutes. Used by one thread
// at a time.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/lora.h"
#include "core/model/text_conditioning.h"
#include "io/diffusers_directory.h"

namespace oxbow::io {

inline constexpr int64_t kT5LengthOfRecipes = 128;  // Flow-GRPO's; diffusers' pipeline takes 256.
inline constexpr int64_t kT5LengthMax = 512;

class TextEncoders {
 public:
  struct Options {
    int64_t t5_length = 0;         // Tokens of T5, which pads and cuts to it; 0: as TextSide says.
    at::Device device = at::kCPU;  // Where weights are; results are on the CPU.
    // kFloat: CLIP in float32, T5 in the type it is stored in. kBFloat16: weights and products of
    // all encoders, whatever they are stored in.
    at::ScalarType dtype = at::kFloat;
  };

  // Reads configs and tokenizers, and of the weights what is there. kNotFound, kDataLoss or
  // kFailedPrecondition name the file; the latter also if the parts do not fit each other, or a
  // tensor is missing.
  static absl::StatusOr<std::unique_ptr<TextEncoders>> Open(const DiffusersComponents& components,
                                                            const Options& options);
  virtual ~TextEncoders() = default;

  // The encoders' output for each text, one row per text. Reads the weights if they are not
  // there. Requires at least one text.
  virtual absl::StatusOr<model::EncodedText> Encode(const std::vector<std::string>& texts) = 0;

  // Whether Encode can encode these texts, which are not in `room` (empty: nothing is kept on
  // disk). kFailedPrecondition of a side whose encoders run outside, with the command that does it.
  virtual absl::Status CheckCanEncode(const std::vector<std::string>& /*texts*/,
                                      const std::filesystem::path& /*room*/) const {
    return absl::OkStatus();
  }

  // Frees the weights; Encode will read them again.
  virtual void Release() = 0;
  virtual bool loaded() const = 0;

  // The conditioning of `text`, which has B rows of the shapes of row_shapes(): the parts that the
  // pipeline's transformer takes.
  virtual model::Conditioning Compose(const model::EncodedText& text) const = 0;

  // Every tensor of an EncodedText and its shape for one text: [1, ...].
  virtual const model::Shapes& row_shapes() const = 0;

  // Changes with anything that changes what Encode says: 64 hexadecimal digits. Reads every byte of
  // the weights (io/model_digest.h). Errors as Open.
  virtual absl::StatusOr<std::string> Identity() const = 0;
};

// Tokens that the conditioning of a prompt has, by the configs alone; t5_length as in the options.
// Errors as Open.
absl::StatusOr<int64_t> PromptTokens(const DiffusersComponents& components, int64_t t5_length);

// Counts the tokens of a text as the encoder sees them that reads most of a prompt.
struct TokenCounter {
  int64_t tokens_max = 0;     // Any further tokens are cut off.
  bool by_t5_length = false;  // A longer prompts.t5_length would read more.
  std::function<int64_t(const std::string& text)> count;
};

// Prompts that are longer than what is read of them.
struct CutPrompts {
  size_t cut = 0;
  size_t counted = 0;   // Among so many.
  int64_t longest = 0;  // Tokens of the longest.
  int64_t tokens_max = 0;
  bool by_t5_length = false;

  // Whether a longer prompts.t5_length reads more of them.
  bool settable() const { return by_t5_length && tokens_max < kT5LengthMax; }
};

// Reads configs and tokenizers. Nothing where the pipeline's encoders run outside: their tool
// counts. At most the first 50,000 texts are looked at. Errors as Open.
absl::StatusOr<std::optional<CutPrompts>> CountCut(const DiffusersComponents& components,
                                                   int64_t t5_length,
                                                   const std::vector<std::string>& texts);

// "37 of 20000 prompts are longer than 128 tokens and are cut (longest 211): raise
// prompts.t5_length to 211"; "" if none is.
std::string CutText(const CutPrompts& prompts);

// How the prompts of a supported pipeline become conditioning.
struct TextSide {
  std::string name;  // Pipeline::text_side.
  // As TextEncoders::Open.
  absl::StatusOr<std::unique_ptr<TextEncoders>> (*open)(const DiffusersComponents& components,
                                                        const TextEncoders::Options& options);
  // Tokens that the conditioning of a prompt has, by the configs alone.
  absl::StatusOr<int64_t> (*prompt_tokens)(const DiffusersComponents& components,
                                           int64_t t5_length);
  // Null: the encoders run outside.
  absl::StatusOr<TokenCounter> (*token_counter)(const DiffusersComponents& components,
                                                int64_t t5_length);
  // Where a run does not say: so many tokens of T5, but no more than the settings of its tokenizer
  // (model_max_length), which is in that folder, allow.
  int64_t t5_length = kT5LengthOfRecipes;
  std::string t5_tokenizer = {};  // Empty: none here.
};

// One row per way. text_side_table.cc defines nothing else, so that a binary which defines its own
// table takes that one.
const std::vector<TextSide>& TextSideTable();

}  // namespace oxbow::io
