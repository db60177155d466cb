// SPDX-License-Identifier: Apache-2.0
// Parts that text sides of pipelines share: a tokenizer with the encoder that takes its ids, and
// the object that holds them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/clip_text.h"
#include "core/model/t5.h"
#include "core/model/text_conditioning.h"
#include "io/clip_tokenizer.h"
#include "io/diffusers_directory.h"
#include "io/prompts/text_encoders.h"
#include "io/t5_tokenizer.h"

namespace oxbow::io {

// A tokenizer and the config of its encoder.
struct ClipSide {
  DiffusersComponent component;
  ClipTokenizer tokenizer;
  model::ClipTextParams params;

  // Tokens per text that the tokenizer and the encoder's positions both allow.
  int64_t length() const;
};

struct T5Side {
  DiffusersComponent component;
  T5Tokenizer tokenizer;
  model::T5Params params;
};

// The folders are text_encoder{suffix}, which must be there, and tokenizer{suffix}. Errors as
// TextEncoders::Open.
absl::StatusOr<ClipSide> OpenClip(const DiffusersComponents& components, const std::string& suffix);
absl::StatusOr<T5Side> OpenT5(const DiffusersComponents& components, const std::string& suffix);

// How many of a text's tokens such an encoder reads.
TokenCounter CounterOf(ClipSide side);
TokenCounter CounterOf(T5Side side, int64_t t5_length);

// Whether T5 is as wide as `key` of the transformer's config says, `width` where it does not.
absl::Status CheckT5Width(const T5Side& t5, const DiffusersComponent& transformer, const char* key,
                          int64_t width);

// Reads the weights. In kFloat T5 stays in the type it is stored in: in float32 T5-XXL is 19 GB.
absl::StatusOr<std::unique_ptr<model::ClipTextEncoder>> LoadClip(const ClipSide& side,
                                                                 const TextEncoders::Options& to);
absl::StatusOr<std::unique_ptr<model::T5Encoder>> LoadT5(const T5Side& side,
                                                         const TextEncoders::Options& to);

// [texts, length] int64.
template <typename Tokenizer>
at::Tensor IdsOf(const Tokenizer& tokenizer, const std::vector<std::string>& texts, int64_t length);

// The mask of ids that IdsOf gives for T5: [texts, length] bool, true up to the last end token. One
// in the text may come before it.
at::Tensor MaskOf(const at::Tensor& ids, const T5Tokenizer& tokenizer);

// The encoders of a text side. A side says how they are loaded, what ids they take, and how what
// they say is composed.
class LoadedOnDemand : public TextEncoders {
 public:
  absl::StatusOr<model::EncodedText> Encode(const std::vector<std::string>& texts) override;
  void Release() override { text_.reset(); }
  bool loaded() const override { return text_ != nullptr; }
  const model::Shapes& row_shapes() const override { return shapes_; }
  absl::StatusOr<std::string> Identity() const override;

 protected:
  // `settings`: what Encode depends on beside the files and their type.
  LoadedOnDemand(model::Shapes shapes, DiffusersComponents components, const std::string& settings,
                 const Options& options)
      : options_(options),
        shapes_(std::move(shapes)),
        components_(std::move(components)),
        settings_(settings + (options.dtype == at::kBFloat16 ? ", bf16" : "")) {}

  const Options options_;

 private:
  virtual absl::StatusOr<std::unique_ptr<model::TextConditioning>> Load() const = 0;
  virtual std::vector<at::Tensor> Ids(const std::vector<std::string>& texts) const = 0;

  const model::Shapes shapes_;
  const DiffusersComponents components_;
  const std::string settings_;
  std::unique_ptr<model::TextConditioning> text_;
};

}  // namespace oxbow::io
