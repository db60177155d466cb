#include "io/png.h"

#include <png.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace oxbow::io {
namespace {

constexpr std::string_view kSignature("\x89PNG\r\n\x1a\n", 8);
constexpr std::string_view kEndChunk("\0\0\0\0IEND\xae\x42\x60\x82", 12);

// libpng's simplified interface: reports errors in `message` instead of by longjmp.
struct Image {
  Image() {
    value = {};
    value.version = PNG_IMAGE_VERSION;
  }
  ~Image() { png_image_free(&value); }
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;
  png_image value;
};

}  // namespace

std::string EncodePng(const Image8& image) {
  OXBOW_CHECK(IsValid(image)) << "image of " << image.width << "x" << image.height << "x"
                              << image.channels << " with " << image.pixels.size() << " values";
  Image image;
  image.value.width = static_cast<png_uint_32>(image.width);
  image.value.height = static_cast<png_uint_32>(image.height);
  image.value.format = image.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image.value);
  std::string bytes(size, '\0');
  const int done = png_image_write_to_memory(&image.value, bytes.data(), &size, 0,
                                             image.pixels.data(), 0, nullptr);
  OXBOW_CHECK(done != 0) << "png: " << image.value.message;
  bytes.resize(size);
  return bytes;
}

absl::StatusOr<Image8> DecodePng(std::string_view bytes, int64_t pixels_max) {
  if (!bytes.starts_with(kSignature)) {
    return absl::InvalidArgumentError(absl::StrCat("not a PNG: ", bytes.size(), " bytes"));
  }
  // libpng stops after the last row; without this a file cut inside its end would pass.
  if (!bytes.ends_with(kEndChunk)) {
    return absl::DataLossError(
        absl::StrCat("truncated PNG (no end chunk): ", bytes.size(), " bytes"));
  }
  Image image;
  if (png_image_begin_read_from_memory(&image.value, bytes.data(), bytes.size()) == 0) {
    return absl::DataLossError(absl::StrCat("corrupt PNG: ", image.value.message));
  }
  const int64_t pixels = int64_t{image.value.width} * image.value.height;
  if (pixels > pixels_max) {
    return absl::InvalidArgumentError(absl::StrCat("PNG of ", image.value.width, "x",
                                                   image.value.height, " is larger than ",
                                                   pixels_max, " pixels"));
  }
  const bool colour = (image.value.format & PNG_FORMAT_FLAG_COLOR) != 0;
  image.value.format = colour ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  Image8 image{static_cast<int>(image.value.width),
               static_cast<int>(image.value.height),
               colour ? 3 : 1,
               {}};
  image.pixels.resize(static_cast<size_t>(pixels) * image.channels);
  const png_color black{0, 0, 0};
  if (png_image_finish_read(&image.value, &black, image.pixels.data(), 0, nullptr) == 0) {
    return absl::DataLossError(absl::StrCat("corrupt PNG: ", image.value.message));
  }
  return image;
}

}  // namespace oxbow::io
