// SPDX-License-Identifier: Apache-2.0
#include "rewards/instance_masks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <optional>

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

}  // namespace oxbow::rewards
