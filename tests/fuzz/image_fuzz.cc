// SPDX-License-Identifier: Apache-2.0
// For any bytes: an image is refused with one line, or has the pixels that its size says.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "io/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow::io;  // NOLINT: a file of one function.
  constexpr int64_t kPixelsMax = 1 << 14;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto image = DecodeImage(bytes, kPixelsMax);
  if (!image.ok()) {
    const absl::Status& status = image.status();
    OXBOW_CHECK(status.code() == absl::StatusCode::kDataLoss ||
                status.code() == absl::StatusCode::kInvalidArgument)
        << status.ToString();
    OXBOW_CHECK(status.message().find('\n') == std::string_view::npos) << status.ToString();
    return 0;
  }
  OXBOW_CHECK(IsValid(*image)) << image->width << "x" << image->height;
  const auto shape = bytes[0] == '\x89' ? ShapeOfPng(bytes) : ShapeOfJpeg(bytes);
  const ImageShape expected{image->width, image->height, image->channels};
  OXBOW_CHECK(shape.ok() && *shape == expected) << shape.status().ToString();
  OXBOW_CHECK(int64_t{image->width} * image->height <= kPixelsMax) << image->width;
  const auto again = DecodePng(EncodePng(*image));
  OXBOW_CHECK(again.ok() && *again == *image) << again.status().ToString();
  return 0;
}
