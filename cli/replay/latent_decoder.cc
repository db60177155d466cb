// SPDX-License-Identifier: Apache-2.0
#include "cli/replay/latent_decoder.h"

#include <utility>

#include "base/status_macros.h"
#include "io/diffusers_directory.h"
#include "run/loaded_model.h"

namespace oxbow::cli {

absl::StatusOr<std::unique_ptr<model::ImageDecoder>> LoadLatentDecoder(
    const std::filesystem::path& directory, int64_t channels) {
  OXBOW_ASSIGN_OR_RETURN(const io::DiffusersComponents components,
                         io::OpenDiffusersDirectory(directory));
  OXBOW_ASSIGN_OR_RETURN(run::LoadedDecoder loaded,
                         run::LoadDecoder(components, channels, at::kCPU));
  return std::move(loaded.decoder);
}

}  // namespace oxbow::cli
