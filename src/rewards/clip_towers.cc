// SPDX-License-Identifier: Apache-2.0
#include "rewards/clip_towers.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "core/model/clip_pixels.h"
#include "core/model/open_clip_names.h"
#include "core/reward/clip_crop.h"
#include "io/tensor_torch.h"
#include "rewards/batch_scorer.h"
#include "rewards/network_files.h"

namespace oxbow::rewards {
namespace {

namespace fs = std::filesystem;

constexpr char kLogitScale[] = "logit_scale";
constexpr uint64_t kConfigBytesMax = 1 << 20;
// Texts have few different lengths, so that many go through the encoder together.
constexpr size_t kLengths = 8;

struct Configs {
  model::ClipTextParams text;
  model::ClipVisionParams vision;
};

absl::Status Defect(const std::string& what) { return absl::FailedPreconditionError(what); }

// CLIPModel takes the width of embeddings from the outermost level, whatever the inner ones say.
absl::StatusOr<Configs> ParseConfigs(const std::string& text) {
  const auto config = ParseJson(text);
  if (!config.is_object()) return Defect("not a JSON object");
  nlohmann::json parts[2];
  const char* const names[2] = {"text_config", "vision_config"};
  for (int i = 0; i < 2; ++i) {
    if (!config.contains(names[i]) || !config[names[i]].is_object()) {
      return Defect(absl::StrCat("no ", names[i], ": not the config of a CLIPModel"));
    }
    parts[i] = config[names[i]];
    parts[i]["projection_dim"] = config.value("projection_dim", nlohmann::json(512));
  }
  Configs configs;
  OXBOW_ASSIGN_OR_RETURN(configs.text, model::ParseClipTextConfig(parts[0].dump()));
  OXBOW_ASSIGN_OR_RETURN(configs.vision, model::ParseClipVisionConfig(parts[1].dump()));
  return configs;
}

// A hash of what scores depend on. `tokenizer`: its directory.
std::string IdentityOf(const std::string& config, const fs::path& tokenizer,
                       const io::WeightFiles& files, at::ScalarType dtype) {
  std::string all = absl::StrCat(config, "\n", c10::toString(dtype), "\n");
  for (const char* const name : {"vocab.json", "merges.txt", "tokenizer_config.json"}) {
    const auto content = ReadFile(tokenizer / name);
    absl::StrAppend(&all, name, " ", content.ok() ? Sha256Hex(*content) : "absent", "\n");
    if (content.ok() || std::string_view(name) != "vocab.json") continue;
    const auto whole = ReadFile(tokenizer / "tokenizer.json");
    if (whole.ok()) absl::StrAppend(&all, "tokenizer.json ", Sha256Hex(*whole), "\n");
  }
  return Sha256Hex(all + WeightLines(files)).substr(0, 16);
}

std::string KeyOf(const Image8& image, ClipInput input) {
  const std::string_view bytes(reinterpret_cast<const char*>(image.pixels.data()),
                               image.pixels.size());
  return absl::StrCat("image ", static_cast<int>(input), " ", image.width, "x", image.height, "x",
                      image.channels, " ", Sha256(bytes));
}

at::Tensor UnitLength(const at::Tensor& rows) {
  const at::Tensor exact = rows.to(at::kCPU, at::kFloat);
  return exact / exact.norm(2, {-1}, /*keepdim=*/true);
}

}  // namespace

absl::StatusOr<std::shared_ptr<ClipTowers>> ClipTowers::Open(const fs::path& directory,
                                                             const ClipTowersOptions& options,
                                                             const Loaded& loaded) {
  const fs::path config_path = directory / "config.json";
  OXBOW_ASSIGN_OR_RETURN(const std::string config, ReadFile(config_path, kConfigBytesMax));
  auto configs = ParseConfigs(config);
  if (!configs.ok()) {
    return Defect(
        absl::StrCat(config_path.string(), ": ", std::string(configs.status().message())));
  }
  const fs::path& tokenizer_in = options.tokenizer.empty() ? directory : options.tokenizer;
  auto loaded_tokenizer = io::ClipTokenizer::Load(tokenizer_in);
  if (absl::IsNotFound(loaded_tokenizer.status()) && options.tokenizer.empty()) {
    return absl::NotFoundError(absl::StrCat(
        std::string(loaded_tokenizer.status().message()),
        "; name the directory or the Hub id of its tokenizer with the key `tokenizer`"));
  }
  OXBOW_ASSIGN_OR_RETURN(io::ClipTokenizer tokenizer, std::move(loaded_tokenizer));
  if (tokenizer.size() > configs->text.vocab_size) {
    return Defect(absl::StrCat(tokenizer_in.string(), ": the tokenizer gives ids up to ",
                               tokenizer.size() - 1, ", but the text encoder embeds ",
                               configs->text.vocab_size));
  }
  OXBOW_ASSIGN_OR_RETURN(const io::WeightFiles files, io::WeightFiles::Open(directory, "model"));
  std::string identity = IdentityOf(config, tokenizer_in, files, options.dtype);
  if (auto same = loaded ? loaded(identity) : nullptr) return same;
  std::shared_ptr<ClipTowers> towers(new ClipTowers(
      std::move(configs->text), std::move(configs->vision), std::move(tokenizer), options));
  towers->identity_ = std::move(identity);
  OXBOW_ASSIGN_OR_RETURN(model::NamedTensors tensors, io::LoadTensors(files));
  const absl::Status bound = towers->Bind(std::move(tensors));
  if (!bound.ok()) {
    return Defect(absl::StrCat(directory.string(), ": ", std::string(bound.message())));
  }
  return towers;
}

absl::Status ClipTowers::Bind(model::NamedTensors tensors) {
  if (model::AreOpenClip(tensors)) {
    OXBOW_ASSIGN_OR_RETURN(tensors, model::FromOpenClip(tensors));
  }
  if (!tensors.contains(kLogitScale)) return Defect("missing: logit_scale");
  // Nobody else holds a tensor when the encoders pack it.
  model::NamedTensors text, vision;
  while (!tensors.empty()) {
    const auto node = tensors.extract(tensors.begin());
    const std::string& name = node.key();
    const at::Tensor& tensor = node.mapped();
    if (name == kLogitScale) {
      if (tensor.numel() != 1) return Defect("logit_scale is not one number");
      scale_ = std::exp(tensor.item<double>());
      continue;
    }
    const bool of_image =
        name.starts_with("vision_model.") || name.starts_with("visual_projection.");
    const at::ScalarType type = tensor.is_floating_point() ? options_.dtype : tensor.scalar_type();
    (of_image ? vision : text)[name] = tensor.to(options_.device, type);
  }
  OXBOW_ASSIGN_OR_RETURN(text_, model::MakeClipTextEncoder(text_params_, std::move(text),
                                                           model::LinearWeights::kPacked));
  OXBOW_ASSIGN_OR_RETURN(vision_, model::MakeClipVisionEncoder(vision_params_, std::move(vision),
                                                               model::LinearWeights::kPacked));
  return absl::OkStatus();
}

absl::Status ClipTowers::CheckImage(const Image8& image) const {
  return CheckCropped(image, vision_params_.image_size, "CLIP");
}

at::Tensor ClipTowers::InputOf(const Image8& image, ClipInput input) const {
  const int64_t side = vision_params_.image_size;
  if (input == ClipInput::kProcessor || input == ClipInput::kTorchvision) {
    const auto border = input == ClipInput::kTorchvision ? reward::CropBorder::kHalfEven
                                                         : reward::CropBorder::kDown;
    return model::ClipPixels({reward::ClipCrop(image, static_cast<int>(side), border)});
  }
  const at::Tensor unit = model::UnitPixels(reward::ToRgb(image));
  const at::Tensor resized = input == ClipInput::kBilinearCrop
                                 ? model::ResizeShorterAndCrop(unit, side)
                                 : model::ResizeLongerAndPad(unit, side);
  return model::NormaliseForClip(resized).unsqueeze(0);
}

at::Tensor ClipTowers::IdsOf(const std::string& text) const {
  std::vector<int64_t> ids = tokenizer_.Encode(text, text_params_.max_position_embeddings);
  // All behind the end of the text is one token again and again, which no token before it sees.
  size_t length = ids.size();
  while (length > 1 && ids[length - 2] == ids.back()) --length;
  ids.resize(std::min(ids.size(), (length + kLengths - 1) / kLengths * kLengths));
  return at::tensor(ids, at::kLong).unsqueeze(0);
}

void ClipTowers::Keep(const std::string& key, const at::Tensor& row) {
  if (!kept_.emplace(key, row).second) return;
  oldest_.push_back(key);
}

template <typename Input, typename Encode>
at::Tensor ClipTowers::Embed(const std::vector<std::string>& keys, const Input& input,
                             const Encode& encode) {
  const at::NoGradGuard no_gradients;
  std::vector<size_t> missing;
  std::map<std::string, size_t> first;  // Equal inputs of one call need one row.
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!kept_.contains(keys[i]) && first.emplace(keys[i], i).second) missing.push_back(i);
  }
  struct Pass {
    std::vector<size_t> places;
    std::vector<at::Tensor> inputs;
  };
  const auto run = [&](Pass& pass) {
    if (pass.places.empty()) return;
    const at::Tensor rows = UnitLength(encode(at::cat(pass.inputs).to(options_.device)));
    for (size_t i = 0; i < pass.places.size(); ++i) {
      Keep(keys[pass.places[i]], rows[static_cast<int64_t>(i)].clone());
    }
    pass = {};
  };
  std::map<int64_t, Pass> passes;  // By the inputs' last size.
  for (const size_t i : missing) {
    const at::Tensor one = input(i);
    Pass& pass = passes[one.size(-1)];
    pass.places.push_back(i);
    pass.inputs.push_back(one);
    if (std::ssize(pass.places) == options_.rows_max) run(pass);
  }
  for (auto& [size, pass] : passes) run(pass);
  std::vector<at::Tensor> all;
  all.reserve(keys.size());
  for (const std::string& key : keys) all.push_back(kept_.at(key));
  while (kept_.size() > options_.kept_max) {
    kept_.erase(oldest_.front());
    oldest_.pop_front();
  }
  return at::stack(all);
}

at::Tensor ClipTowers::EmbedImages(absl::Span<const Image8* const> images, ClipInput input) {
  std::vector<std::string> keys;
  for (const Image8* const image : images) keys.push_back(KeyOf(*image, input));
  const absl::MutexLock lock(&mutex_);
  return Embed(
      keys, [&](size_t i) { return InputOf(*images[i], input); },
      [this](const at::Tensor& pixels) {
        images_embedded_ += pixels.size(0);
        return vision_->Encode(pixels);
      });
}

at::Tensor ClipTowers::EmbedTexts(absl::Span<const std::string> texts) {
  std::vector<std::string> keys;
  for (const std::string& text : texts) keys.push_back("text " + text);
  const absl::MutexLock lock(&mutex_);
  return Embed(
      keys, [&](size_t i) { return IdsOf(texts[i]); },
      [this](const at::Tensor& ids) {
        texts_embedded_ += ids.size(0);
        return text_->Encode(ids);
      });
}

int64_t ClipTowers::images_embedded() const {
  const absl::MutexLock lock(&mutex_);
  return images_embedded_;
}

int64_t ClipTowers::texts_embedded() const {
  const absl::MutexLock lock(&mutex_);
  return texts_embedded_;
}

absl::StatusOr<std::shared_ptr<ClipTowers>> LoadedTowers::Get(
    const std::filesystem::path& directory, const ClipTowersOptions& options) {
  std::error_code ignored;
  const std::string device = options.device.str();
  const Key key{absl::StrCat(c10::toString(options.dtype), " ",
                             std::filesystem::weakly_canonical(directory, ignored).string(), " ",
                             options.tokenizer.string()),
                device};
  absl::MutexLock lock(&mutex_);  // Held while a model loads: another reward may want the same.
  if (auto held = by_directory_[key].lock()) return held;
  const auto same = [&](const std::string& identity) {
    mutex_.AssertHeld();
    return by_identity_[{identity, device}].lock();
  };
  OXBOW_ASSIGN_OR_RETURN(std::shared_ptr<ClipTowers> towers,
                         ClipTowers::Open(directory, options, same));
  by_directory_[key] = towers;
  by_identity_[{towers->identity(), device}] = towers;
  return towers;
}

}  // namespace oxbow::rewards
