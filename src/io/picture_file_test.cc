// SPDX-License-Identifier: Apache-2.0
#include "io/picture_file.h"

#include "gtest/gtest.h"
#include "io/film.h"
#include "io/image.h"
#include "tests/testing/photo_like.h"

namespace oxbow::io {
namespace {

// Promise: Pictures of any size are on the pages.

TEST(PictureFileTest, IsAPngUpToTheLimitAndAJpegAbove) {
  const Image8 small = oxbow::testing::PhotoLike(kPngSideMax, 8, 1);
  const PictureFile png = PictureFileOf(7, 64, {small});
  EXPECT_EQ(png.name, "007.png");
  EXPECT_EQ(*DecodePng(png.bytes), small);
  const Image8 large = oxbow::testing::PhotoLike(8, kPngSideMax + 1, 1);
  const PictureFile jpeg = PictureFileOf(7, 64, {large});
  EXPECT_EQ(jpeg.name, "007.jpg");
  EXPECT_EQ(jpeg.bytes, EncodeJpeg(large, 95));
}

TEST(PictureFileTest, NamesHaveAsManyDigitsAsAllNeedAndAtLeastThree) {
  const Image8 image{1, 1, 1, {0}};
  EXPECT_EQ(PictureFileOf(0, 1, {image}).name, "000.png");
  EXPECT_EQ(PictureFileOf(999, 1000, {image}).name, "999.png");
  EXPECT_EQ(PictureFileOf(5, 1001, {image}).name, "0005.png");
}

// 64 animated PNG of a real size would take 200 MB in each evaluation.
TEST(PictureFileTest, ASmallFilmMovesAndALargeOneIsItsFirstFrameAndAStrip) {
  const std::vector<Image8> few(4, oxbow::testing::PhotoLike(128, 256, 1));
  EXPECT_EQ(DecodeFilm(PictureFileOf(0, 1, few).bytes)->frames, few);
  EXPECT_TRUE(IsWholeFilm(128, 256, 4));
  EXPECT_FALSE(FilmStripOf(0, 1, few).has_value());
  const std::vector<Image8> more(5, oxbow::testing::PhotoLike(128, 256, 1));
  EXPECT_EQ(DecodeFilm(PictureFileOf(0, 1, more).bytes)->frames.size(), 1u);
  EXPECT_FALSE(IsWholeFilm(128, 256, 5));
  ASSERT_TRUE(FilmStripOf(0, 1, more).has_value());
  EXPECT_FALSE(FilmStripOf(0, 1, {more.front()}).has_value());
  EXPECT_FALSE(IsWholeFilm(128, 256, 1));
}

// Promise: A video is a video everywhere. The frames that a decoder gives reach the scorer in their
// order, as they were sampled; of a longer clip those that its reward reads, and no byte more. A
// video of one frame is a picture. A scorer of pictures gives a video the mean of its frames, or no
// score. Files of videos hold every frame. The report, `watch` and `compare` play up to 24 frames
// of an evaluation's large videos at full size, and say how many of all that is.
TEST(PictureFileTest, AStripHasTheFramesInOrderAndAsLargeAsFits) {
  const struct {
    int width, height, count;                       // A video,
    int strip_width, strip_height, frames;          // and its strip.
  } cases[] = {{416, 240, 17, 416, 17 * 240, 17},   // Whole.
               {240, 416, 33, 17 * 240, 416, 17},   // Every second frame, side by side.
               {832, 480, 81, 416, 21 * 240, 21}};  // Every fourth, smaller.
  for (const auto& one : cases) {
    std::vector<Image8> video;
    for (int i = 0; i < one.count; ++i) {
      video.push_back(
          {one.width, one.height, 3,
           std::vector<uint8_t>(size_t{3} * one.width * one.height, static_cast<uint8_t>(3 * i))});
    }
    const auto strip = FilmStripOf(7, 64, video);
    ASSERT_TRUE(strip.has_value());
    EXPECT_EQ(strip->file.name, "007.film.jpg");
    EXPECT_EQ(strip->frames, one.frames);
    const auto image = DecodeJpeg(strip->file.bytes);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->width, one.strip_width);
    EXPECT_EQ(image->height, one.strip_height);
    EXPECT_LE(int64_t{image->width} * image->height, kFilmStripPixelsMax);
    const int every = (one.count + one.frames - 1) / one.frames;
    for (int i = 0; i < one.frames; ++i) {  // The middle of each.
      const bool wide = one.width >= one.height;
      const int x = wide ? image->width / 2 : image->width * (2 * i + 1) / (2 * one.frames);
      const int y = wide ? image->height * (2 * i + 1) / (2 * one.frames) : image->height / 2;
      EXPECT_NEAR(image->pixels[static_cast<size_t>(3) * (y * image->width + x)], 3 * every * i, 2);
    }
  }
}

// The size of an evaluation of 64 videos is 64 times that of a film and a picture.
TEST(PictureFileTest, AVideoOf240To416PixelsTakesLessThanHalfAMegabyte) {
  const std::vector<Image8> video(33, oxbow::testing::PhotoLike(416, 240, 3));
  const size_t bytes =
      FilmStripOf(0, 1, video)->file.bytes.size() + PictureFileOf(0, 1, video).bytes.size();
  EXPECT_GT(bytes, 100'000u);
  EXPECT_LT(bytes, 500'000u);
}

// An evaluation's sheet, events and pictures of 64 such pictures are to stay under 12 MB.
TEST(PictureFileTest, APictureOf512PixelsTakesWhatAPhotographTakes) {
  const size_t bytes = PictureFileOf(0, 64, {oxbow::testing::PhotoLike(512, 512, 3)}).bytes.size();
  EXPECT_GT(bytes, 70'000u);
  EXPECT_LT(bytes, 110'000u);
}

TEST(PictureFileTest, WhatItTakesIsKnownBeforeToAFactorOfTwo) {
  for (const int side : {64, 128, 256, 257, 512, 1024}) {
    const Image8 picture = oxbow::testing::PhotoLike(side, side, 3);
    const auto bytes = static_cast<double>(PictureFileOf(0, 64, {picture}).bytes.size());
    const auto about = static_cast<double>(PictureBytesAbout(side, side, 1));
    EXPECT_LT(bytes, 2 * about) << side;
    EXPECT_GT(bytes, about / 2) << side;
  }
  const std::vector<Image8> film(4, oxbow::testing::PhotoLike(64, 64, 3));
  EXPECT_EQ(PictureBytesAbout(64, 64, 4), 4 * PictureBytesAbout(64, 64, 1));
  EXPECT_GT(PictureBytesAbout(512, 512, 81), PictureBytesAbout(512, 512, 1)) << "its film";
  EXPECT_EQ(PictureBytesAbout(512, 512, 81), PictureBytesAbout(512, 512, 33));
}

TEST(PreviewTest, IsAJpegOf256PixelsAndOfATinyPictureItsPng) {
  const auto large = FactsOfPicture(PreviewOf({oxbow::testing::PhotoLike(1024, 512, 1)}));
  ASSERT_TRUE(large.has_value());
  EXPECT_EQ(large->extension, "jpg");
  EXPECT_EQ(large->width, 256);
  EXPECT_EQ(large->height, 128);
  const Image8 tiny = oxbow::testing::PhotoLike(32, 20, 1);
  EXPECT_EQ(*DecodePng(PreviewOf({tiny})), tiny);
  const Image8 small = oxbow::testing::PhotoLike(33, 20, 1);
  EXPECT_EQ(DecodeJpeg(PreviewOf({small}))->width, 33) << "not enlarged";
}

// Promise: A video is a video everywhere.
TEST(PreviewTest, OfAVideoTheFirstTheMiddleAndTheLastFrameStandSideBySide) {
  for (const int side : {16, 400}) {
    std::vector<Image8> video;
    for (int i = 0; i < 5; ++i) {
      video.push_back(
          {side, side, 3,
           std::vector<uint8_t>(size_t{3} * side * side, static_cast<uint8_t>(50 * i))});
    }
    const auto row = DecodeImage(PreviewOf(video));
    ASSERT_TRUE(row.ok()) << row.status();
    EXPECT_EQ(row->width, 3 * row->height);
    for (int i = 0; i < 3; ++i) {
      const int x = (2 * i + 1) * row->height / 2, y = row->height / 2;
      EXPECT_NEAR(row->pixels[static_cast<size_t>(3) * (y * row->width + x)], 100 * i, 2);
    }
  }
}

// Noise is the hardest to compress. A batch of groups must not bring more than it says.
// Promise: Memory is bounded.
TEST(PreviewTest, IsNeverLargerThanItsLimit) {
  std::vector<Image8> noise;
  uint32_t state = 1;
  for (const int side : {2048, 256}) {
    Image8& image =
        noise.emplace_back(Image8{side, side, 3, std::vector<uint8_t>(size_t{3} * side * side)});
    for (uint8_t& value : image.pixels)
      value = static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
    EXPECT_LE(PreviewOf({image}).size(), kPreviewBytesMax) << side;
    EXPECT_LE(PreviewOf({image, image, image}).size(), kPreviewBytesMax) << side;
  }
  EXPECT_GT(EncodeJpeg(noise[1], 85).size(), kPreviewBytesMax / 2) << "the test is hard";
  const auto about = static_cast<double>(PreviewBytesAbout(512, 512, 1));
  const auto bytes =
      static_cast<double>(PreviewOf({oxbow::testing::PhotoLike(512, 512, 3)}).size());
  EXPECT_LT(bytes, 2 * about);
  EXPECT_GT(bytes, about / 2);
}

// Promise: Foreign bytes crash no process.
TEST(PreviewTest, BytesThatAreNoPictureHaveNoFacts) {
  for (const char* bytes : {"", "x", "\x89PNG", "\xff\xd8\xff", "<svg/>"}) {
    EXPECT_FALSE(FactsOfPicture(bytes).has_value()) << bytes;
  }
}

}  // namespace
}  // namespace oxbow::io
