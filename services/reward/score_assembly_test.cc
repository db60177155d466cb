// SPDX-License-Identifier: Apache-2.0
#include "services/reward/score_assembly.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "io/image.h"

namespace oxbow::reward {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr uint64_t kMediumMax = 1 << 20;
constexpr uint64_t kRoom = 4 << 20;

std::string Noise(size_t bytes, uint32_t seed) {
  std::mt19937 generator(seed);
  std::string noise(bytes, '\0');
  for (char& byte : noise) byte = static_cast<char>(generator());
  return noise;
}

v1::Image Raw(uint32_t width, uint32_t height, uint32_t channels, uint32_t frames = 1) {
  v1::Image image;
  image.set_width(width);
  image.set_height(height);
  image.set_channels(channels);
  image.set_frames(frames);
  image.set_pixels(Noise(size_t{width} * height * channels * frames, frames));
  return image;
}

Image8 PictureOf(const v1::Image& image) {
  return {.width = static_cast<int>(image.width()),
          .height = static_cast<int>(image.height()),
          .channels = static_cast<int>(image.channels()),
          .pixels = {image.pixels().begin(), image.pixels().end()}};
}

v1::Image Encoded(const std::string& encoding) {
  v1::Image image = Raw(20, 12, 3);
  const Image8 picture = PictureOf(image);
  image.set_encoding(encoding);
  image.set_pixels(encoding == "png" ? io::EncodePng(picture) : io::EncodeJpeg(picture, 95));
  return image;
}

v1::ScoreRequest RequestOf(const std::vector<v1::Image>& images) {
  v1::ScoreRequest request;
  for (const v1::Image& image : images) {
    request.add_items()->set_item(request.items_size());
    *request.mutable_items()->rbegin()->mutable_image() = image;
  }
  return request;
}

v1::ScoreRequest Piece(uint64_t item, const std::string& pixels) {
  v1::ScoreRequest request;
  request.add_items()->set_item(item);
  request.mutable_items(0)->mutable_image()->set_pixels(pixels);
  return request;
}

// Promise: Media are bounded before they come. A reward server takes pictures and videos raw, as
// PNG or JPEG, whole or in pieces, with the same score. Sizes are checked, and room is taken,
// before a piece is read or a file decoded. A wrong medium costs no other its score. No message to
// a server is larger than the 4 MiB that gRPC takes by default: larger media come in pieces, whole
// groups too.
class ScoreAssemblyTest : public ::testing::Test {
 protected:
  absl::StatusOr<ScoreAssembly> Begin(const std::vector<v1::Image>& images) {
    v1::ScoreRequest request = RequestOf(images);
    return ScoreAssembly::Begin(request, kMediumMax, room_);
  }
  // The frames of one medium that comes in one message.
  absl::StatusOr<std::vector<Image8>> Whole(const v1::Image& image) {
    auto assembly = Begin({image});
    if (!assembly.ok()) return assembly.status();
    return assembly->TakeMedia().front();
  }
  // The reason why the medium, and not the call, is refused.
  std::string Refusal(const v1::Image& image) {
    const auto assembly = Begin({image});
    EXPECT_TRUE(assembly.ok()) << assembly.status();
    const auto frames = Whole(image);
    EXPECT_EQ(frames.status().code(), Code::kInvalidArgument);
    return std::string(frames.status().message());
  }

  ByteBudget room_{kRoom};
};

TEST_F(ScoreAssemblyTest, HoweverAMediumIsCutItIsTheSame) {
  for (const v1::Image& image : {Raw(7, 5, 3), Raw(6, 4, 1, 9), Encoded("png"), Encoded("jpeg")}) {
    const auto whole = Whole(image);
    ASSERT_TRUE(whole.ok()) << whole.status();
    for (const size_t first : {0, 1, 50}) {
      for (const size_t size : {1, 24, 97, 5000}) {
        v1::Image head = image;
        head.set_pixels_size(image.pixels().size());
        head.set_pixels(image.pixels().substr(0, first));
        // A second medium, in one piece, between.
        auto assembly = Begin({head, Raw(3, 2, 1)});
        ASSERT_TRUE(assembly.ok()) << assembly.status();
        for (size_t at = first; at < image.pixels().size(); at += size) {
          EXPECT_FALSE(assembly->whole());
          ASSERT_TRUE(assembly->Add(Piece(1, image.pixels().substr(at, size))).ok());
        }
        ASSERT_TRUE(assembly->whole());
        const auto media = assembly->TakeMedia();
        EXPECT_EQ(media[0].value(), *whole);
        EXPECT_EQ(media[1].value().front(), PictureOf(Raw(3, 2, 1)));
      }
    }
  }
}

TEST_F(ScoreAssemblyTest, FramesAreCutAtTheirBorders) {
  const v1::Image clip = Raw(4, 3, 3, 5);
  const auto frames = Whole(clip);
  ASSERT_TRUE(frames.ok()) << frames.status();
  ASSERT_EQ(frames->size(), 5);
  std::string joined;
  for (const Image8& frame : *frames) joined.append(frame.pixels.begin(), frame.pixels.end());
  EXPECT_EQ(joined, clip.pixels());
}

TEST_F(ScoreAssemblyTest, APngIsItsPixels) {
  EXPECT_EQ(Whole(Encoded("png")).value().front(), PictureOf(Raw(20, 12, 3)));
}

TEST_F(ScoreAssemblyTest, PiecesThatDoNotFitEndTheCall) {
  v1::Image head = Raw(10, 10, 1);
  head.set_pixels_size(100);
  head.set_pixels(head.pixels().substr(0, 40));
  const auto code = [&](const v1::ScoreRequest& piece) { return Begin({head})->Add(piece).code(); };
  EXPECT_EQ(code(Piece(1, Noise(60, 1))), Code::kOk);
  EXPECT_EQ(code(Piece(1, Noise(61, 1))), Code::kInvalidArgument);
  EXPECT_EQ(code(Piece(1, "")), Code::kInvalidArgument);
  EXPECT_EQ(code(Piece(2, "x")), Code::kInvalidArgument);
  auto assembly = Begin({head});
  ASSERT_TRUE(assembly->Add(Piece(1, Noise(60, 1))).ok());
  EXPECT_EQ(assembly->Add(Piece(1, "x")).code(), Code::kInvalidArgument);  // It is whole.
}

TEST_F(ScoreAssemblyTest, TwoItemsOfOneNumberCannotComeInPieces) {
  v1::Image head = Raw(2, 2, 1);
  v1::ScoreRequest request = RequestOf({head, head});
  request.mutable_items(1)->set_item(1);
  EXPECT_TRUE(ScoreAssembly::Begin(request, kMediumMax, room_).ok());
  head.set_pixels_size(4);
  head.clear_pixels();
  request = RequestOf({head, Raw(2, 2, 1)});
  request.mutable_items(1)->set_item(1);
  EXPECT_EQ(ScoreAssembly::Begin(request, kMediumMax, room_).status().code(),
            Code::kInvalidArgument);
}

TEST_F(ScoreAssemblyTest, AWrongMediumIsItsOwnAffairAlsoInPieces) {
  v1::Image bad = Raw(10, 10, 1);
  bad.set_channels(2);
  bad.set_pixels_size(100);
  bad.set_pixels(bad.pixels().substr(0, 40));
  auto assembly = Begin({bad, Raw(3, 2, 1)});
  ASSERT_TRUE(assembly.ok()) << assembly.status();
  ASSERT_TRUE(assembly->Add(Piece(1, Noise(60, 1))).ok());
  const auto media = assembly->TakeMedia();
  EXPECT_EQ(media[0].status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(media[1].ok());
}

TEST_F(ScoreAssemblyTest, HeadsThatDoNotHoldTogetherAreRefused) {
  const auto changed = [](v1::Image image, void (*change)(v1::Image&)) {
    change(image);
    return image;
  };
  const v1::Image raw = Raw(10, 10, 1);
  EXPECT_THAT(Refusal(changed(raw, [](v1::Image& i) { i.set_frames(2); })),
              HasSubstr("other bytes"));
  EXPECT_THAT(Refusal(changed(raw, [](v1::Image& i) { i.set_pixels_size(99); })),
              HasSubstr("more bytes than its pixels_size"));
  EXPECT_THAT(Refusal(changed(raw, [](v1::Image& i) { i.set_width(0); })), HasSubstr("side"));
  EXPECT_THAT(Refusal(changed(raw, [](v1::Image& i) { i.set_encoding("webp"); })),
              HasSubstr("none of raw, png and jpeg: webp"));
  EXPECT_THAT(Refusal(changed(raw, [](v1::Image& i) { i.set_width(8000), i.set_height(8000); })),
              HasSubstr("too large"));
  for (const std::string encoding : {"png", "jpeg"}) {
    const v1::Image file = Encoded(encoding);
    EXPECT_THAT(Refusal(changed(file, [](v1::Image& i) { i.set_width(21); })),
                HasSubstr("its message says 21 x 12"));
    EXPECT_THAT(Refusal(changed(file, [](v1::Image& i) { i.set_channels(1); })),
                HasSubstr("its message says 20 x 12 of 1"));
    EXPECT_THAT(Refusal(changed(file, [](v1::Image& i) { i.set_frames(2); })),
                HasSubstr("one picture"));
    EXPECT_THAT(Refusal(changed(file, [](v1::Image& i) { i.set_pixels("x"); })),
                HasSubstr("not a"));
    Refusal(changed(file, [](v1::Image& i) { i.set_pixels(i.pixels().substr(0, 200)); }));
    Refusal(changed(file,
                    [](v1::Image& i) { i.set_encoding(i.encoding() == "png" ? "jpeg" : "png"); }));
  }
}

TEST_F(ScoreAssemblyTest, RoomIsTakenBeforeThePiecesComeAndGivenBack) {
  v1::Image head = Raw(1000, 1000, 1);
  head.set_pixels_size(1000 * 1000);
  head.clear_pixels();
  {
    const auto first = Begin({head, head, head});
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(room_.used(), 3'000'000);
    EXPECT_EQ(Begin({head, head}).status().code(), Code::kResourceExhausted);
    const auto second = Begin({head});
    EXPECT_TRUE(second.ok()) << second.status();
    EXPECT_EQ(room_.used(), 4'000'000);
  }
  EXPECT_EQ(room_.used(), 0);
  EXPECT_EQ(Begin({head, head, head, head, head}).status().code(), Code::kInvalidArgument);
  head.set_pixels_size(kMediumMax + 1);
  EXPECT_EQ(Begin({head}).status().code(), Code::kInvalidArgument);
}

TEST_F(ScoreAssemblyTest, AFileCountsWithWhatItHolds) {
  const v1::Image png = Encoded("png"), jpeg = Encoded("jpeg");
  const uint64_t pixels = 20 * 12 * 3;
  {
    const auto assembly = Begin({png});
    EXPECT_EQ(room_.used(), pixels + png.pixels().size());
  }
  const auto assembly = Begin({jpeg});
  EXPECT_EQ(room_.used(), 3 * pixels + jpeg.pixels().size());
}

}  // namespace
}  // namespace oxbow::reward
