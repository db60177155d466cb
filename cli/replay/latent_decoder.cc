#include "cli/replay/latent_decoder.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/autoencoder_kl.h"
#include "io/diffusers_directory.h"
#include "io/weights_torch.h"

namespace oxbow::cli {
namespace {

absl::StatusOr<std::unique_ptr<model::ImageDecoder>> Load(const io::DiffusersComponent& vae,
                                                          int64_t channels) {
  using model::AutoencoderPart;
  OXBOW_ASSIGN_OR_RETURN(const model::AutoencoderKlParams params,
                         model::ParseAutoencoderKlConfig(vae.config_json));
  if (params.latent_channels != channels) {
    return absl::FailedPreconditionError(
        absl::StrCat("the autoencoder is for latents of other channels than the entry's: ",
                     params.latent_channels, " != ", channels));
  }
  OXBOW_ASSIGN_OR_RETURN(const io::WeightFiles files, io::OpenComponentWeights(vae));
  const auto of_decoder = [](const std::string& name) {
    return model::BelongsTo(AutoencoderPart::kDecoder, name);
  };
  OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors tensors,
                         io::LoadTensors(files, {.wanted = of_decoder}));
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<model::AutoencoderKl> decoder,
                         model::MakeAutoencoderKl(params, tensors, AutoencoderPart::kDecoder));
  return decoder;
}

}  // namespace

absl::StatusOr<std::unique_ptr<model::ImageDecoder>> LoadLatentDecoder(
    const std::filesystem::path& directory, int64_t channels) {
  OXBOW_ASSIGN_OR_RETURN(const io::DiffusersComponents components,
                         io::OpenDiffusersDirectory(directory));
  const auto vae = components.find("vae");
  if (vae == components.end()) return model::MakePixelDecoder();
  auto decoder = Load(vae->second, channels);
  if (decoder.ok()) return decoder;
  // A file that is there but is not what it should be is a data error, not a usage error.
  const std::string where = vae->second.directory.string();
  if (!absl::IsInvalidArgument(decoder.status())) return Annotate(decoder.status(), where);
  return absl::FailedPreconditionError(
      absl::StrCat(where, ": ", std::string(decoder.status().message())));
}

}  // namespace oxbow::cli
