// SPDX-License-Identifier: Apache-2.0
#include "rewards/instance_detector.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "core/reward/opencv_resize.h"
#include "rewards/network_files.h"

namespace oxbow::rewards {
namespace {

using reward::ImageSize;

constexpr int64_t kInstancesMax = 100;

at::Tensor Resized(const at::Tensor& map, ImageSize size) {
  return at::upsample_bilinear2d(map, {size.height, size.width}, /*align_corners=*/false);
}

// A query's mask on the image: logits above 0 are inside.
struct Mask {
  at::Tensor inside;  // [height, width] bool
  std::array<float, 4> box = {};
  float score = 0;
};

// First and last true of a vector.
std::optional<std::pair<int64_t, int64_t>> Extent(const at::Tensor& any) {
  const at::Tensor places = any.nonzero();
  if (places.size(0) == 0) return std::nullopt;
  return std::pair(places[0].item<int64_t>(), places[-1].item<int64_t>());
}

Mask MaskOf(const at::Tensor& logits, const DetectorSizes& sizes) {
  const at::Tensor input = Resized(logits.unsqueeze(0).unsqueeze(0), sizes.input);
  const at::Tensor part =
      input.narrow(2, 0, sizes.resized.height).narrow(3, 0, sizes.resized.width);
  const at::Tensor map = Resized(part, sizes.image)[0][0];
  Mask mask{.inside = map > 0};
  const at::Tensor weights = mask.inside.to(at::kFloat);
  mask.score = ((map.sigmoid() * weights).sum() / (weights.sum() + 1e-6)).item<float>();
  const auto x = Extent(mask.inside.any(0)), y = Extent(mask.inside.any(1));
  if (x && y) {
    mask.box = {static_cast<float>(x->first), static_cast<float>(y->first),
                static_cast<float>(x->second + 1), static_cast<float>(y->second + 1)};
  }
  return mask;
}

constexpr char kDetectorClass[] = "Mask2Former";
constexpr int kMultiple = 32;
constexpr double kMean[] = {123.675, 116.28, 103.53};
constexpr double kDetectorDeviation[] = {58.395, 57.12, 57.375};

int RoundedUp(int size) { return (size + kMultiple - 1) / kMultiple * kMultiple; }

std::string Shown(ImageSize size) { return absl::StrCat(size.width, " x ", size.height); }

// [3, H, W] float32, (value - mean) / deviation.
at::Tensor Normalised(const Image8& image) {
  const at::Tensor values = at::from_blob(const_cast<uint8_t*>(image.pixels.data()),
                                          {image.height, image.width, 3}, at::kByte)
                                .to(at::kFloat);
  at::Tensor mean = at::empty({3}), inverse = at::empty({3});
  for (int64_t c = 0; c < 3; ++c) {
    mean[c] = kMean[c];
    inverse[c] = 1 / kDetectorDeviation[c];
  }
  return ((values - mean) * inverse).permute({2, 0, 1});
}

double NumberAt(const nlohmann::json& config, const char* key) {
  const nlohmann::json& value = MemberOf(config, key);
  return value.is_number() ? value.get<double>() : 0;
}

}  // namespace

std::vector<Instance> InstancesOf(const at::Tensor& classes, const at::Tensor& masks,
                                  const DetectorSizes& sizes, float score_least) {
  const int64_t things = classes.size(1) - 1;
  const at::Tensor scores = classes.softmax(1).narrow(1, 0, things).flatten();
  const auto [best, places] = scores.topk(std::min(kInstancesMax, scores.numel()));
  std::map<int64_t, Mask> by_query;  // A query may have several classes.
  std::vector<Instance> instances;
  for (int64_t i = 0; i < best.numel(); ++i) {
    const auto score = best[i].item<float>();
    if (!(score > score_least)) continue;  // A mask's score is 1 at most.
    const auto place = places[i].item<int64_t>();
    auto [found, fresh] = by_query.try_emplace(place / things);
    if (fresh) found->second = MaskOf(masks[place / things], sizes);
    const Mask& mask = found->second;
    if (!(score * mask.score > score_least)) continue;
    const at::Tensor inside = mask.inside.to(at::kByte).contiguous();
    const auto* const bytes = inside.const_data_ptr<uint8_t>();
    instances.push_back({.detection = {.thing = static_cast<int>(place % things),
                                       .box = mask.box,
                                       .score = score * mask.score},
                         .mask = {bytes, bytes + inside.numel()}});
  }
  return instances;
}

absl::StatusOr<std::unique_ptr<InstanceDetector>> InstanceDetector::Open(
    const std::filesystem::path& directory, const model::exported::NetworkOptions& options) {
  OXBOW_ASSIGN_OR_RETURN(OpenedNetwork opened, OpenNetwork(directory, kDetectorClass, options));
  const std::string config = opened.network->config_json();
  return std::unique_ptr<InstanceDetector>(
      new InstanceDetector(std::move(opened.network), std::move(opened.identity), config));
}

InstanceDetector::InstanceDetector(std::unique_ptr<model::exported::ExportedNetwork> network,
                                   std::string identity, const std::string& config_json)
    : network_(std::move(network)),
      identity_(std::move(identity)),
      input_{.width = static_cast<int>(network_->SizeOf("pixels", 3)),
             .height = static_cast<int>(network_->SizeOf("pixels", 2))} {
  const auto config = nlohmann::json::parse(config_json);
  shorter_ = NumberAt(config, "shorter");
  longer_ = NumberAt(config, "longer");
  classes_ = static_cast<int64_t>(NumberAt(config, "classes"));
}

ImageSize InstanceDetector::ResizedTo(ImageSize image) const {
  const auto [least, most] = std::minmax(image.width, image.height);
  const double scale = std::min(longer_ / most, shorter_ / least);
  return {.width = static_cast<int>(image.width * scale + 0.5),
          .height = static_cast<int>(image.height * scale + 0.5)};
}

absl::Status InstanceDetector::CheckSize(ImageSize image) const {
  const ImageSize resized = ResizedTo(image);
  const ImageSize padded{.width = RoundedUp(resized.width), .height = RoundedUp(resized.height)};
  if (padded == input_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("an image of ", Shown(image), " becomes ", Shown(padded),
                   " for the detector, whose graph is ", "for ", Shown(input_),
                   ": export one with this width and height (docs/rewards.md)"));
}

absl::StatusOr<model::NamedTensors> InstanceDetector::Logits(const Image8& image) const {
  const ImageSize resized = ResizedTo({.width = image.width, .height = image.height});
  const at::Tensor pixels = at::zeros({1, 3, input_.height, input_.width});
  pixels[0]
      .narrow(1, 0, resized.height)
      .narrow(2, 0, resized.width)
      .copy_(Normalised(reward::ResizeAsOpencv(image, resized.width, resized.height)));
  OXBOW_ASSIGN_OR_RETURN(model::NamedTensors found, network_->Run({{"pixels", pixels}}));
  const at::Tensor &classes = found["classes"], &masks = found["masks"];
  if (!classes.defined() || !masks.defined() || classes.dim() != 3 || masks.dim() != 4 ||
      classes.size(2) != classes_ + 1 || masks.size(1) != classes.size(1)) {
    return absl::InternalError("the detector's graph has other outputs than its class");
  }
  if (!classes.isfinite().all().item<bool>() || !masks.isfinite().all().item<bool>()) {
    return absl::InternalError(
        "the detector's output is not finite; in 16 bits, weights may overflow: try float32");
  }
  return found;
}

absl::StatusOr<std::vector<Instance>> InstanceDetector::Detect(const Image8& image,
                                                               float score_least) const {
  const ImageSize size{.width = image.width, .height = image.height};
  OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors found, Logits(image));
  return InstancesOf(found.at("classes")[0], found.at("masks")[0],
                     {.image = size, .resized = ResizedTo(size), .input = input_}, score_least);
}

}  // namespace oxbow::rewards
