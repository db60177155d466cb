// SPDX-License-Identifier: Apache-2.0
#include "core/model/architecture.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace oxbow::model {

namespace {

constexpr int64_t kFramesMax = 1 << 12;

// Latent frames of so many frames: the first latent frame is one, each further one `time`.
absl::StatusOr<int64_t> LatentFrames(const LatentGeometry& geometry, int64_t time, int64_t frames) {
  if (frames == 0) return geometry.frames;
  if (geometry.frames == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.frames must be 0: this model draws images, not videos: ", frames));
  }
  int64_t most = kFramesMax;
  if (geometry.frames_max > 0) most = std::min(most, (geometry.frames_max - 1) * time + 1);
  if (frames > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.frames must be at most ", most, " for this model: ", frames));
  }
  const int64_t patch = geometry.patch.frames, step = time * patch;
  const int64_t latent = ((frames - 1) / time + 1) / patch * patch;
  const int64_t below = (latent - 1) * time + 1;
  if (below == frames) return latent;
  const std::string form =
      patch == 1 ? absl::StrCat(time, " k + 1") : absl::StrCat(step, " k - ", time - 1);
  return absl::InvalidArgumentError(
      absl::StrCat("sampling.frames must be ", form, " for this model: ", frames, "; the nearest ",
                   latent == 0 ? "is " : absl::StrCat("are ", below, " and "), below + step));
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> LatentShape(const LatentGeometry& geometry,
                                                 const LatentFactors& factors,
                                                 const PictureSize& size) {
  OXBOW_ASSIGN_OR_RETURN(const int64_t frames, LatentFrames(geometry, factors.time, size.frames));
  const int64_t factor = factors.space;
  int64_t height = size.height, width = size.width;
  const int64_t whole = geometry.side * factor;
  if (height == 0) height = whole;
  if (width == 0) width = whole;
  const int64_t of_height = geometry.patch.height * factor,
                of_width = geometry.patch.width * factor;
  const int64_t side_max = geometry.side_max * factor;
  if (height % of_height != 0 || width % of_width != 0 || height > side_max || width > side_max) {
    const std::string multiples = of_height == of_width
                                      ? absl::StrCat(of_height)
                                      : absl::StrCat(of_height, " and ", of_width);
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.height and width must be multiples of ", multiples, ", at most ",
                     side_max, ", for this model: ", height, " x ", width));
  }
  std::vector<int64_t> shape = {geometry.channels};
  if (frames > 0) shape.push_back(frames);
  shape.push_back(height / factor);
  shape.push_back(width / factor);
  return shape;
}

PictureSize DecodedSize(const LatentFactors& factors, const std::vector<int64_t>& latent_shape) {
  const size_t rank = latent_shape.size();
  return {.height = latent_shape[rank - 2] * factors.space,
          .width = latent_shape[rank - 1] * factors.space,
          .frames = rank == 3 ? 0 : (latent_shape[1] - 1) * factors.time + 1};
}

int64_t TokensOf(const LatentGeometry& geometry, const std::vector<int64_t>& latent_shape) {
  const size_t rank = latent_shape.size();
  const LatentPatch& patch = geometry.patch;
  const int64_t of_image =
      (latent_shape[rank - 2] / patch.height) * (latent_shape[rank - 1] / patch.width);
  return geometry.frames == 0 ? of_image : latent_shape[1] / patch.frames * of_image;
}

bool LaunchesCount(const Architecture& architecture, const std::vector<int64_t>& latent_shape,
                   int64_t rows) {
  // SD3.5-M at eight rows of 512 px: 46 ms of kernels on an H100 and 30 of launches.
  constexpr double kFlopMax = 100e9;
  const LinearModules linears = architecture.linears();
  double weights = 0;
  for (const auto& [name, widths] : linears) {
    weights += static_cast<double>(widths.first) * static_cast<double>(widths.second);
  }
  const auto tokens = static_cast<double>(rows * TokensOf(architecture.latent(), latent_shape));
  return 2 * weights * tokens <= kFlopMax * static_cast<double>(linears.size());
}

absl::Status CheckDimensions(const LatentGeometry& geometry,
                             const std::vector<int64_t>& latent_shape) {
  if (static_cast<int64_t>(latent_shape.size()) == geometry.dimensions()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("latent shape is not ", geometry.layout(),
                                                 "; dimensions: ", latent_shape.size()));
}

}  // namespace oxbow::model
