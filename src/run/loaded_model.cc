// SPDX-License-Identifier: Apache-2.0
#include "run/loaded_model.h"

#include <ATen/ATen.h>

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/binding.h"
#include "core/model/decoder_architecture.h"
#include "core/model/device.h"
#include "core/model/int8_weights.h"
#include "io/tensor_torch.h"
#include "run/model_facts.h"
#include "run/trainer_options.h"

namespace oxbow::run {
namespace {

// A component's weights, once their headers say that all of `expected` is there.
absl::StatusOr<io::WeightFiles> OpenWeights(const io::DiffusersComponent& component,
                                            const model::Shapes& expected) {
  OXBOW_ASSIGN_OR_RETURN(io::WeightFiles files, io::OpenComponentWeights(component));
  model::Shapes present;
  for (const auto& [name, header] : files.headers()) present.emplace(name, header.shape);
  OXBOW_RETURN_IF_ERROR(model::CheckFit(expected, present));
  return files;
}

// Reads each tensor in the type that the policy keeps it in (core/model/policy.h): float32; under a
// LoRA, which trains none of them, as the base is kept. Those that become int8 are rounded once,
// from the type they are stored in.
absl::StatusOr<model::ReadTensor> TransformerReader(
    const io::DiffusersComponent& component,
    const std::shared_ptr<const model::Architecture>& architecture, const v1::ModelConfig& config) {
  OXBOW_ASSIGN_OR_RETURN(io::WeightFiles opened, OpenWeights(component, architecture->shapes()));
  const auto files = std::make_shared<const io::WeightFiles>(std::move(opened));
  const bool lora = config.trained() == v1::TRAINED_PART_LORA;
  const bool half = lora && config.compute_dtype() == v1::STORAGE_D_TYPE_BF16;
  std::set<std::string> int8;
  if (lora && BaseWeightsOf(config) == model::BaseWeights::kInt8)
    int8 = model::Int8Names(*architecture);
  return [=, int8 = std::move(int8), directory = component.directory.string()](
             const std::string& name) -> absl::StatusOr<at::Tensor> {
    std::optional<io::DType> type = io::DType::kF32;
    if (half && !architecture->float32().contains(name)) type = io::DType::kBF16;
    if (int8.contains(name)) type = std::nullopt;
    absl::StatusOr<at::Tensor> tensor = io::LoadTensor(*files, name, type);
    if (!tensor.ok()) return io::DataError(tensor.status(), directory);
    return tensor;
  };
}

// Configs of tests may name none.
absl::StatusOr<at::Device> DeviceOf(const std::string& name) {
  return model::DeviceNamed(name.empty() ? "cpu" : name);
}

absl::StatusOr<std::unique_ptr<io::EncodedPrompts>> OpenPrompts(
    const io::DiffusersComponents& components, const v1::PromptConfig& config,
    const v1::ModelConfig& model) {
  OXBOW_ASSIGN_OR_RETURN(const at::Device device, DeviceOf(model.encoder_device()));
  return io::EncodedPrompts::Open(components, {.directory = config.cache(),
                                               .encoders = {.t5_length = config.t5_length(),
                                                            .device = device,
                                                            .dtype = EncoderType(model)}});
}

absl::StatusOr<LoadedDecoder> LoadAutoencoder(const io::DiffusersComponent& vae, int64_t channels,
                                              at::Device device) {
  OXBOW_ASSIGN_OR_RETURN(const auto architecture, DecoderOf(vae));
  if (architecture->latent_channels() != channels) {
    return absl::FailedPreconditionError(absl::StrCat(
        "autoencoder and transformer differ in latent channels: ", architecture->latent_channels(),
        " != ", channels));
  }
  OXBOW_ASSIGN_OR_RETURN(const io::WeightFiles files, OpenWeights(vae, architecture->shapes()));
  OXBOW_ASSIGN_OR_RETURN(
      model::NamedTensors tensors,
      io::LoadTensors(
          files, {.wanted = [&](const std::string& name) { return architecture->InDecoder(name); },
                  .device = device}));
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<model::ImageDecoder> decoder, architecture->Make(tensors));
  return LoadedDecoder{.config_json = vae.config_json,
                       .graph_json = architecture->graph_json(),
                       .factors = architecture->factors(),
                       .tensors = std::move(tensors),
                       .decoder = std::move(decoder)};
}

}  // namespace

absl::StatusOr<LoadedDecoder> LoadDecoder(const io::DiffusersComponents& components,
                                          int64_t channels, at::Device device) {
  const auto vae = components.find("vae");
  if (vae == components.end()) return LoadedDecoder{.decoder = model::MakePixelDecoder()};
  auto loaded = LoadAutoencoder(vae->second, channels, device);
  if (!loaded.ok()) return io::DataError(loaded.status(), vae->second.directory.string());
  return loaded;
}

absl::StatusOr<LoadedModel> LoadModel(const v1::ModelConfig& config,
                                      const v1::PromptConfig& prompts,
                                      const v1::SamplingConfig& sampling) {
  auto components = io::OpenDiffusersDirectory(config.path());
  if (!components.ok()) return io::DataError(components.status(), config.path());
  OXBOW_RETURN_IF_ERROR(CheckTakesGuidance(config.path(), sampling.guidance()));
  OXBOW_ASSIGN_OR_RETURN(const at::Device device, DeviceOf(config.device()));
  const io::DiffusersComponent& transformer = components->at("transformer");
  LoadedModel loaded;
  loaded.transformer_config_json = transformer.config_json;
  OXBOW_ASSIGN_OR_RETURN(loaded.architecture, ArchitectureOf(transformer));
  OXBOW_ASSIGN_OR_RETURN(const io::Pipeline* const pipeline, io::PipelineOf(*components));
  loaded.guidance = io::GuidanceScale(*pipeline, sampling.guidance());
  OXBOW_ASSIGN_OR_RETURN(loaded.embedded_guidance,
                         EmbeddedGuidance(*loaded.architecture, sampling));
  const model::LatentGeometry& latent = loaded.architecture->latent();
  OXBOW_ASSIGN_OR_RETURN(LoadedDecoder decoder, LoadDecoder(*components, latent.channels, device));
  auto size = DrawnSizeOf(*components, *loaded.architecture, decoder.factors, sampling);
  if (!size.ok()) {
    const bool usage = absl::IsInvalidArgument(size.status());
    return usage ? size.status() : io::DataError(size.status(), config.path());
  }
  loaded.latent_shape = std::move(size->latent_shape);
  loaded.schedule = size->schedule;
  loaded.factors = decoder.factors;
  loaded.autoencoder_config_json = std::move(decoder.config_json);
  loaded.autoencoder_graph_json = std::move(decoder.graph_json);
  loaded.autoencoder = std::move(decoder.tensors);
  loaded.decoder = std::move(decoder.decoder);
  auto reader = TransformerReader(transformer, loaded.architecture, config);
  if (!reader.ok()) return io::DataError(reader.status(), transformer.directory.string());
  loaded.read_transformer = *std::move(reader);
  auto encoded = OpenPrompts(*components, prompts, config);
  if (!encoded.ok()) return io::DataError(encoded.status(), config.path());
  loaded.prompts = *std::move(encoded);
  loaded.components = *std::move(components);
  return loaded;
}

}  // namespace oxbow::run
