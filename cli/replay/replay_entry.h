// SPDX-License-Identifier: Apache-2.0
// The questions of `oxbow replay`, and its `show` and `export`: one entry with its latents, which
// take LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/image8.h"
#include "cli/replay/replay_source.h"
#include "oxbow/v1/replay_buffer.pb.h"

namespace at {
class Tensor;  // oxbow links no LibTorch and includes this.
}  // namespace at
namespace oxbow::model {
class ImageDecoder;
}  // namespace oxbow::model

namespace oxbow::cli {

// A replay entry's stored steps as images: one strip, x_i from left to right. Of videos a strip for
// each x_i, its frames from left to right.
//
// Shows a latent that is an image (1 or 3 channels) as it is, others in false colours: the first
// three channels over their largest absolute value. A decoder, if there is one, decodes them all.
//
// The latents of a whole entry, float32 [n, C, H, W] or [n, C, F, H, W]. kFailedPrecondition for an
// entry without latents or with others; kInvalidArgument if the bytes do not fit dtype and shape.
absl::StatusOr<at::Tensor> LatentsOf(const v1::ReplayEntry& entry);

// Facts about `latents`, which LatentsOf gave for the entry; a group's are member by member.
std::vector<LatentFacts> FactsOf(const at::Tensor& latents, const v1::ReplayEntry& entry);

// `decoder` may be null. A group has one row per trajectory. Of long videos every n-th frame is
// shown.
absl::StatusOr<Image8> StripOf(const v1::ReplayEntry& entry, const model::ImageDecoder* decoder);

struct ReplayFlags {
  ReplayPlace place;
  double timeout_s = 10;
  std::string format = "text";
  std::string table = "best";
  std::string sort = "reward";
  bool reverse = false;
  uint64_t limit = 50;
  uint64_t entry = 0;
  std::string out = ".";
  std::string model;

  bool json() const { return format == "json"; }
  absl::Duration timeout() const { return absl::Seconds(timeout_s); }
};

// Prints everything of one entry.
absl::Status ShowEntry(const ReplayFlags& flags);

// Writes entry_ID.json, .safetensors and .png into flags.out, and prints their names.
absl::Status ExportEntry(const ReplayFlags& flags);

}  // namespace oxbow::cli
