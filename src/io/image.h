// SPDX-License-Identifier: Apache-2.0
// 8-bit images: in memory, as PNG or JPEG, many of them on a contact sheet for people to look at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/image8.h"

namespace oxbow::io {

// True if the sizes are positive, the channels 1 or 3 and `pixels` has the length they imply.
bool IsValid(const Image8& image);

struct Colour {
  uint8_t red = 0;
  uint8_t green = 0;
  uint8_t blue = 0;

  bool operator==(const Colour&) const = default;
};

// Told apart by the common kinds of colour blindness, on black and on white.
inline constexpr Colour kRightColour{0x2e, 0xa0, 0x66};
inline constexpr Colour kWrongColour{0xd9, 0x4b, 0x3a};

struct GridCell {
  Image8 image;
  std::optional<Colour> frame;  // For example kRightColour where the image shows what was asked.
  std::string label;  // Above the image, as much of it as fits: letters, digits, '.' and '-'.
};

inline constexpr int kSmallSide = 96;

struct GridOptions {
  int columns = 8;
  // Screen pixels per image pixel; nearest neighbour, nothing is smoothed. 0: images whose longer
  // side is below kSmallSide are enlarged up to that, others not at all.
  int scale = 0;
  int gap = 6;          // Between cells and around the sheet, screen pixels.
  int frame_width = 3;  // Screen pixels; reserved for every cell if any cell has a frame.
  Colour background{0x24, 0x27, 0x2c};
  Colour ink{0xd5, 0xd9, 0xde};
};

// Lays the cells out row by row into one RGB image; a last row may be short. Images of
// different sizes are centred in cells of the largest size. Requires valid images, at least one
// cell, positive columns, and at most kGridPixelsMax pixels in the result.
Image8 Grid(const std::vector<GridCell>& cells, const GridOptions& options = {});

// The facts that the size of a grid depends on.
struct GridShape {
  int cells = 0;
  int width = 0;  // Width and height of the largest image.
  int height = 0;
  bool framed = false;    // Any cell has a frame,
  bool labelled = false;  // or a label.
};

// Pixels that Grid would make.
int64_t GridPixels(const GridShape& shape, const GridOptions& options = {});

// GridOptions::scale, or the one that it stands for.
int GridScale(const GridShape& shape, const GridOptions& options);

inline constexpr int64_t kGridPixelsMax = int64_t{1} << 27;

inline constexpr int64_t kDecodedPixelsMax = int64_t{1} << 26;

// The result of decoding: `channels` as DecodePng and DecodeJpeg choose them.
struct ImageShape {
  int width = 0;
  int height = 0;
  int channels = 0;

  bool operator==(const ImageShape&) const = default;
};

// The shape in a file's header. Decodes nothing and takes no memory for pixels; the rest of the
// file may be damaged. Errors as those of DecodePng and DecodeJpeg.
absl::StatusOr<ImageShape> ShapeOfPng(std::string_view bytes);
absl::StatusOr<ImageShape> ShapeOfJpeg(std::string_view bytes);

// PNG bytes to and from 8-bit grey or RGB images.
//
// Encodes losslessly; the same image gives the same bytes with the same libpng. Requires a valid
// image.
std::string EncodePng(const Image8& image);

// Decodes grey PNGs to one channel and all others to three, as Pillow's convert("RGB") does: alpha
// and a transparent colour are dropped, of 16 bits the upper 8 stay, and no gamma is corrected. (Of
// grey with 16 bits Pillow makes white; here it is read as the others.) The bytes are not trusted:
// kInvalidArgument if they are not a PNG or have more than `pixels_max` pixels, kDataLoss if they
// are truncated or corrupt.
absl::StatusOr<Image8> DecodePng(std::string_view bytes, int64_t pixels_max = kDecodedPixelsMax);

// JPEG bytes to and from 8-bit grey or RGB images.
//
// Encodes as Pillow's `save(quality=...)` does: baseline, 4:2:0, the standard tables scaled by
// `quality`, 1..100. Requires a valid image with sides up to kJpegSideMax.
std::string EncodeJpeg(const Image8& image, int quality);

inline constexpr int kJpegSideMax = 65500;

// Decodes grey JPEGs to one channel and colour to three. The bytes are not trusted:
// kInvalidArgument if they are not a JPEG, are neither grey nor colour (CMYK), or have more than
// `pixels_max` pixels; kDataLoss if they are truncated or corrupt or have more than 100 scans.
absl::StatusOr<Image8> DecodeJpeg(std::string_view bytes, int64_t pixels_max = kDecodedPixelsMax);

// Either, by the first bytes.
absl::StatusOr<Image8> DecodeImage(std::string_view bytes, int64_t pixels_max = kDecodedPixelsMax);

// How hard an image is to compress: the size of its JPEG at quality 95, in units of 1,000 bytes.
// flow_grpo's `jpeg_incompressibility`; its `jpeg_compressibility` is -1/500 of it.
double JpegKilobytes(const Image8& image);

}  // namespace oxbow::io
