// SPDX-License-Identifier: Apache-2.0
// A Mask2Former (arXiv:2112.01527) on images, prepared as mmdetection's config has it: resized by
// OpenCV's bilinear kernel so that the shorter side is 800 or the longer one 1333, ImageNet's mean
// and deviation, zeros to the right and below up to a multiple of 32.
//
// The directory is that of rewards/network_files.h. A graph is for one size of its input, 800 x 800
// in the one that comes with oxbow: for square images.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/image8.h"
#include "core/model/exported_graph/exported_network.h"
#include "core/reward/clip_crop.h"
#include "core/reward/geneval_rule.h"

namespace oxbow::rewards {

// Instances of a Mask2Former (arXiv:2112.01527) from its logits, as mmdetection 2's
// MaskFormerFusionHead makes them:
//
//   score of (query, class)  softmax over the classes and "none", without "none"; the best 100
//   mask of a query          its logits, resized to the input and then to the image, above 0
//   score of an instance     score of (query, class) times the mean of the sigmoids in its mask
//   box                      around its mask
struct Instance {
  reward::Detection detection;
  std::vector<uint8_t> mask;  // [height, width] of the image; 1 inside.
};

// An image on its way through the network.
struct DetectorSizes {
  reward::ImageSize image;    // As it came.
  reward::ImageSize resized;  // As it was resized, at the upper left of
  reward::ImageSize input;    // what the network saw.
};

// Instances whose scores are greater than `score_least`, in no order. classes [Q, K + 1] and masks
// [Q, h, w]: logits in float32 on the CPU. Masks that cannot be among them are not resized.
std::vector<Instance> InstancesOf(const at::Tensor& classes, const at::Tensor& masks,
                                  const DetectorSizes& sizes, float score_least);

class InstanceDetector {
 public:
  // The errors of OpenNetwork.
  static absl::StatusOr<std::unique_ptr<InstanceDetector>> Open(
      const std::filesystem::path& directory, const model::exported::NetworkOptions& options);

  // kInvalidArgument for an image that does not fill the graph's input.
  absl::Status CheckSize(reward::ImageSize image) const;

  // The network's outputs for an RGB image: `classes` [1, Q, classes + 1] and `masks` [1, Q, h, w].
  absl::StatusOr<model::NamedTensors> Logits(const Image8& image) const;

  // The instances in an RGB image, with scores greater than `score_least`, in no order. Requires a
  // valid image of a size that CheckSize takes. An image is a pass of its own, so that no other one
  // has a part in its result.
  absl::StatusOr<std::vector<Instance>> Detect(const Image8& image, float score_least) const;

  int64_t classes() const { return classes_; }
  // A hash of graph, weights and type.
  const std::string& identity() const { return identity_; }

 private:
  InstanceDetector(std::unique_ptr<model::exported::ExportedNetwork> network, std::string identity,
                   const std::string& config_json);

  reward::ImageSize ResizedTo(reward::ImageSize image) const;

  const std::unique_ptr<model::exported::ExportedNetwork> network_;
  const std::string identity_;
  reward::ImageSize input_;
  double shorter_ = 0, longer_ = 0;
  int64_t classes_ = 0;
};

}  // namespace oxbow::rewards
