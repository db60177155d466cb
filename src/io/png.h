// PNG bytes to and from 8-bit grey or RGB images.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "io/image.h"

namespace oxbow::io {

// Encodes losslessly; the same image gives the same bytes with the same libpng. Requires a valid
// image.
std::string EncodePng(const Image8& image);

// Decodes grey PNGs to one channel and all others to three; 16 bits are reduced to 8, transparency
// is blended with black. The bytes are not trusted: kInvalidArgument if they are not a PNG or have
// more than `pixels_max` pixels, kDataLoss if they are truncated or corrupt.
absl::StatusOr<Image8> DecodePng(std::string_view bytes, int64_t pixels_max = int64_t{1} << 26);

}  // namespace oxbow::io
