#include "cli/plan/model_facts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/lora_targets.h"
#include "io/diffusers_directory.h"

namespace oxbow::cli {
namespace {

constexpr char kPositionTable[] = "pos_embed.pos_embed";  // Never trained.

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

int64_t NumberIn(const std::string& config_json, const char* key, int64_t absent) {
  const auto config = nlohmann::json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  return config.is_object() && config.contains(key) && config[key].is_number_integer()
             ? config[key].get<int64_t>()
             : absent;
}

// Pixels of a side per latent: an autoencoder halves its sides between levels; without one the
// latent is the picture.
int64_t FactorOf(const io::DiffusersComponents& components) {
  const auto vae = components.find("vae");
  if (vae == components.end()) return 1;
  const auto config =
      nlohmann::json::parse(vae->second.config_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object() || !config.contains("block_out_channels")) return 1;
  return int64_t{1} << std::clamp<size_t>(config["block_out_channels"].size(), 1, 16) >> 1;
}

std::vector<int64_t> LatentShape(const std::string& transformer_config, int64_t factor,
                                 const v1::SamplingConfig& sampling) {
  const int64_t side = NumberIn(transformer_config, "sample_size", 128);
  return {NumberIn(transformer_config, "in_channels", 16),
          sampling.height() > 0 ? sampling.height() / factor : side,
          sampling.width() > 0 ? sampling.width() / factor : side};
}

// CLIP's tokens, and T5's after them.
int64_t PromptTokens(const io::DiffusersComponents& components, const v1::PromptConfig& prompts) {
  int64_t tokens = 0;
  if (const auto clip = components.find("text_encoder"); clip != components.end()) {
    tokens += NumberIn(clip->second.config_json, "max_position_embeddings", 77);
  }
  if (components.contains("text_encoder_3")) tokens += prompts.t5_length();
  return tokens;
}

int64_t TokensOf(const std::string& transformer_config, const std::vector<int64_t>& latent_shape) {
  const int64_t patch = std::max(int64_t{1}, NumberIn(transformer_config, "patch_size", 2));
  return (latent_shape[1] / patch) * (latent_shape[2] / patch);
}

absl::StatusOr<uint64_t> TextEncoderBytes(const io::DiffusersComponents& components) {
  uint64_t bytes = 0;
  for (const auto& [name, component] : components) {
    if (!name.starts_with("text_encoder")) continue;
    OXBOW_ASSIGN_OR_RETURN(const Headers tensors, io::ReadComponentHeaders(component));
    for (const auto& [tensor, header] : tensors) {
      const bool shorter = name == "text_encoder_3" &&
                           (header.dtype == io::DType::kF16 || header.dtype == io::DType::kBF16);
      bytes += (shorter ? 2 : 4) * Elements(header);
    }
  }
  return bytes;
}

// Of what sampling needs of it.
absl::StatusOr<uint64_t> DecoderParameters(const io::DiffusersComponents& components) {
  const auto vae = components.find("vae");
  if (vae == components.end()) return 0;
  OXBOW_ASSIGN_OR_RETURN(const Headers tensors, io::ReadComponentHeaders(vae->second));
  uint64_t parameters = 0;
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with("decoder.") || name.starts_with("post_quant_conv.")) {
      parameters += Elements(tensor);
    }
  }
  return parameters;
}

absl::StatusOr<ModelFacts> Read(const v1::RunConfig& config) {
  OXBOW_ASSIGN_OR_RETURN(const io::DiffusersComponents components,
                         io::OpenDiffusersDirectory(config.model().path()));
  const io::DiffusersComponent& transformer = components.at("transformer");
  OXBOW_ASSIGN_OR_RETURN(const Headers tensors, io::ReadComponentHeaders(transformer));
  OXBOW_ASSIGN_OR_RETURN(const uint64_t text, TextEncoderBytes(components));
  OXBOW_ASSIGN_OR_RETURN(const uint64_t decoder, DecoderParameters(components));
  ModelFacts facts{
      .transformer_parameters = Elements(tensors),
      .text_encoder_bytes = text,
      .decoder_parameters = decoder,
      .shift = config.sampling().shift(),
      .latent_shape = LatentShape(transformer.config_json, FactorOf(components), config.sampling()),
      .prompt_tokens = PromptTokens(components, config.prompts()),
      .transformer_config_json = transformer.config_json};
  const std::string& json = transformer.config_json;
  facts.conditioning_bytes =
      4 * static_cast<uint64_t>(facts.prompt_tokens * NumberIn(json, "joint_attention_dim", 4096) +
                                NumberIn(json, "pooled_projection_dim", 2048));
  if (config.model().trained() == v1::TRAINED_PART_LORA) {
    OXBOW_ASSIGN_OR_RETURN(facts.trained_parameters,
                           LoraParameters(tensors, config.model().lora()));
  } else {
    const auto table = tensors.find(kPositionTable);
    facts.trained_parameters =
        facts.transformer_parameters - (table == tensors.end() ? 0 : Elements(table->second));
  }
  if (facts.shift == 0) {
    OXBOW_ASSIGN_OR_RETURN(
        facts.shift, io::SchedulerShift(components.at("scheduler"),
                                        TokensOf(transformer.config_json, facts.latent_shape)));
  }
  return facts;
}

}  // namespace

absl::StatusOr<ModelFacts> ReadModelFacts(const v1::RunConfig& config) {
  auto facts = Read(config);
  // A file that is there but is not what it should be is a data error, not a usage error.
  if (absl::IsInvalidArgument(facts.status())) {
    return absl::FailedPreconditionError(facts.status().message());
  }
  return facts;
}

absl::StatusOr<uint64_t> LoraParameters(const std::map<std::string, io::TensorHeader>& tensors,
                                        const v1::LoraConfig& lora) {
  static constexpr std::string_view kWeight = ".weight";
  std::vector<std::string> modules;
  for (const auto& [name, tensor] : tensors) {
    if (!name.ends_with(kWeight) || tensor.shape.size() != 2) continue;
    modules.push_back(name.substr(0, name.size() - kWeight.size()));
  }
  OXBOW_ASSIGN_OR_RETURN(
      const std::vector<std::string> matched,
      model::MatchTargets(modules, {lora.targets().begin(), lora.targets().end()}));
  uint64_t parameters = 0;
  for (const std::string& module : matched) {
    const auto& shape = tensors.at(absl::StrCat(module, std::string(kWeight))).shape;
    parameters += lora.rank() * static_cast<uint64_t>(shape[0] + shape[1]);
  }
  return parameters;
}

}  // namespace oxbow::cli
