// SPDX-License-Identifier: Apache-2.0
// libjpeg reports errors by a call that must not return. Here it jumps back (setjmp) to functions
// that own nothing with a destructor.
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
// After the C library, whose types it takes for granted.
#include <jpeglib.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "io/image.h"

namespace oxbow::io {
namespace {

constexpr std::string_view kJpegSignature("\xff\xd8\xff", 3);
constexpr int kScansMax = 100;  // Each scan of a progressive image costs a pass over all of it.

struct ErrorHandler {
  jpeg_error_mgr manager;  // First: libjpeg's pointer to it is one to this.
  jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void JumpBack(j_common_ptr codec) {
  auto* const handler = reinterpret_cast<ErrorHandler*>(codec->err);
  handler->manager.format_message(codec, handler->message);
  std::longjmp(handler->back, 1);  // NOLINT(modernize-avoid-setjmp-longjmp)
}

// Warnings say that image data are missing or damaged: libjpeg would paint something instead.
void OnMessage(j_common_ptr codec, int level) {
  if (level < 0) JumpBack(codec);
}

void CountScans(j_common_ptr codec) {
  auto* const handler = reinterpret_cast<ErrorHandler*>(codec->err);
  if (reinterpret_cast<j_decompress_ptr>(codec)->input_scan_number <= kScansMax) return;
  std::snprintf(handler->message, sizeof(handler->message), "more than %d scans", kScansMax);
  std::longjmp(handler->back, 1);  // NOLINT(modernize-avoid-setjmp-longjmp)
}

jpeg_error_mgr* Prepare(ErrorHandler& handler) {
  jpeg_error_mgr* const manager = jpeg_std_error(&handler.manager);
  manager->error_exit = JumpBack;
  manager->emit_message = OnMessage;
  handler.message[0] = '\0';
  return manager;
}

// Frees what libjpeg holds.
struct JpegDecoder {
  JpegDecoder() { value.err = Prepare(handler); }
  ~JpegDecoder() { jpeg_destroy_decompress(&value); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  jpeg_decompress_struct value{};
  ErrorHandler handler{};
  jpeg_progress_mgr progress{};
};

struct Encoder {
  Encoder() { value.err = Prepare(handler); }
  ~Encoder() {
    jpeg_destroy_compress(&value);
    std::free(bytes);
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;
  jpeg_compress_struct value{};
  ErrorHandler handler{};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's type.
};

// NOLINTBEGIN(modernize-avoid-setjmp-longjmp)
bool ReadJpegHeader(JpegDecoder& decoder, std::string_view bytes) {
  if (setjmp(decoder.handler.back) != 0) return false;
  jpeg_create_decompress(&decoder.value);
  jpeg_mem_src(&decoder.value, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&decoder.value, TRUE);
  return true;
}

bool ReadJpegRows(JpegDecoder& decoder, uint8_t* pixels, size_t row_bytes) {
  if (setjmp(decoder.handler.back) != 0) return false;
  decoder.progress.progress_monitor = CountScans;
  decoder.value.progress = &decoder.progress;
  jpeg_start_decompress(&decoder.value);
  while (decoder.value.output_scanline < decoder.value.output_height) {
    JSAMPROW row = pixels + decoder.value.output_scanline * row_bytes;
    jpeg_read_scanlines(&decoder.value, &row, 1);
  }
  jpeg_finish_decompress(&decoder.value);
  return true;
}

bool Write(Encoder& encoder, const Image8& image, int quality) {
  if (setjmp(encoder.handler.back) != 0) return false;
  jpeg_create_compress(&encoder.value);
  jpeg_mem_dest(&encoder.value, &encoder.bytes, &encoder.size);
  encoder.value.image_width = static_cast<JDIMENSION>(image.width);
  encoder.value.image_height = static_cast<JDIMENSION>(image.height);
  encoder.value.input_components = image.channels;
  encoder.value.in_color_space = image.channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
  jpeg_set_defaults(&encoder.value);
  jpeg_set_quality(&encoder.value, quality, TRUE);
  jpeg_start_compress(&encoder.value, TRUE);
  const size_t row_bytes = static_cast<size_t>(image.width) * image.channels;
  while (encoder.value.next_scanline < encoder.value.image_height) {
    JSAMPROW row =
        const_cast<uint8_t*>(image.pixels.data()) + encoder.value.next_scanline * row_bytes;
    jpeg_write_scanlines(&encoder.value, &row, 1);
  }
  jpeg_finish_compress(&encoder.value);
  return true;
}
// NOLINTEND(modernize-avoid-setjmp-longjmp)

absl::Status CorruptJpeg(const JpegDecoder& decoder) {
  return absl::DataLossError(absl::StrCat("corrupt JPEG: ", decoder.handler.message));
}

// Reads the header.
absl::StatusOr<ImageShape> Shape(JpegDecoder& decoder, std::string_view bytes) {
  if (!bytes.starts_with(kJpegSignature)) {
    return absl::InvalidArgumentError(absl::StrCat("not a JPEG: ", bytes.size(), " bytes"));
  }
  if (!ReadJpegHeader(decoder, bytes)) return CorruptJpeg(decoder);
  const J_COLOR_SPACE space = decoder.value.jpeg_color_space;
  if (space != JCS_GRAYSCALE && space != JCS_YCbCr && space != JCS_RGB) {
    return absl::InvalidArgumentError(absl::StrCat(
        "JPEG is neither grey nor RGB: ", decoder.value.num_components, " components"));
  }
  return ImageShape{.width = static_cast<int>(decoder.value.image_width),
                    .height = static_cast<int>(decoder.value.image_height),
                    .channels = space == JCS_GRAYSCALE ? 1 : 3};
}

}  // namespace

std::string EncodeJpeg(const Image8& image, int quality) {
  OXBOW_CHECK(IsValid(image) && image.width <= kJpegSideMax && image.height <= kJpegSideMax)
      << "image of " << image.width << "x" << image.height << "x" << image.channels << " with "
      << image.pixels.size() << " values";
  OXBOW_CHECK(quality >= 1 && quality <= 100) << quality;
  Encoder encoder;
  OXBOW_CHECK(Write(encoder, image, quality)) << "jpeg: " << encoder.handler.message;
  return {reinterpret_cast<const char*>(encoder.bytes), encoder.size};
}

absl::StatusOr<ImageShape> ShapeOfJpeg(std::string_view bytes) {
  JpegDecoder decoder;
  return Shape(decoder, bytes);
}

absl::StatusOr<Image8> DecodeJpeg(std::string_view bytes, int64_t pixels_max) {
  JpegDecoder decoder;
  OXBOW_ASSIGN_OR_RETURN(const ImageShape shape, Shape(decoder, bytes));
  if (int64_t{shape.width} * shape.height > pixels_max) {
    return absl::InvalidArgumentError(absl::StrCat("JPEG of ", shape.width, "x", shape.height,
                                                   " is larger than ", pixels_max, " pixels"));
  }
  decoder.value.out_color_space = shape.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  Image8 image{shape.width, shape.height, shape.channels, {}};
  const size_t row_bytes = static_cast<size_t>(shape.width) * static_cast<size_t>(shape.channels);
  image.pixels.resize(row_bytes * static_cast<size_t>(shape.height));
  if (!ReadJpegRows(decoder, image.pixels.data(), row_bytes)) return CorruptJpeg(decoder);
  return image;
}

absl::StatusOr<Image8> DecodeImage(std::string_view bytes, int64_t pixels_max) {
  if (bytes.starts_with(kJpegSignature)) return DecodeJpeg(bytes, pixels_max);
  if (bytes.starts_with("\x89PNG")) return DecodePng(bytes, pixels_max);
  return absl::InvalidArgumentError(
      absl::StrCat("neither a PNG nor a JPEG: ", bytes.size(), " bytes"));
}

double JpegKilobytes(const Image8& image) {
  constexpr int kQuality = 95;
  return static_cast<double>(EncodeJpeg(image, kQuality).size()) / 1000;
}

}  // namespace oxbow::io
