// SPDX-License-Identifier: Apache-2.0
// libpng reports errors by a call that must not return. Here it jumps back (setjmp) to functions
// that own nothing with a destructor.
//
// Files are read by libpng's older interface. The simplified one corrects gamma, blends
// transparency and takes 16 bits for linear light. Rewards were trained and measured on what
// Pillow's convert("RGB") gives, which does none of that.
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "io/image.h"

namespace oxbow::io {
namespace {

constexpr std::string_view kPngSignature("\x89PNG\r\n\x1a\n", 8);
constexpr std::string_view kEndChunk("\0\0\0\0IEND\xae\x42\x60\x82", 12);

// libpng's simplified interface, for writing: reports errors in `message`.
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

// Frees what libpng holds.
struct Decoder {
  explicit Decoder(std::string_view bytes) : rest(bytes) {}
  ~Decoder() { png_destroy_read_struct(&png, &info, nullptr); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  std::string_view rest;  // The part that is not read yet.
  png_structp png = nullptr;
  png_infop info = nullptr;
  char message[128] = {};
};

[[noreturn]] void OnError(png_structp png, png_const_charp message) {
  auto* const decoder = static_cast<Decoder*>(png_get_error_ptr(png));
  std::snprintf(decoder->message, sizeof decoder->message, "%s", message);
  png_longjmp(png, 1);
}

void OnWarning(png_structp, png_const_charp) {}

void Take(png_structp png, png_bytep to, size_t size) {
  auto* const decoder = static_cast<Decoder*>(png_get_io_ptr(png));
  if (decoder->rest.size() < size) png_error(png, "it ends too early");
  std::memcpy(to, decoder->rest.data(), size);
  decoder->rest.remove_prefix(size);
}

// NOLINTBEGIN(modernize-avoid-setjmp-longjmp)
bool ReadInfo(Decoder& decoder) {
  decoder.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, OnError, OnWarning);
  if (decoder.png == nullptr || setjmp(png_jmpbuf(decoder.png)) != 0) return false;
  decoder.info = png_create_info_struct(decoder.png);
  if (decoder.info == nullptr) png_error(decoder.png, "no memory");
  png_set_read_fn(decoder.png, &decoder, Take);
  png_read_info(decoder.png, decoder.info);
  return true;
}

// Palettes become colours, fewer bits than 8 are spread, 16 lose their lower half, alpha goes.
bool ReadRows(Decoder& decoder, uint8_t* pixels, size_t row_bytes) {
  if (setjmp(png_jmpbuf(decoder.png)) != 0) return false;
  const int type = png_get_color_type(decoder.png, decoder.info);
  png_set_strip_16(decoder.png);
  if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(decoder.png);
  if ((type & PNG_COLOR_MASK_COLOR) == 0) png_set_expand_gray_1_2_4_to_8(decoder.png);
  png_set_strip_alpha(decoder.png);
  const int passes = png_set_interlace_handling(decoder.png);
  png_read_update_info(decoder.png, decoder.info);
  if (png_get_rowbytes(decoder.png, decoder.info) != row_bytes) {
    png_error(decoder.png, "rows of another size");
  }
  for (int pass = 0; pass < passes; ++pass) {
    for (png_uint_32 y = 0; y < png_get_image_height(decoder.png, decoder.info); ++y) {
      png_read_row(decoder.png, pixels + y * row_bytes, nullptr);
    }
  }
  return true;
}
// NOLINTEND(modernize-avoid-setjmp-longjmp)

absl::Status Corrupt(const Decoder& decoder) {
  return absl::DataLossError(absl::StrCat("corrupt PNG: ", decoder.message));
}

absl::StatusOr<ImageShape> ReadHeader(Decoder& decoder) {
  const std::string_view bytes = decoder.rest;
  if (!bytes.starts_with(kPngSignature)) {
    return absl::InvalidArgumentError(absl::StrCat("not a PNG: ", bytes.size(), " bytes"));
  }
  // libpng stops after the last row; without this a file cut inside its end would pass.
  if (!bytes.ends_with(kEndChunk)) {
    return absl::DataLossError(
        absl::StrCat("truncated PNG (no end chunk): ", bytes.size(), " bytes"));
  }
  if (!ReadInfo(decoder)) return Corrupt(decoder);
  const bool colour = (png_get_color_type(decoder.png, decoder.info) & PNG_COLOR_MASK_COLOR) != 0;
  return ImageShape{.width = static_cast<int>(png_get_image_width(decoder.png, decoder.info)),
                    .height = static_cast<int>(png_get_image_height(decoder.png, decoder.info)),
                    .channels = colour ? 3 : 1};
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
  Decoder decoder(bytes);
  return ReadHeader(decoder);
}

absl::StatusOr<Image8> DecodePng(std::string_view bytes, int64_t pixels_max) {
  Decoder decoder(bytes);
  OXBOW_ASSIGN_OR_RETURN(const ImageShape shape, ReadHeader(decoder));
  const int64_t pixels = int64_t{shape.width} * shape.height;
  if (pixels > pixels_max) {
    return absl::InvalidArgumentError(absl::StrCat("PNG of ", shape.width, "x", shape.height,
                                                   " is larger than ", pixels_max, " pixels"));
  }
  Image8 image{shape.width, shape.height, shape.channels, {}};
  const size_t row_bytes = static_cast<size_t>(shape.width) * static_cast<size_t>(shape.channels);
  image.pixels.resize(row_bytes * static_cast<size_t>(shape.height));
  if (!ReadRows(decoder, image.pixels.data(), row_bytes)) return Corrupt(decoder);
  return image;
}

}  // namespace oxbow::io
