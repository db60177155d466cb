// SPDX-License-Identifier: Apache-2.0
#include "rewards/aesthetic.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "core/model/layers.h"
#include "io/tensor_torch.h"
#include "rewards/batch_scorer.h"
#include "rewards/network_files.h"

namespace oxbow::rewards {
namespace {

constexpr std::string_view kLayers = "layers.";

using Layers = std::map<int, model::Linear>;  // By N; some are dropout and have no weights.

absl::Status AddTensor(const std::string& name, const at::Tensor& tensor, Layers& layers) {
  const size_t dot = name.find('.', kLayers.size());
  int number = 0;
  if (!name.starts_with(kLayers) || dot == std::string::npos ||
      !absl::SimpleAtoi(name.substr(kLayers.size(), dot - kLayers.size()), &number)) {
    return absl::FailedPreconditionError("not a tensor of an aesthetic head: " + name);
  }
  const std::string kind = name.substr(dot + 1);
  if (kind == "weight" && tensor.dim() == 2) {
    layers[number].weight = tensor;
  } else if (kind == "bias" && tensor.dim() == 1) {
    layers[number].bias = tensor;
  } else {
    return absl::FailedPreconditionError("not a weight or bias of a linear layer: " + name);
  }
  return absl::OkStatus();
}

absl::Status CheckChain(const Layers& layers, int64_t width) {
  for (const auto& [number, layer] : layers) {
    if (!layer.weight.defined() || !layer.bias.defined() || layer.weight.size(1) != width ||
        layer.bias.size(0) != layer.weight.size(0)) {
      return absl::FailedPreconditionError(
          absl::StrCat("layer ", number, " does not take ", width, " numbers"));
    }
    width = layer.weight.size(0);
  }
  if (layers.empty() || width != 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("the last layer gives ", width, " numbers instead of one"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Layers> ReadHead(const io::WeightFiles& files, int64_t width) {
  OXBOW_ASSIGN_OR_RETURN(const auto tensors, io::LoadTensors(files));
  Layers layers;
  for (const auto& [name, tensor] : tensors) {
    OXBOW_RETURN_IF_ERROR(AddTensor(name, tensor, layers));
  }
  OXBOW_RETURN_IF_ERROR(CheckChain(layers, width));
  return layers;
}

class Aesthetic final : public ClipScorer {
 public:
  Aesthetic(Layers layers, const std::string& head_identity, std::shared_ptr<ClipTowers> towers)
      : ClipScorer({.name = "aesthetic",
                    .value_min = 0,
                    .value_max = 10,
                    .help = "LAION aesthetic predictor, about 1 to 10",
                    .identity = "aesthetic/1 head " + head_identity},
                   std::move(towers)),
        layers_(std::move(layers)) {}

 private:
  absl::StatusOr<std::vector<double>> Values(
      absl::Span<const reward::Item* const> items) const override {
    const at::NoGradGuard no_gradients;
    std::vector<const Image8*> images;
    for (const reward::Item* const item : items) images.push_back(&item->picture());
    at::Tensor x = model::PadRows(towers().EmbedImages(images, ClipInput::kProcessor));
    for (const auto& [number, layer] : layers_) x = layer(x);
    const at::Tensor values = x.select(1, 0).contiguous();
    const float* const first = values.const_data_ptr<float>();
    return std::vector<double>(first, first + items.size());
  }

  const Layers layers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<reward::Scorer>> OpenAesthetic(std::shared_ptr<ClipTowers> towers,
                                                              const std::filesystem::path& head) {
  OXBOW_ASSIGN_OR_RETURN(const io::WeightFiles files, io::WeightFiles::OpenFile(head));
  auto layers = ReadHead(files, towers->width());
  if (!layers.ok()) return Annotate(layers.status(), head.string());
  return std::make_unique<Aesthetic>(
      *std::move(layers), Sha256Hex(WeightLines(files)).substr(0, 16), std::move(towers));
}

}  // namespace oxbow::rewards
