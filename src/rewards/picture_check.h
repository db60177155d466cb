// SPDX-License-Identifier: Apache-2.0
// The check that every reward makes of a picture that it looks at pixel by pixel.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "base/image8.h"

namespace oxbow::rewards {

// kInvalidArgument, naming the reward, unless the picture has positive sides of at most
// io::kJpegSideMax, 1 or 3 channels, and as many bytes as that says.
absl::Status CheckPicture(const Image8& image, const std::string& reward);

}  // namespace oxbow::rewards
