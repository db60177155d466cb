// SPDX-License-Identifier: Apache-2.0
// Parts that text sides of pipelines share: a tokenizer with the encoder that takes its ids, and
// the object that holds them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/text_conditioning.h"
#include "core/model/text_encoder.h"
#include "io/clip_tokenizer.h"
#include "io/diffusers_directory.h"
#include "io/prompts/encoder_files.h"
#include "io/prompts/text_encoders.h"
#include "io/t5_tokenizer.h"

namespace oxbow::io {

// A tokenizer and its encoder.
struct ClipSide {
  EncoderFiles encoder;
  ClipTokenizer tokenizer;

  // Tokens per text that the tokenizer and the encoder's positions both allow.
  int64_t length() const;
  int64_t width() const { return encoder.Size("hidden_size"); }
  int64_t pooled_width() const;
};

struct T5Side {
  EncoderFiles encoder;
  T5Tokenizer tokenizer;

  int64_t width() const { return encoder.Size("d_model"); }
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

// [texts, length] int64.
template <typename Tokenizer>
at::Tensor IdsOf(const Tokenizer& tokenizer, const std::vector<std::string>& texts, int64_t length);

// The mask of ids that IdsOf gives for T5: [texts, length] bool, true up to the last end token. One
// in the text may come before it.
at::Tensor MaskOf(const at::Tensor& ids, const T5Tokenizer& tokenizer);

// An encoder, and where its outputs go in an EncodedText.
struct EncoderUse {
  EncoderFiles encoder;
  std::map<std::string, std::string> outputs;  // By the graph's name.
};

// The encoders of a text side. A side says what ids they take, and how what they say is composed.
class LoadedOnDemand : public TextEncoders {
 public:
  absl::StatusOr<model::EncodedText> Encode(const std::vector<std::string>& texts) override;
  void Release() override { loaded_.clear(); }
  bool loaded() const override { return !loaded_.empty(); }
  const model::Shapes& row_shapes() const override { return shapes_; }
  absl::StatusOr<std::string> Identity() const override;

 protected:
  // `settings`: what Encode depends on beside the files, the graphs and their type.
  LoadedOnDemand(std::vector<EncoderUse> uses, model::Shapes shapes, DiffusersComponents components,
                 const std::string& settings, const Options& options);

  const Options options_;

 private:
  // One for each encoder.
  virtual std::vector<model::TokenIds> Ids(const std::vector<std::string>& texts) const = 0;
  // Adds the parts that no encoder makes.
  virtual void Complete(const std::vector<model::TokenIds>& /*ids*/,
                        model::EncodedText& /*text*/) const {}

  const std::vector<EncoderUse> uses_;
  const model::Shapes shapes_;
  const DiffusersComponents components_;
  const std::string settings_;
  std::vector<std::unique_ptr<model::TextEncoder>> loaded_;
};

}  // namespace oxbow::io
