// SPDX-License-Identifier: Apache-2.0
#include "run/model_facts.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "config/rules.h"
#include "core/model/image_sampler.h"
#include "core/model/lora.h"
#include "io/network_graph.h"
#include "io/prompts/encoder_files.h"
#include "io/prompts/prompt_store.h"
#include "io/prompts/text_encoders.h"
#include "run/sampling_spec.h"

namespace oxbow::run {

namespace {

constexpr double kEtaMax = 0.3;

std::string SaidBy(const io::DistilledSign& sign) {
  return absl::StrCat(sign.file, " has ", sign.key, ": ", sign.value);
}

bool AddsNoiseByEta(v1::DynamicsKind dynamics) {
  return dynamics != v1::DYNAMICS_KIND_ODE && dynamics != v1::DYNAMICS_KIND_WAN_SDE;
}

using Headers = std::map<std::string, io::TensorHeader>;

uint64_t Elements(const io::TensorHeader& tensor) {
  uint64_t elements = 1;
  for (const int64_t size : tensor.shape) elements *= static_cast<uint64_t>(size);
  return elements;
}

uint64_t Elements(const Headers& tensors) {
  uint64_t elements = 0;
  for (const auto& [name, tensor] : tensors) elements += Elements(tensor);
  return elements;
}

absl::StatusOr<uint64_t> TextEncoderBytes(const io::DiffusersComponents& components, bool bf16) {
  uint64_t bytes = 0;
  for (const auto& [name, component] : components) {
    if (!name.starts_with("text_encoder")) continue;
    OXBOW_ASSIGN_OR_RETURN(const Headers tensors, io::ReadComponentHeaders(component));
    const bool keeps = io::KeepsStoredType(component);
    for (const auto& [tensor, header] : tensors) {
      const bool stored =
          keeps && (header.dtype == io::DType::kF16 || header.dtype == io::DType::kBF16);
      bytes += (bf16 || stored ? 2 : 4) * Elements(header);
    }
  }
  return bytes;
}

// Facts of the autoencoder that sampling needs; without one the latent is the image.
absl::Status ReadDecoderFacts(const io::DiffusersComponents& components, ModelFacts& facts) {
  const auto vae = components.find("vae");
  if (vae == components.end()) return absl::OkStatus();
  const auto decoder = DecoderOf(vae->second);
  if (!decoder.ok()) return io::DataError(decoder.status(), vae->second.directory.string());
  facts.factors = (*decoder)->factors();
  facts.decoder = *decoder;
  OXBOW_ASSIGN_OR_RETURN(const Headers tensors, io::ReadComponentHeaders(vae->second));
  for (const auto& [name, tensor] : tensors) {
    if ((*decoder)->InDecoder(name)) facts.decoder_parameters += Elements(tensor);
  }
  return absl::OkStatus();
}

absl::Status AsDataError(const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? absl::FailedPreconditionError(status.message()) : status;
}

uint64_t BufferElements(const model::Architecture& architecture, const Headers& tensors) {
  uint64_t elements = 0;
  for (const std::string& name : architecture.buffers()) {
    const auto buffer = tensors.find(name);
    if (buffer != tensors.end()) elements += Elements(buffer->second);
  }
  return elements;
}

// All that does not depend on the images' size.
absl::StatusOr<ModelFacts> FactsOfFiles(const v1::RunConfig& config,
                                        const io::DiffusersComponents& components) {
  const io::DiffusersComponent& transformer = components.at("transformer");
  OXBOW_ASSIGN_OR_RETURN(const Headers tensors, io::ReadComponentHeaders(transformer));
  ModelFacts facts{.transformer_parameters = Elements(tensors)};
  for (const auto& [name, header] : tensors) facts.stored_types[name] = header.dtype;
  OXBOW_ASSIGN_OR_RETURN(facts.architecture, ArchitectureOf(transformer));
  OXBOW_ASSIGN_OR_RETURN(const io::Pipeline* const pipeline, io::PipelineOf(components));
  facts.guidance = io::GuidanceScale(*pipeline, config.sampling().guidance());
  OXBOW_ASSIGN_OR_RETURN(
      facts.text_encoder_bytes,
      TextEncoderBytes(components, config.model().encoder_dtype() == v1::STORAGE_D_TYPE_BF16));
  OXBOW_RETURN_IF_ERROR(ReadDecoderFacts(components, facts));
  OXBOW_ASSIGN_OR_RETURN(facts.prompt_tokens,
                         io::PromptTokens(components, config.prompts().t5_length()));
  OXBOW_ASSIGN_OR_RETURN(
      const auto encoders,
      io::TextEncoders::Open(components, {.t5_length = config.prompts().t5_length()}));
  facts.stored_prompt_bytes = io::StoredBytes(
      encoders->row_shapes(), config.model().encoder_dtype() == v1::STORAGE_D_TYPE_BF16);
  facts.conditioning_bytes =
      model::ConditioningBytes(facts.architecture->conditioning(), facts.prompt_tokens);
  facts.trained_parameters =
      facts.transformer_parameters - BufferElements(*facts.architecture, tensors);
  if (config.model().trained() == v1::TRAINED_PART_LORA) {
    v1::ModelConfig model = config.model();
    FillLoraTargets(*facts.architecture, model);
    OXBOW_ASSIGN_OR_RETURN(const LoraSize lora, LoraSizeOf(tensors, model.lora()));
    facts.trained_parameters = lora.parameters;
    facts.lora_rank_useful = lora.rank_useful;
    facts.adapted_parameters = lora.adapted;
  }
  return facts;
}

}  // namespace

absl::StatusOr<ModelFacts> ReadModelFacts(const v1::RunConfig& config) {
  const auto components = io::OpenDiffusersDirectory(config.model().path());
  if (!components.ok()) return AsDataError(components.status());
  absl::StatusOr<ModelFacts> facts = FactsOfFiles(config, *components);
  if (!facts.ok()) return AsDataError(facts.status());
  OXBOW_ASSIGN_OR_RETURN(DrawnSize size, DrawnSizeOf(*components, *facts->architecture,
                                                     facts->factors, config.sampling()));
  facts->latent_shape = std::move(size.latent_shape);
  facts->schedule = size.schedule;
  OXBOW_ASSIGN_OR_RETURN(DrawnSize evaluated, EvaluatedSizeOf(*components, *facts->architecture,
                                                              facts->factors, config));
  facts->evaluated_shape = std::move(evaluated.latent_shape);
  return facts;
}

absl::StatusOr<DrawnSize> DrawnSizeOf(const io::DiffusersComponents& components,
                                      const model::Architecture& architecture,
                                      const model::LatentFactors& factors,
                                      const v1::SamplingConfig& sampling) {
  const model::LatentGeometry& latent = architecture.latent();
  DrawnSize size;
  OXBOW_ASSIGN_OR_RETURN(size.latent_shape,
                         model::LatentShape(latent, factors, PictureSizeOf(sampling)));
  const auto schedule = io::ReadPipelineSchedule(
      components, model::TokensOf(latent, size.latent_shape), sampling.steps(), sampling.shift());
  if (!schedule.ok()) return AsDataError(schedule.status());
  size.schedule = *schedule;
  return size;
}

absl::StatusOr<DrawnSize> EvaluatedSizeOf(const io::DiffusersComponents& components,
                                          const model::Architecture& architecture,
                                          const model::LatentFactors& factors,
                                          const v1::RunConfig& config) {
  absl::StatusOr<DrawnSize> size =
      DrawnSizeOf(components, architecture, factors, EvaluationSampling(config));
  if (!absl::IsInvalidArgument(size.status())) return size;
  return absl::InvalidArgumentError(absl::StrReplaceAll(std::string(size.status().message()),
                                                        {{"sampling.height", "eval.height"}}));
}

int64_t EvaluatedAtOnce(const std::vector<int64_t>& trained,
                        const std::vector<int64_t>& evaluated) {
  const auto elements = [](const std::vector<int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  };
  const int64_t at_once = model::SamplesAtOnce(evaluated);
  if (elements(evaluated) <= elements(trained)) return at_once;
  const int64_t fitting = model::SamplesAtOnce(trained) * elements(trained) / elements(evaluated);
  return std::clamp(fitting, int64_t{1}, at_once);
}

int64_t PicturesOfLease(const v1::RunConfig& config, const std::vector<int64_t>& trained,
                        const std::vector<int64_t>& evaluated) {
  const int64_t at_once = EvaluatedAtOnce(trained, evaluated);
  const bool any_batch = !config.run().deterministic() || config.model().device() == "cpu";
  return any_batch ? std::min<int64_t>(config.batch().group_size(), at_once) : at_once;
}

model::PictureSize PictureSizeOf(const v1::SamplingConfig& sampling) {
  return {.height = sampling.height(), .width = sampling.width(), .frames = sampling.frames()};
}

absl::StatusOr<std::shared_ptr<const model::DecoderArchitecture>> DecoderOf(
    const io::DiffusersComponent& vae) {
  OXBOW_ASSIGN_OR_RETURN(const std::string class_name, model::DecoderClassOf(vae.config_json));
  if (class_name != vae.class_name) {
    return absl::InvalidArgumentError(
        absl::StrCat("config.json is of ", class_name,
                     " (its _class_name, or without one), model_index.json says ", vae.class_name));
  }
  return io::FirstGraph(vae, [&](const std::string& graph_json) {
    return model::ReadDecoder(vae.config_json, graph_json);
  });
}

absl::StatusOr<std::shared_ptr<const model::Architecture>> ArchitectureOf(
    const io::DiffusersComponent& transformer) {
  return io::FirstGraph(transformer, [&](const std::string& graph_json) {
    return model::ReadArchitecture({.class_name = transformer.class_name,
                                    .config_json = transformer.config_json,
                                    .graph_json = graph_json});
  });
}

void FillLoraTargets(const model::Architecture& architecture, v1::ModelConfig& config) {
  if (config.trained() != v1::TRAINED_PART_LORA || !config.lora().targets().empty()) return;
  for (std::string& target : model::LoraTargetsOf(architecture)) {
    config.mutable_lora()->add_targets(std::move(target));
  }
}

absl::StatusOr<LoraSize> LoraSizeOf(const std::map<std::string, io::TensorHeader>& tensors,
                                    const v1::LoraConfig& lora) {
  static constexpr std::string_view kWeight = ".weight";
  model::LinearModules modules;
  for (const auto& [name, tensor] : tensors) {
    if (!name.ends_with(kWeight) || tensor.shape.size() != 2) continue;
    modules[name.substr(0, name.size() - kWeight.size())] = {tensor.shape[1], tensor.shape[0]};
  }
  static constexpr char kKey[] = "model.lora.targets";
  if (lora.targets().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kKey,
                     ": name the layers that get an adapter: this class of transformers has "
                     "no customary ones"));
  }
  const auto found =
      model::MatchLoraTargets(modules, {lora.targets().begin(), lora.targets().end()});
  if (!found.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kKey, ": ", std::string(found.status().message())));
  }
  const std::vector<std::string>& matched = *found;
  LoraSize size;
  for (const std::string& module : matched) {
    const auto& [in, out] = modules.at(module);
    size.parameters += lora.rank() * static_cast<uint64_t>(in + out);
    size.adapted += static_cast<uint64_t>(in * out);
    const auto useful = static_cast<uint64_t>(std::min(in, out));
    size.rank_useful = size.rank_useful == 0 ? useful : std::min(size.rank_useful, useful);
  }
  return size;
}

absl::StatusOr<double> EmbeddedGuidance(const model::Architecture& architecture,
                                        const v1::SamplingConfig& config) {
  const double scale = config.embedded_guidance();
  if (!architecture.takes_embedded_guidance()) {
    if (scale == 0) return 0;
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.embedded_guidance must be 0: this ", architecture.class_name(),
                     " takes no scale of guidance as an input, got ", scale));
  }
  if (scale > 0) return scale;
  if (architecture.default_guidance() > 0) return architecture.default_guidance();
  return absl::InvalidArgumentError(
      absl::StrCat("sampling.embedded_guidance must be set: the graph of this ",
                   architecture.class_name(), " names no scale of its own"));
}

std::vector<config::Problem> CheckDistilled(const std::filesystem::path& model,
                                            const v1::SamplingConfig& sampling, double guidance) {
  config::Findings f;
  const std::optional<io::DistilledSign> sign = io::DistilledBy(model);
  if (!sign.has_value()) return {};
  if (sampling.eta() > kEtaMax && AddsNoiseByEta(sampling.dynamics())) {
    f.Warn(
        "sampling.eta",
        absl::StrCat("is large for a model that is distilled to few steps (", SaidBy(*sign),
                     "): pictures drown in noise that it never learned to remove; take at most ",
                     kEtaMax, ", or nft or awm with sampling.dynamics: ode, got ", sampling.eta()));
  }
  if (guidance > 1 && !sign->ignores_guidance) {
    const double none = 1 - (guidance - sampling.guidance());  // By the pipeline's own scale.
    f.Warn("sampling.guidance",
           absl::StrCat("guides a model that is distilled to few steps (", SaidBy(*sign),
                        "), whose guidance is within: its pictures burn out; take ", none, ", got ",
                        sampling.guidance()));
  }
  return std::move(f.problems);
}

absl::Status CheckTakesGuidance(const std::filesystem::path& model, double guidance) {
  if (guidance <= 1) return absl::OkStatus();
  const std::optional<io::DistilledSign> sign = io::DistilledBy(model);
  if (!sign.has_value() || !sign->ignores_guidance) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sampling.guidance must be 1: for a distilled model (", SaidBy(*sign),
                   ") the pipeline does no guidance, whatever the scale, got ", guidance));
}

}  // namespace oxbow::run
