// SPDX-License-Identifier: Apache-2.0
#include "rewards/picture_check.h"

#include "absl/strings/str_cat.h"
#include "io/image.h"

namespace oxbow::rewards {

absl::Status CheckPicture(const Image8& image, const std::string& reward) {
  if (io::IsValid(image) && image.width <= io::kJpegSideMax && image.height <= io::kJpegSideMax) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(reward, " takes no such picture: ", image.width,
                                                 " x ", image.height, ", ", image.channels,
                                                 " channels, ", image.pixels.size(), " bytes"));
}

}  // namespace oxbow::rewards
