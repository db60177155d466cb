// SPDX-License-Identifier: Apache-2.0
// Weights of mmdetection 2's Mask2Former with Swin under transformers' names.
//
// M is "model.pixel_level_module.":
//
//   backbone.stages.2.blocks.5.X          M encoder.swin.encoder.layers.2.blocks.5.X'
//   panoptic_head.pixel_decoder.X         M decoder.X'
//   panoptic_head.transformer_decoder.X   model.transformer_module.decoder.X'
//   qkv, in_proj_weight [3 D, D]          {q,k,v}_proj, cut in three
//   downsample.{norm, reduction}          columns in another order: mmdetection merges 2 x 2 pixels
//                                         by channel (C, row, column), transformers by pixel
//                                         (column, row, C)
//
// The same network. Names: mmdet/models of github.com/open-mmlab/mmdetection 2.28.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "io/safetensors.h"

namespace oxbow::io {

// How a tensor is made of another one.
struct TensorSource {
  std::string name;
  int third = -1;         // 0..2: a third of its rows.
  bool unfolded = false;  // Its last dimension is in mmdetection's order.
};

struct Mask2FormerNames {
  std::map<std::string, TensorHeader> headers;  // Under transformers' names.
  std::map<std::string, TensorSource> sources;
};

bool IsMmdetMask2Former(const std::map<std::string, TensorHeader>& headers);

// kFailedPrecondition, naming the tensor: one that this network does not have, or that cannot be
// cut.
absl::StatusOr<Mask2FormerNames> FromMmdet(const std::map<std::string, TensorHeader>& headers);

// A tensor's bytes, from those of its source.
std::string BytesOf(const TensorSource& source, const TensorHeader& from, const std::string& bytes);

}  // namespace oxbow::io
