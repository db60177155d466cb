// SPDX-License-Identifier: Apache-2.0
// A Mask2Former (arXiv:2112.01527) on images, prepared as mmdetection's config has it: resized by
// OpenCV's bilinear kernel so that the shorter side is 800 or the longer one 1333, ImageNet's mean
// and deviation, zeros to the right and below up to a multiple of 32.
//
// The directory is that of rewards/network_files.h. A graph is for one size of its input, 800 x 800
// in the one that comes with oxbow: for square images.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/image8.h"
#include "core/model/exported_graph/exported_network.h"
#include "rewards/instance_masks.h"

namespace oxbow::rewards {

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
