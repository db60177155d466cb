// SPDX-License-Identifier: Apache-2.0
#include "rewards/tesseract_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "core/reward/pillow_resize.h"
#include "examples/worlds/plates.h"

namespace oxbow::rewards {
namespace {

using ::testing::HasSubstr;

Image8 PlateOf(int number, int offset = 1) {
  const auto bytes = worlds::PlateBytes(worlds::DigitsOf(number), offset);
  return {.width = worlds::kPlateWidth,
          .height = worlds::kPlateHeight,
          .channels = 1,
          .pixels = {bytes.begin(), bytes.end()}};
}

Image8 Enlarged(const Image8& image, int factor) {
  return reward::ResizeAsPillow(image, image.width * factor, image.height * factor,
                                reward::ResizeKernel::kBilinear);
}

// Numbers in rows and columns, each 96 x 48, in RGB.
Image8 PageOf(const std::vector<int>& numbers, int columns) {
  const int rows = static_cast<int>(numbers.size()) / columns;
  Image8 page{.width = 96 * columns, .height = 48 * rows, .channels = 3, .pixels = {}};
  page.pixels.resize(static_cast<size_t>(page.width) * page.height * 3);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const Image8 plate = Enlarged(PlateOf(numbers[i]), 3);
    const int left = 96 * (static_cast<int>(i) % columns);
    const int top = 48 * (static_cast<int>(i) / columns);
    for (int y = 0; y < plate.height; ++y) {
      for (int x = 0; x < plate.width; ++x) {
        for (int c = 0; c < 3; ++c) {
          page.pixels[((top + y) * page.width + left + x) * 3 + c] =
              plate.pixels[y * plate.width + x];
        }
      }
    }
  }
  return page;
}

std::unique_ptr<TesseractReader> ReaderWith(TesseractSettings settings) {
  auto reader = TesseractReader::Create(std::move(settings));
  EXPECT_TRUE(reader.ok()) << reader.status();
  return *std::move(reader);
}

// The typeface is fit for the task `plates` only if the engine reads it.
TEST(TesseractReaderTest, ReadsPlatesAlmostAlways) {
  const auto reader = ReaderWith({});
  int read = 0;
  int count = 0;
  for (int number = 0; number < 1000; number += 7) {
    for (int offset = 0; offset < worlds::kPlateOffsets; ++offset, ++count) {
      const std::string wanted = absl::StrCat(number + 1000).substr(1);
      const auto text = reader->Read(PlateOf(number, offset));
      ASSERT_TRUE(text.ok()) << text.status();
      read += *text == wanted;
    }
  }
  EXPECT_GE(read, 0.97 * count) << read << " of " << count;
}

TEST(TesseractReaderTest, NoiseOfSixteenLevelsDoesNotMatter) {
  const auto reader = ReaderWith({});
  RandomStream random({.seed = 4, .step = kTaskData});
  int read = 0;
  for (int number = 100; number < 200; ++number) {
    Image8 noisy = PlateOf(number);
    for (uint8_t& pixel : noisy.pixels) {
      const int noise = static_cast<int>(random.NextBelow(17));
      pixel = static_cast<uint8_t>(pixel < 128 ? pixel + noise : pixel - noise);
    }
    read += reader->Read(noisy).value() == absl::StrCat(number);
  }
  EXPECT_GE(read, 95) << "of 100";
}

TEST(TesseractReaderTest, LargePicturesAreReadAsPagesOfLines) {
  const auto reader = ReaderWith({});
  const Image8 page = PageOf({473, 250, 612, 935}, 2);
  std::string text = reader->Read(page).value();
  std::erase(text, ' ');  // The gaps between the numbers are narrow.
  EXPECT_EQ(text, "473250\n612935");
}

TEST(TesseractReaderTest, EmptyPictureHasNoText) {
  const auto reader = ReaderWith({});
  for (const int height : {16, 100}) {
    for (const uint8_t grey : {0, 128, 255}) {
      const Image8 blank{.width = 64,
                         .height = height,
                         .channels = 1,
                         .pixels = std::vector<uint8_t>(64 * height, grey)};
      EXPECT_EQ(reader->Read(blank).value(), "") << height << ", " << static_cast<int>(grey);
    }
  }
}

// Promise: The OCR engine makes no score up.
TEST(TesseractReaderTest, SettingsChangeReadingAndIdentity) {
  const auto all = ReaderWith({});
  const auto digits = ReaderWith({.characters = "123456789"});
  EXPECT_EQ(all->Read(PlateOf(205)).value(), "205");
  EXPECT_EQ(digits->Read(PlateOf(205)).value().find('0'), std::string::npos);
  EXPECT_NE(all->identity(), digits->identity());
  EXPECT_NE(all->identity(), ReaderWith({.scale = 4})->identity());
  // How long and how wide it may work does not change what is read.
  EXPECT_EQ(all->identity(), ReaderWith({.deadline = absl::Seconds(3), .engines = 2})->identity());
  EXPECT_THAT(all->identity(), HasSubstr("tesseract 5."));
}

// A picture that an engine read before must not colour what it reads next.
// Promise: The OCR engine makes no score up.
TEST(TesseractReaderTest, ReadingDependsOnThePictureAlone) {
  const auto alone = [](int number) { return ReaderWith({})->Read(PlateOf(number)).value(); };
  const auto reader = ReaderWith({.engines = 1});
  for (const int number : {888, 11, 888, 711, 473}) {
    EXPECT_EQ(reader->Read(PlateOf(number)).value(), alone(number)) << number;
    ASSERT_TRUE(reader->Read(PageOf({473, 250, 612, 935}, 2)).ok());
  }
}

// Promise: The OCR engine makes no score up.
TEST(TesseractReaderTest, ManyThreadsReadWhatOneReads) {
  const auto reader = ReaderWith({.engines = 2});
  EXPECT_EQ(reader->engines(), 2);
  std::vector<std::string> texts(24);
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = thread; i < 24; i += 4) texts[i] = *reader->Read(PlateOf(200 + 31 * i));
      });
    }
  }
  const auto one = ReaderWith({.engines = 1});
  for (int i = 0; i < 24; ++i) EXPECT_EQ(texts[i], *one->Read(PlateOf(200 + 31 * i))) << i;
}

// Tesseract asks OpenMP for four threads of its own.
TEST(TesseractReaderTest, OneThreadReadsAPicture) {
  const auto threads = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  const auto before = threads();
  const auto reader = ReaderWith({});
  ASSERT_TRUE(reader->Read(PageOf({473, 250, 612, 935}, 2)).ok());
  EXPECT_EQ(threads(), before);
}

// Promise: The OCR engine makes no score up.
TEST(TesseractReaderTest, PictureThatTakesTooLongIsAnErrorAndTheEngineIsFreeAgain) {
  const auto reader = ReaderWith({.deadline = absl::Milliseconds(1), .engines = 1});
  std::vector<int> numbers(64);
  for (int i = 0; i < 64; ++i) numbers[i] = 100 + 13 * i;
  const Image8 page = PageOf(numbers, 8);
  const absl::Status late = reader->Read(page).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(late.message()), HasSubstr("1ms"));
  // It was given back: there is no other.
  EXPECT_TRUE(absl::IsDeadlineExceeded(reader->Read(page).status()));
}

TEST(TesseractReaderTest, PictureThatCannotBeReadIsAnError) {
  const auto reader = ReaderWith({});
  Image8 truncated = PlateOf(473);
  truncated.pixels.pop_back();
  Image8 two_channels = PlateOf(473);
  two_channels.channels = 2;
  const Image8 long_one{
      .width = 3000, .height = 1, .channels = 1, .pixels = std::vector<uint8_t>(3000)};
  for (const Image8& wrong : {truncated, two_channels, long_one, Image8{}}) {
    EXPECT_EQ(reader->Read(wrong).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(TesseractReaderTest, SettingsThatMakeNoSenseAreNamed) {
  const auto refusal = [](TesseractSettings settings) {
    return TesseractReader::Create(std::move(settings)).status();
  };
  EXPECT_THAT(std::string(refusal({.page_mode = 2}).message()), HasSubstr("page_mode"));
  EXPECT_THAT(std::string(refusal({.scale = 9}).message()), HasSubstr("scale"));
  EXPECT_THAT(std::string(refusal({.margin = -2}).message()), HasSubstr("margin"));
  EXPECT_THAT(std::string(refusal({.engines = 257}).message()), HasSubstr("engines"));
  EXPECT_THAT(std::string(refusal({.deadline = absl::ZeroDuration()}).message()),
              HasSubstr("deadline"));
  const absl::Status missing = refusal({.tessdata = "/nowhere"});
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/nowhere/eng.traineddata"));
}

}  // namespace
}  // namespace oxbow::rewards
