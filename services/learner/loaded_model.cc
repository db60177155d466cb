#include "services/learner/loaded_model.h"

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/autoencoder_kl.h"
#include "core/model/binding.h"
#include "core/model/device.h"
#include "core/model/sd3.h"
#include "io/diffusers_directory.h"
#include "io/weights_torch.h"

namespace oxbow::learner {
namespace {

// Errors of a component of the directory.
absl::Status ComponentError(const absl::Status& status, const io::DiffusersComponent& component) {
  return io::DataError(status, component.directory);
}

// The tensors that are `wanted`, once the headers say that all of `expected` is there.
absl::StatusOr<model::NamedTensors> ReadTensors(
    const io::DiffusersComponent& component, const model::Shapes& expected,
    std::function<bool(const std::string&)> wanted = nullptr) {
  OXBOW_ASSIGN_OR_RETURN(const io::WeightFiles files, io::OpenComponentWeights(component));
  model::Shapes present;
  for (const auto& [name, header] : files.headers()) present.emplace(name, header.shape);
  OXBOW_RETURN_IF_ERROR(model::CheckFit(expected, present));
  return io::LoadTensors(files, {.wanted = std::move(wanted)});
}

// Configs of tests may name none.
absl::StatusOr<at::Device> DeviceOf(const std::string& name) {
  return model::DeviceNamed(name.empty() ? "cpu" : name);
}

absl::StatusOr<std::unique_ptr<io::EncodedPrompts>> OpenPrompts(
    const io::DiffusersComponents& components, const v1::PromptConfig& config, at::Device device) {
  io::EncodedPrompts::Options options{.directory = config.cache(), .encoders = {.device = device}};
  if (config.t5_length() > 0) options.encoders.t5_length = config.t5_length();
  return io::EncodedPrompts::Open(components, options);
}

// `factor`: pixels of a side per latent; 1 without an autoencoder, where the latent is the picture.
absl::StatusOr<std::vector<int64_t>> LatentShape(const model::Sd3Params& params, int64_t factor,
                                                 const v1::SamplingConfig& sampling) {
  const int64_t whole = params.sample_size * factor;
  const int64_t height = sampling.height() > 0 ? sampling.height() : whole;
  const int64_t width = sampling.width() > 0 ? sampling.width() : whole;
  const int64_t multiple = params.patch_size * factor;
  const int64_t side_max = multiple * params.pos_embed_max_size;
  if (height % multiple != 0 || width % multiple != 0 || height > side_max || width > side_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.height and width must be multiples of ", multiple, ", at most ",
                     side_max, ", for this model: ", height, " x ", width));
  }
  return std::vector<int64_t>{params.in_channels, height / factor, width / factor};
}

struct LoadedDecoder {
  std::string config_json;  // Empty without an autoencoder.
  int64_t factor = 1;
  model::NamedTensors tensors;
  std::unique_ptr<model::ImageDecoder> decoder;
};

absl::StatusOr<LoadedDecoder> LoadDecoder(const io::DiffusersComponents& components,
                                          int64_t latent_channels, at::Device device) {
  const auto found = components.find("vae");
  if (found == components.end()) return LoadedDecoder{.decoder = model::MakePixelDecoder()};
  const io::DiffusersComponent& vae = found->second;
  const auto load = [&]() -> absl::StatusOr<LoadedDecoder> {
    using model::AutoencoderPart;
    OXBOW_ASSIGN_OR_RETURN(const model::AutoencoderKlParams params,
                           model::ParseAutoencoderKlConfig(vae.config_json));
    if (params.latent_channels != latent_channels) {
      return absl::FailedPreconditionError(absl::StrCat(
          "autoencoder and transformer differ in latent channels: ", params.latent_channels,
          " != ", latent_channels));
    }
    OXBOW_ASSIGN_OR_RETURN(
        model::NamedTensors tensors,
        ReadTensors(vae, model::AutoencoderKlShapes(params, AutoencoderPart::kWhole),
                    [](const std::string& name) {
                      return model::BelongsTo(AutoencoderPart::kDecoder, name);
                    }));
    for (auto& [name, tensor] : tensors) tensor = tensor.to(device);
    OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<model::AutoencoderKl> decoder,
                           model::MakeAutoencoderKl(params, tensors, AutoencoderPart::kDecoder));
    return LoadedDecoder{.config_json = vae.config_json,
                         .factor = params.factor(),
                         .tensors = tensors,
                         .decoder = std::move(decoder)};
  };
  auto loaded = load();
  if (!loaded.ok()) return ComponentError(loaded.status(), vae);
  return loaded;
}

int64_t TokensOf(const std::vector<int64_t>& latent_shape, int64_t patch_size) {
  return (latent_shape[1] / patch_size) * (latent_shape[2] / patch_size);
}

}  // namespace

absl::StatusOr<LoadedModel> LoadModel(const v1::ModelConfig& config,
                                      const v1::PromptConfig& prompts,
                                      const v1::SamplingConfig& sampling) {
  auto components = io::OpenDiffusersDirectory(config.path());
  if (!components.ok()) return io::DataError(components.status(), config.path());
  OXBOW_ASSIGN_OR_RETURN(const at::Device device, DeviceOf(config.device()));
  OXBOW_ASSIGN_OR_RETURN(const at::Device encoder_device, DeviceOf(config.encoder_device()));
  const io::DiffusersComponent& transformer = components->at("transformer");
  LoadedModel loaded;
  loaded.architecture = transformer.class_name;
  loaded.transformer_config_json = transformer.config_json;
  const auto params = model::ParseSd3Config(transformer.config_json);
  if (!params.ok()) return io::DataError(params.status(), transformer.directory / "config.json");
  OXBOW_ASSIGN_OR_RETURN(LoadedDecoder decoder,
                         LoadDecoder(*components, params->in_channels, device));
  OXBOW_ASSIGN_OR_RETURN(loaded.latent_shape, LatentShape(*params, decoder.factor, sampling));
  loaded.autoencoder_config_json = std::move(decoder.config_json);
  loaded.autoencoder = std::move(decoder.tensors);
  loaded.decoder = std::move(decoder.decoder);
  auto tensors = ReadTensors(transformer, model::Sd3Shapes(*params));
  if (!tensors.ok()) return ComponentError(tensors.status(), transformer);
  loaded.transformer = *std::move(tensors);
  auto shift = io::SchedulerShift(components->at("scheduler"),
                                  TokensOf(loaded.latent_shape, params->patch_size));
  if (!shift.ok()) return io::DataError(shift.status(), config.path());
  loaded.shift = *shift;
  auto encoded = OpenPrompts(*components, prompts, encoder_device);
  if (!encoded.ok()) return io::DataError(encoded.status(), config.path());
  loaded.prompts = *std::move(encoded);
  return loaded;
}

}  // namespace oxbow::learner
