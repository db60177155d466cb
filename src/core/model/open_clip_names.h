// SPDX-License-Identifier: Apache-2.0
// Weights of open_clip's CLIP under Hugging Face's names.
//
//   visual.conv1.weight                  vision_model.embeddings.patch_embedding.weight
//   visual.transformer.resblocks.3.X     vision_model.encoder.layers.3.X'
//   transformer.resblocks.3.X            text_model.encoder.layers.3.X'
//   attn.in_proj_weight [3 D, D]         self_attn.{q,k,v}_proj.weight, cut in three
//   visual.proj, text_projection [D, P]  visual_projection.weight, text_projection.weight,
//   transposed
//
// The same network, with quick GELU or the exact one as its config says. HPSv2's checkpoints have
// these names.
#pragma once

#include "absl/status/statusor.h"
#include "core/model/named_tensors.h"

namespace oxbow::model {

// Whether tensors have open_clip's names.
bool AreOpenClip(const NamedTensors& tensors);

// Views of the same memory. Names that open_clip's CLIP does not have are kept, so that binding
// complains about them. kInvalidArgument, naming the tensor, if a fused weight cannot be cut.
absl::StatusOr<NamedTensors> FromOpenClip(const NamedTensors& tensors);

}  // namespace oxbow::model
