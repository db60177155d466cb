#include "services/learner/loaded_model.h"

#include <ATen/ATen.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/sd3.h"
#include "io/diffusers_directory.h"
#include "io/weights_torch.h"

namespace oxbow::learner {
namespace {

// A file that is there but is not what it should be is a data error, not a usage error.
absl::Status DataError(const absl::Status& status, const std::string& where) {
  if (status.code() != absl::StatusCode::kInvalidArgument) return Annotate(status, where);
  return absl::FailedPreconditionError(absl::StrCat(where, ": ", std::string(status.message())));
}

absl::StatusOr<model::NamedTensors> ReadTensors(const io::DiffusersComponent& component) {
  OXBOW_ASSIGN_OR_RETURN(const io::WeightFiles files, io::OpenComponentWeights(component));
  return io::LoadTensors(files);
}

absl::StatusOr<std::unique_ptr<io::EncodedPrompts>> OpenPrompts(
    const io::DiffusersComponents& components, const v1::PromptConfig& config) {
  io::EncodedPrompts::Options options{.directory = config.cache()};
  if (config.t5_length() > 0) options.encoders.t5_length = config.t5_length();
  return io::EncodedPrompts::Open(components, options);
}

// Without an autoencoder the latent is the picture.
absl::StatusOr<std::vector<int64_t>> LatentShape(const model::Sd3Params& params,
                                                 const v1::SamplingConfig& sampling) {
  const int64_t height = sampling.height() > 0 ? sampling.height() : params.sample_size;
  const int64_t width = sampling.width() > 0 ? sampling.width() : params.sample_size;
  const int64_t side_max = params.patch_size * params.pos_embed_max_size;
  if (height % params.patch_size != 0 || width % params.patch_size != 0 || height > side_max ||
      width > side_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.height and width must be multiples of ", params.patch_size,
                     ", at most ", side_max, ", for this model: ", height, " x ", width));
  }
  return std::vector<int64_t>{params.in_channels, height, width};
}

int64_t TokensOf(const std::vector<int64_t>& latent_shape, int64_t patch_size) {
  return (latent_shape[1] / patch_size) * (latent_shape[2] / patch_size);
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(const v1::ModelConfig& config,
                                      const v1::PromptConfig& prompts,
                                      const v1::SamplingConfig& sampling) {
  auto components = io::OpenDiffusersDirectory(config.path());
  if (!components.ok()) return DataError(components.status(), config.path());
  if (components->contains("vae")) {
    return absl::FailedPreconditionError(
        absl::StrCat("models with an autoencoder are not supported yet: ", config.path()));
  }
  const io::DiffusersComponent& transformer = components->at("transformer");
  LoadedModel loaded;
  loaded.architecture = transformer.class_name;
  loaded.transformer_config_json = transformer.config_json;
  const auto params = model::ParseSd3Config(transformer.config_json);
  if (!params.ok())
    return DataError(params.status(), (transformer.directory / "config.json").string());
  OXBOW_ASSIGN_OR_RETURN(loaded.latent_shape, LatentShape(*params, sampling));
  auto tensors = ReadTensors(transformer);
  if (!tensors.ok()) return DataError(tensors.status(), transformer.directory.string());
  loaded.transformer = *std::move(tensors);
  auto shift = io::SchedulerShift(components->at("scheduler"),
                                  TokensOf(loaded.latent_shape, params->patch_size));
  if (!shift.ok()) return DataError(shift.status(), config.path());
  loaded.shift = *shift;
  auto encoded = OpenPrompts(*components, prompts);
  if (!encoded.ok()) return DataError(encoded.status(), config.path());
  loaded.prompts = *std::move(encoded);
  loaded.decoder = model::MakePixelDecoder();
  return loaded;
}

}  // namespace oxbow::learner
