// SPDX-License-Identifier: Apache-2.0
#include "io/picture_file.h"

#include "gtest/gtest.h"
#include "io/film.h"
#include "io/image.h"
#include "tests/testing/photo_like.h"

namespace oxbow::io {
namespace {

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

// 64 films of a real size would take 200 MB in each evaluation.
TEST(PictureFileTest, ASmallFilmMovesAndALargeOneIsItsFirstFrame) {
  const std::vector<Image8> few(4, oxbow::testing::PhotoLike(128, 256, 1));
  EXPECT_EQ(DecodeFilm(PictureFileOf(0, 1, few).bytes)->frames, few);
  const std::vector<Image8> more(5, oxbow::testing::PhotoLike(128, 256, 1));
  EXPECT_EQ(DecodeFilm(PictureFileOf(0, 1, more).bytes)->frames.size(), 1u);
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
  EXPECT_EQ(PictureBytesAbout(512, 512, 81), PictureBytesAbout(512, 512, 1)) << "its first frame";
}

}  // namespace
}  // namespace oxbow::io
