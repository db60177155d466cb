// SPDX-License-Identifier: Apache-2.0
// The decoder of a model directory, without reading transformer and text encoders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "absl/status/statusor.h"
#include "core/model/image_decoder.h"

namespace oxbow::cli {

// A decoder for latents with `channels` channels; where the directory has no autoencoder, the
// latent is the image. kNotFound, kDataLoss or kFailedPrecondition name the file.
absl::StatusOr<std::unique_ptr<model::ImageDecoder>> LoadLatentDecoder(
    const std::filesystem::path& directory, int64_t channels);

}  // namespace oxbow::cli
