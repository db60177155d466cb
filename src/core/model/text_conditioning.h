// From token ids to what a velocity model gets of its prompts.
//
// One implementation per way of composing text encoders; tokenisation stays outside, so that this
// needs no files. SD3's composition of three encoders (two CLIPs concatenated over channels, T5
// appended over the sequence) is another implementation of the same interface.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "core/model/clip_text.h"
#include "core/model/velocity_model.h"

namespace oxbow::model {

class TextConditioning {
 public:
  virtual ~TextConditioning() = default;

  // ids: one [B, S_k] int64 tensor per text encoder. A row does not depend on the other rows.
  virtual Conditioning Compose(const std::vector<at::Tensor>& ids) const = 0;
};

// tokens = penultimate hidden states, pooled = text_embeds of a single CLIP encoder.
std::unique_ptr<TextConditioning> MakeSingleClipConditioning(
    std::unique_ptr<ClipTextEncoder> encoder);

}  // namespace oxbow::model
