// SPDX-License-Identifier: Apache-2.0
#include "io/film.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace oxbow::io {
namespace {

Film NoiseFilm(int frames, int width, int height, int channels) {
  std::mt19937 generator(7);
  Film film;
  for (int i = 0; i < frames; ++i) {
    Image8 image{width, height, channels, {}};
    image.pixels.resize(static_cast<size_t>(width) * height * channels);
    for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(generator());
    film.frames.push_back(std::move(image));
  }
  return film;
}

// Frame i is of value i.
FilmCell Counting(int frames, int side) {
  FilmCell cell;
  for (int i = 0; i < frames; ++i) {
    cell.frames.push_back({side, side, 1, {}});
    cell.frames.back().pixels.assign(static_cast<size_t>(side) * side, static_cast<uint8_t>(i));
  }
  return cell;
}

// Promise: A video is a video everywhere.

TEST(FilmTest, ReadsBackEveryFrameInOrder) {
  for (const int channels : {1, 3}) {
    for (const int frames : {1, 2, 9}) {
      Film film = NoiseFilm(frames, 20, 7, channels);
      film.time = {.numerator = 3, .denominator = 25};
      const auto read = DecodeFilm(EncodeFilm(film));
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_TRUE(read->frames == film.frames) << frames << " " << channels;
      EXPECT_EQ(read->time, frames > 1 ? film.time : FrameTime());
    }
  }
}

TEST(FilmTest, OneFrameIsThePngOfThePicture) {
  const Film film = NoiseFilm(1, 20, 7, 3);
  EXPECT_EQ(EncodeFilm(film), EncodePng(film.frames.front()));
}

TEST(FilmTest, WhatKnowsNoAnimationSeesTheFirstFrame) {
  const Film film = NoiseFilm(3, 9, 5, 3);
  EXPECT_EQ(DecodePng(EncodeFilm(film)).value(), film.frames.front());
}

// The chunks around the pixels of two grey frames of 2 x 1; Pillow reads this file as these frames,
// 1/16 s each.
TEST(FilmTest, TheChunksOfASmallFilm) {
  const std::string bytes = EncodeFilm({.frames = {{2, 1, 1, {0, 255}}, {2, 1, 1, {7, 9}}}});
  const auto has = [&](const std::string& chunk) { return bytes.find(chunk) != bytes.npos; };
  using std::string_literals::operator""s;
  EXPECT_TRUE(
      has("\0\0\0\x08"
          "acTL\0\0\0\2\0\0\0\0\xf3\x8d\x93\x70"s));
  EXPECT_TRUE(
      has("\0\0\0\x1a"
          "fcTL\0\0\0\0\0\0\0\2\0\0\0\1\0\0\0\0\0\0\0\0\0\1\0\x10\0\0"s));
  EXPECT_TRUE(
      has("\0\0\0\x1a"
          "fcTL\0\0\0\1\0\0\0\2\0\0\0\1\0\0\0\0\0\0\0\0\0\1\0\x10\0\0"s));
  EXPECT_TRUE(has("fdAT\0\0\0\2"s));
}

TEST(FilmTest, EveryTruncationAndAChangedByteAreErrors) {
  std::string bytes = EncodeFilm(NoiseFilm(3, 6, 5, 1));
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(DecodeFilm(std::string_view(bytes).substr(0, length)).ok()) << length;
  }
  for (size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] = static_cast<char>(bytes[at] ^ 0x40);
    EXPECT_FALSE(DecodeFilm(bytes).ok()) << at;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x40);
  }
}

TEST(FilmTest, RefusesMorePixelsThanTheLimitInAllFrames) {
  const std::string bytes = EncodeFilm(NoiseFilm(3, 10, 10, 1));
  EXPECT_TRUE(DecodeFilm(bytes, 300).ok());
  EXPECT_EQ(DecodeFilm(bytes, 299).status().code(), absl::StatusCode::kInvalidArgument);
}

// Promise: A video is a video everywhere.

TEST(FilmGridTest, OfPicturesItIsTheirGrid) {
  const Image8 one{2, 1, 1, {0, 255}}, two{1, 1, 3, {1, 2, 3}};
  const Film film =
      FilmGrid({{.frames = {one}, .border = kRightColour, .label = "a"}, {{two}, {}, "b"}});
  ASSERT_EQ(film.frames.size(), 1);
  EXPECT_EQ(film.frames[0], Grid({{one, kRightColour, "a"}, {two, {}, "b"}}));
  EXPECT_EQ(film.time, FrameTime());
}

TEST(FilmGridTest, EachFrameIsTheGridOfThatMomentAndAShortVideoStaysAtItsEnd) {
  const FilmCell three = Counting(3, 2), two = Counting(2, 2);
  const Film film = FilmGrid({three, two});
  ASSERT_EQ(film.frames.size(), 3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(film.frames[i],
              Grid({{three.frames[i], {}, ""}, {two.frames[std::min<size_t>(i, 1)], {}, ""}}));
  }
}

TEST(FilmGridTest, ALongVideoLosesFramesAndKeepsItsTime) {
  const Film film = FilmGrid({Counting(81, 2)});
  EXPECT_EQ(film.time.numerator, 4);
  ASSERT_EQ(film.frames.size(), 21);
  EXPECT_EQ(film.frames.back(), Grid({{Counting(81, 2).frames[80], {}, ""}}));
}

TEST(FilmGridTest, WhatWouldBeTooLargeIsDrawnSmaller) {
  FilmCell large = Counting(24, 400);
  const Film film = FilmGrid({12, large});
  int64_t pixels = 0;
  for (const Image8& frame : film.frames) pixels += int64_t{frame.width} * frame.height;
  EXPECT_LE(pixels, kSheetPixelsMax);
  EXPECT_GT(pixels, kSheetPixelsMax / 8) << "no smaller than need be";
  const Image8& tenth = film.frames[9];
  EXPECT_EQ(tenth.pixels[static_cast<size_t>(20 * tenth.width + 20) * 3], 9) << "in a corner cell";
}

// A sheet of pictures at their own size had more pixels than its readers take.
// Promise: Pictures of any size are on the pages.
TEST(FilmGridTest, SixtyFourPicturesOfAnySizeStayUnderTheLimit) {
  for (const int side : {96, 128, 256, 512, 1024}) {
    const Image8 image{side, side, 1, std::vector<uint8_t>(static_cast<size_t>(side) * side, 90)};
    const std::vector<FilmCell> cells(64,
                                      {.frames = {image}, .border = kRightColour, .label = "000"});
    for (const int64_t limit : {kSheetPixelsMax, int64_t{1} << 21}) {
      const Image8 sheet = FilmGrid(cells, {}, limit).frames.at(0);
      const int64_t pixels = int64_t{sheet.width} * sheet.height;
      EXPECT_LE(pixels, limit) << side;
      const bool whole = sheet.width == 6 + 8 * (side + 2 * 3 + 6);
      EXPECT_TRUE(whole || pixels > limit * 95 / 100) << side << ": no smaller than need be";
      EXPECT_EQ(whole, side <= 128 || (side == 256 && limit == kSheetPixelsMax)) << side;
    }
  }
}

TEST(FilmGridTest, ShrinkingIsTheMeanOfWhatEachPixelCovers) {
  EXPECT_EQ(Shrink({4, 2, 1, {0, 2, 10, 30, 4, 6, 20, 21}}, 2), (Image8{2, 1, 1, {3, 20}}));
  EXPECT_EQ(Shrink({4, 1, 3, {1, 2, 3, 3, 4, 5, 9, 8, 7, 9, 8, 7}}, 2),
            (Image8{2, 1, 3, {2, 3, 4, 9, 8, 7}}));
  // Each of two pixels covers one and a half of three.
  EXPECT_EQ(Shrink({3, 1, 1, {30, 60, 90}}, 2), (Image8{2, 1, 1, {40, 80}}));
  const Image8 tall{1, 3, 1, {30, 60, 90}};
  EXPECT_EQ(Shrink(tall, 2), (Image8{1, 2, 1, {40, 80}}));
  EXPECT_EQ(Shrink(tall, 3), tall);
  EXPECT_EQ(Shrink(tall, 99), tall);
}

}  // namespace
}  // namespace oxbow::io
