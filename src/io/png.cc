// SPDX-License-Identifier: Apache-2.0
#include <png.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "io/image.h"

namespace oxbow::io {
namespace {

constexpr std::string_view kSignature("\x89PNG\r\n\x1a\n", 8);
constexpr std::string_view kEndChunk("\0\0\0\0IEND\xae\x42\x60\x82", 12);

// libpng's simplified interface: reports errors in `message` instead of by longjmp.
struct PngImage {
  PngImage() {
    value = {};
    value.version = PNG_IMAGE_VERSION;
  }
  ~PngImage() { png_image_free(&value); }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;
  png_image value;
};

absl::Status ReadHeader(std::string_view bytes, PngImage& png) {
  if (!bytes.starts_with(kSignature)) {
    return absl::InvalidArgumentError(absl::StrCat("not a PNG: ", bytes.size(), " bytes"));
  }
  // libpng stops after the last row; without this a file cut inside its end would pass.
  if (!bytes.ends_with(kEndChunk)) {
    return absl::DataLossError(
        absl::StrCat("truncated PNG (no end chunk): ", bytes.size(), " bytes"));
  }
  if (png_image_begin_read_from_memory(&png.value, bytes.data(), bytes.size()) == 0) {
    return absl::DataLossError(absl::StrCat("corrupt PNG: ", png.value.message));
  }
  return absl::OkStatus();
}

ImageShape ShapeOf(const PngImage& png) {
  return {.width = static_cast<int>(png.value.width),
          .height = static_cast<int>(png.value.height),
          .channels = (png.value.format & PNG_FORMAT_FLAG_COLOR) != 0 ? 3 : 1};
}

}  // namespace

std::string EncodePng(const Image8& image) {
  OXBOW_CHECK(IsValid(image)) << "image of " << image.width << "x" << image.height << "x"
                              << image.channels << " with " << image.pixels.size() << " values";
  PngImage png;
  png.value.width = static_cast<png_uint_32>(image.width);
  png.value.height = static_cast<png_uint_32>(image.height);
  png.value.format = image.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png.value);
  std::string bytes(size, '\0');
  const int done = png_image_write_to_memory(&png.value, bytes.data(), &size, 0,
                                             image.pixels.data(), 0, nullptr);
  OXBOW_CHECK(done != 0) << "png: " << png.value.message;
  bytes.resize(size);
  return bytes;
}

absl::StatusOr<ImageShape> ShapeOfPng(std::string_view bytes) {
  PngImage png;
  OXBOW_RETURN_IF_ERROR(ReadHeader(bytes, png));
  return ShapeOf(png);
}

absl::StatusOr<Image8> DecodePng(std::string_view bytes, int64_t pixels_max) {
  PngImage png;
  OXBOW_RETURN_IF_ERROR(ReadHeader(bytes, png));
  const int64_t pixels = int64_t{png.value.width} * png.value.height;
  if (pixels > pixels_max) {
    return absl::InvalidArgumentError(absl::StrCat("PNG of ", png.value.width, "x",
                                                   png.value.height, " is larger than ", pixels_max,
                                                   " pixels"));
  }
  const ImageShape shape = ShapeOf(png);
  png.value.format = shape.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  Image8 image{shape.width, shape.height, shape.channels, {}};
  image.pixels.resize(static_cast<size_t>(pixels) * image.channels);
  const png_color black{0, 0, 0};
  if (png_image_finish_read(&png.value, &black, image.pixels.data(), 0, nullptr) == 0) {
    return absl::DataLossError(absl::StrCat("corrupt PNG: ", png.value.message));
  }
  return image;
}

}  // namespace oxbow::io
