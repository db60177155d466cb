// SPDX-License-Identifier: Apache-2.0
// From 8-bit images to what CLIP's image encoder takes: the float half of its preprocessing. The
// 8-bit half is core/reward/clip_crop.
//
//   pixel = (value / 255 - mean_c) / std_c,  with the mean and deviation that all CLIPs share
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/image8.h"

namespace oxbow::model {

// Equal to Hugging Face's CLIPImageProcessor to the last bit. [B, 3, H, W] float32. Requires RGB
// images of one size.
at::Tensor ClipPixels(const std::vector<Image8>& images);

// value / 255 in float32, [3, H, W]: torchvision's ToTensor. Requires RGB.
at::Tensor UnitPixels(const Image8& image);

// (x - mean) / std of unit pixels [3, H, W] or [B, 3, H, W].
at::Tensor NormaliseForClip(const at::Tensor& unit_pixels);

// Resizing as torchvision does it on float tensors, antialiased. Nothing is rounded or clipped.
//
// Bilinear, the shorter side to `side` and the longer one rounded down, then the centre, borders
// rounded half to even. [3, H, W] -> [3, side, side].
at::Tensor ResizeShorterAndCrop(const at::Tensor& unit_pixels, int64_t side);

// Bicubic, the longer side to `side` and the shorter one rounded half to even, then zeros around
// it. [3, H, W] -> [3, side, side]. open_clip's ResizeMaxSize, which leaves an image unpadded whose
// longer side is `side` already and then fails unless it is square; here it is padded.
at::Tensor ResizeLongerAndPad(const at::Tensor& unit_pixels, int64_t side);

}  // namespace oxbow::model
