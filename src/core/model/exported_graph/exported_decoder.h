// SPDX-License-Identifier: Apache-2.0
// The decoder of any autoencoder as its exported graph: from the latents that the transformer sees
// to pixels in about [-1, 1] (docs/formats.md, exported graphs).
//
// A graph may take a few latent frames alone. Then a longer video is cut along time, as diffusers
// cuts it: tiles of n + 1 latent frames begin s apart, each but the first gives up its first frame,
// and the first (n - s) time frames of a tile fade over from the last ones of the tile before.
//
// Or it takes one latent frame after another, and hands states to the next (Graph::next). Then
// memory is that of a few frames, whatever the length.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "absl/status/statusor.h"
#include "core/model/decoder_architecture.h"
#include "core/model/image_decoder.h"

namespace oxbow::model::exported {

class ExportedDecoder : public ImageDecoder {
 public:
  // latents [B, C, h, w] -> [B, channels, H, W], or [B, C, f, h, w] -> [B, channels, F, H, W] in
  // about [-1, 1], on the latents' device. A row depends on its own row alone, on a CPU bit for
  // bit: rows are decoded one after another there, which also bounds the memory taken, and on a GPU
  // some pictures at a time. Of pictures' latents a graph of videos makes one frame each.
  virtual at::Tensor Pixels(const at::Tensor& latents) const = 0;
};

// kInvalidArgument for a graph that cannot be read, for one of another class or config (naming the
// first key that differs), and for one whose pixels are not of the size that it says.
absl::StatusOr<std::shared_ptr<const DecoderArchitecture>> ReadExportedDecoder(
    const DecoderSource& source);

}  // namespace oxbow::model::exported
