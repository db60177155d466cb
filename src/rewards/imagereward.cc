// SPDX-License-Identifier: Apache-2.0
#include "rewards/imagereward.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "core/model/clip_pixels.h"
#include "core/reward/clip_crop.h"
#include "io/bert_tokenizer.h"
#include "rewards/batch_scorer.h"
#include "rewards/network_files.h"

namespace oxbow::rewards {
namespace {

using model::NamedTensors;
using reward::Item;

constexpr double kScoreMean = 0.16717362830052426, kDeviation = 1.0333394966054072;
constexpr int64_t kTokens = 35;
constexpr size_t kRowsMax = 32;  // Images of one pass.
constexpr char kClass[] = "ImageReward";

reward::RewardFacts ImageRewardFactsOf(const OpenedNetwork& network,
                                       const std::string& vocabulary) {
  return {.name = "imagereward",
          .value_min = -3,
          .value_max = 3,
          .help = "ImageReward: BLIP's preference for the image, about -2.3 to 2",
          .identity = absl::StrCat("imagereward/1 blip ", network.identity, " vocabulary ",
                                   Sha256Hex(vocabulary).substr(0, 16))};
}

class ImageReward final : public BatchScorer {
 public:
  ImageReward(OpenedNetwork opened, io::BertTokenizer tokenizer, const std::string& vocabulary)
      : BatchScorer(ImageRewardFactsOf(opened, vocabulary)),
        network_(std::move(opened.network)),
        tokenizer_(std::move(tokenizer)),
        side_(network_->SizeOf("pixels", 2)) {}

 private:
  absl::Status CheckImage(const Image8& image) const override {
    return CheckCropped(image, side_, "ImageReward");
  }

  absl::StatusOr<std::vector<double>> Values(absl::Span<const Item* const> items) const override {
    std::vector<double> values;
    for (size_t begin = 0; begin < items.size(); begin += kRowsMax) {
      const auto part = items.subspan(begin, kRowsMax);
      OXBOW_ASSIGN_OR_RETURN(const NamedTensors outputs, network_->Run(InputsOf(part)));
      const float* const logits = outputs.at("value").const_data_ptr<float>();
      for (size_t i = 0; i < part.size(); ++i)
        values.push_back((logits[i] - kScoreMean) / kDeviation);
    }
    return values;
  }

  NamedTensors InputsOf(absl::Span<const Item* const> items) const {
    const auto rows = static_cast<int64_t>(items.size());
    std::vector<Image8> images;
    const at::Tensor ids = at::full({rows, kTokens}, tokenizer_.pad_id(), at::kLong);
    const at::Tensor mask = at::zeros({rows, kTokens});
    for (int64_t row = 0; row < rows; ++row) {
      const Item& item = *items[static_cast<size_t>(row)];
      images.push_back(
          reward::ClipCrop(item.picture(), static_cast<int>(side_), reward::CropBorder::kHalfEven));
      const auto tokens = tokenizer_.Encode(std::string(item.prompt), kTokens);
      ids[row].narrow(0, 0, std::ssize(tokens)).copy_(at::tensor(tokens, at::kLong));
      mask[row].narrow(0, 0, std::ssize(tokens)).fill_(1);
    }
    return {{"pixels", model::ClipPixels(images)}, {"ids", ids}, {"mask", mask}};
  }

  const std::unique_ptr<model::exported::ExportedNetwork> network_;
  const io::BertTokenizer tokenizer_;
  const int64_t side_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<reward::Scorer>> OpenImageReward(
    const std::filesystem::path& directory, const model::exported::NetworkOptions& options) {
  // The smaller file first: loading weights takes its time.
  OXBOW_ASSIGN_OR_RETURN(io::BertTokenizer tokenizer,
                         io::BertTokenizer::Load(directory, {"[DEC]", "[ENC]"}));
  OXBOW_ASSIGN_OR_RETURN(const std::string vocabulary, ReadFile(directory / "vocab.txt"));
  OXBOW_ASSIGN_OR_RETURN(OpenedNetwork opened, OpenNetwork(directory, kClass, options));
  const auto config = nlohmann::json::parse(opened.network->config_json());
  const auto embedded = config.value("vocab_size", int64_t{0});
  if (tokenizer.size() > embedded) {
    return absl::FailedPreconditionError(absl::StrCat((directory / "vocab.txt").string(),
                                                      ": gives ids up to ", tokenizer.size() - 1,
                                                      ", but the network embeds ", embedded));
  }
  return std::make_unique<ImageReward>(std::move(opened), std::move(tokenizer), vocabulary);
}

}  // namespace oxbow::rewards
