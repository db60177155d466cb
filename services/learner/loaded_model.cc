#include "services/learner/loaded_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/clip_text.h"
#include "core/model/sd3.h"
#include "core/model/text_conditioning.h"
#include "io/clip_tokenizer.h"
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

// The tokenizer and text encoder as one function that owns both.
absl::StatusOr<PromptEncoder> MakeEncoder(const io::DiffusersComponents& components) {
  const io::DiffusersComponent& text = components.at("text_encoder");
  OXBOW_ASSIGN_OR_RETURN(const model::ClipTextParams params,
                         model::ParseClipTextConfig(text.config_json));
  OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors tensors, ReadTensors(text));
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<model::ClipTextEncoder> encoder,
                         model::MakeClipTextEncoder(params, tensors));
  auto tokenizer = io::ClipTokenizer::Load(components.at("tokenizer").directory);
  if (!tokenizer.ok()) return tokenizer.status();
  const int64_t length = std::min(params.max_position_embeddings, tokenizer->model_max_length());
  // Shared: std::function wants what it holds to be copyable.
  auto words = std::make_shared<const io::ClipTokenizer>(*std::move(tokenizer));
  std::shared_ptr<const model::TextConditioning> composer =
      model::MakeSingleClipConditioning(std::move(encoder));
  return PromptEncoder(
      [words, composer,
       length](const std::vector<std::string>& texts) -> absl::StatusOr<model::Conditioning> {
        const at::NoGradGuard no_gradients;
        at::Tensor ids = at::empty({static_cast<int64_t>(texts.size()), length}, at::kLong);
        for (size_t i = 0; i < texts.size(); ++i) {
          const std::vector<int64_t> row = words->Encode(texts[i], length);
          std::copy(row.begin(), row.end(), ids[static_cast<int64_t>(i)].data_ptr<int64_t>());
        }
        const model::EncodedText text = composer->Encode({ids});
        return model::Conditioning{.tokens = text.at(model::kClipTokens),
                                   .pooled = text.at(model::kClipPooled)};
      });
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
                                      const v1::SamplingConfig& sampling) {
  auto components = io::OpenDiffusersDirectory(config.path());
  if (!components.ok()) return DataError(components.status(), config.path());
  if (components->contains("vae") || components->contains("text_encoder_2")) {
    return absl::FailedPreconditionError(
        absl::StrCat("models with an autoencoder or several text encoders are not supported yet: ",
                     config.path()));
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
  auto encoder = MakeEncoder(*components);
  if (!encoder.ok())
    return DataError(encoder.status(), components->at("text_encoder").directory.string());
  loaded.encoder = *std::move(encoder);
  loaded.decoder = model::MakePixelDecoder();
  return loaded;
}

}  // namespace oxbow::learner
