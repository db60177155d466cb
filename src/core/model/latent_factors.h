// SPDX-License-Identifier: Apache-2.0
// How much larger than latents the images and videos are that a decoder makes of them.
#pragma once

#include <cstdint>

namespace oxbow::model {

// Without an autoencoder the latent is the image, and both are 1.
struct LatentFactors {
  int64_t time = 1;   // Frames per latent frame but the first: F latent ones are 1 + (F - 1) time.
  int64_t space = 1;  // Pixels of a side per latent.
};

}  // namespace oxbow::model
