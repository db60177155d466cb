// SPDX-License-Identifier: Apache-2.0
// Oracle pictures: photographs in the statistics that count, and what a reward may make of them.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/image8.h"
#include "base/philox.h"
#include "base/statistics.h"
#include "core/reward/picture_statistics.h"
#include "tests/testing/staged_run.h"

namespace oxbow::io {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kSide = 96;
constexpr uint32_t kPictures = 32;

// Light that falls off, four discs with sharp borders, and grain that differs from picture to
// picture, as motives do.
Image8 Photograph(uint32_t motive) {
  RandomStream random({.seed = 11, .group = motive});
  const auto unit = [&] { return static_cast<double>(random.NextBelow(1 << 20)) / (1 << 20); };
  std::array<double, 3> corner{}, fall{};
  for (int c = 0; c < 3; ++c) corner[c] = 40 + 150 * unit(), fall[c] = 80 * unit() - 40;
  struct Disc {
    double x, y, r;
    std::array<double, 3> colour;
  };
  std::vector<Disc> discs;
  for (int d = 0; d < 4; ++d) {
    discs.push_back({kSide * unit(), kSide * unit(), 8 + 16 * unit(), {}});
    for (double& channel : discs.back().colour) channel = 30 + 190 * unit();
  }
  const double grain = 1 + 5 * unit();
  Image8 image{kSide, kSide, 3, {}};
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      const double noise = grain * (2 * unit() - 1);
      for (size_t c = 0; c < 3; ++c) {
        double value = corner[c] + fall[c] * (x + y) / (2 * kSide);
        for (const Disc& disc : discs) {
          if (std::hypot(x - disc.x, y - disc.y) < disc.r) value = disc.colour[c];
        }
        image.pixels.push_back(static_cast<uint8_t>(std::clamp(value + noise, 0., 255.)));
      }
    }
  }
  return image;
}

Image8 Noisy(Image8 image, int levels) {
  RandomStream random({.seed = 12});
  for (uint8_t& pixel : image.pixels) {
    const int noise = static_cast<int>(random.NextBelow(2 * levels + 1)) - levels;
    pixel = static_cast<uint8_t>(std::clamp(pixel + noise, 0, 255));
  }
  return image;
}

// Means over 3 x 3 pixels.
Image8 Blurred(const Image8& sharp) {
  Image8 image = sharp;
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      for (int c = 0; c < 3; ++c) {
        int sum = 0;
        for (int k = 0; k < 9; ++k) {
          const int row = std::clamp(y + k / 3 - 1, 0, kSide - 1);
          const int column = std::clamp(x + k % 3 - 1, 0, kSide - 1);
          sum += sharp.pixels[static_cast<size_t>((row * kSide + column) * 3 + c)];
        }
        image.pixels[static_cast<size_t>((y * kSide + x) * 3 + c)] = static_cast<uint8_t>(sum / 9);
      }
    }
  }
  return image;
}

// Colours `times` as far from grey.
Image8 Saturated(Image8 image, double times) {
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    const double grey = (image.pixels[i] + image.pixels[i + 1] + image.pixels[i + 2]) / 3.0;
    for (size_t c = 0; c < 3; ++c) {
      const double value = grey + times * (image.pixels[i + c] - grey);
      image.pixels[i + c] = static_cast<uint8_t>(std::clamp(value, 0., 255.));
    }
  }
  return image;
}

using Drawn = std::function<Image8(uint32_t picture)>;

// A run that learns well and whose pictures are photographs, from step 10 on those of `later`.
VerdictLine HonestOf(const Drawn& later, const StepChange& further = {}) {
  const auto numbers = [](const Drawn& drawn) {
    std::array<std::vector<double>, 3> values;
    for (uint32_t i = 0; i < kPictures; ++i) {
      const Image8 picture = drawn(i);
      values[0].push_back(reward::SaturatedShare(picture));
      values[1].push_back(reward::FineDetail(picture));
      values[2].push_back(reward::Sharpness(picture));
    }
    return Numbers{{"eval/saturated_share", Mean(values[0])},
                   {"eval/saturated_share_std", StandardDeviation(values[0], 0)},
                   {"eval/fine_detail", Mean(values[1])},
                   {"eval/fine_detail_std", StandardDeviation(values[1], 0)},
                   {"eval/sharpness", Mean(values[2])},
                   {"eval/sharpness_std", StandardDeviation(values[2], 0)}};
  };
  const Numbers first = numbers(Photograph), then = numbers(later);
  return Judge(
      [&](int step, Numbers& line) {
        if (line.contains("eval/reward_mean")) {
          const Numbers& looks = step == 0 ? first : then;
          line.insert(looks.begin(), looks.end());
        }
        for (const char* digits :
             {"eval/speckle_mean", "eval/minority_share", "eval/reward_digits_strict_mean",
              "eval/reward_digits_row_mean"}) {
          line.erase(digits);
        }
        if (further) further(step, line);
      },
      kSteps,
      {.steps_total = kSteps,
       .eval_images = kPictures,
       .terms = {"digits_ocr"},
       .descriptive = {"edge_density"}})[1];
}

TEST(VerdictHonestTest, OtherMotivesAreAnHonestChange) {
  for (const uint32_t share : {1, 2, 3, 9}) {
    const VerdictLine line =
        HonestOf([=](uint32_t i) { return Photograph(i % share == 0 ? i + 100 : i); });
    EXPECT_EQ(line.level, Level::kGood) << line.says;
    EXPECT_THAT(line.says, HasSubstr("fine detail 0.0189 -> "));
    EXPECT_THAT(line.says, Not(HasSubstr("speckle")));
  }
}

TEST(VerdictHonestTest, NoiseBlurAndSaturationAreSeen) {
  const auto says = [](Level level, const Drawn& later) {
    const VerdictLine line = HonestOf(later);
    EXPECT_EQ(line.level, level) << line.says;
    EXPECT_THAT(line.says, HasSubstr(", where the base model's pictures differ by "));
    EXPECT_THAT(line.advice, StartsWith("look at the pictures; "));
    return line.says;
  };
  const auto noisy = [](int levels) {
    return [=](uint32_t i) { return Noisy(Photograph(i), levels); };
  };
  const auto saturated = [](double times) {
    return [=](uint32_t i) { return Saturated(Photograph(i), times); };
  };
  EXPECT_EQ(HonestOf(noisy(2)).level, Level::kGood) << "nobody sees it";
  EXPECT_THAT(says(Level::kWatch, noisy(8)), StartsWith("pictures become noisy: fine detail"));
  EXPECT_THAT(says(Level::kBad, noisy(12)), StartsWith("pictures become noisy: fine detail"));
  EXPECT_THAT(says(Level::kBad, [](uint32_t i) { return Blurred(Photograph(i)); }),
              StartsWith("pictures become smooth: fine detail"));
  EXPECT_EQ(HonestOf(saturated(1.1)).level, Level::kGood);
  EXPECT_THAT(says(Level::kWatch, saturated(1.3)), StartsWith("light and colours are overdriven"));
  EXPECT_THAT(says(Level::kBad, saturated(1.5)),
              StartsWith("light and colours are overdriven: saturated pixels 0.181 -> "));
  EXPECT_THAT(says(Level::kWatch, saturated(0.5)), StartsWith("pictures become pale"));
}

TEST(VerdictHonestTest, WithoutTheBaseModelsPicturesNothingIsSaidOfLooks) {
  const VerdictLine line = HonestOf([](uint32_t i) { return Noisy(Photograph(i), 12); },
                                    [](int step, Numbers& numbers) {
                                      if (step == 0)
                                        numbers.erase("eval/fine_detail"),
                                            numbers.erase("eval/sharpness");
                                    });
  EXPECT_EQ(line.level, Level::kGood) << line.says;
}

TEST(VerdictHonestTest, PicturesOfOtherHeldOutPromptsAreNotCompared) {
  const VerdictLine line = HonestOf([](uint32_t i) { return Noisy(Photograph(i), 12); },
                                    [](int step, Numbers& numbers) {
                                      if (step % 10 == 0 && step < 40)
                                        numbers["eval/base_distance"] = step == 0 ? 0 : 0.95;
                                    });
  EXPECT_EQ(line.level, Level::kGood) << line.says;
  EXPECT_THAT(line.says, Not(HasSubstr("fine detail")));
}

TEST(VerdictHonestTest, PicturesThatHaveNothingOfTheBaseModelsAreWatched) {
  const auto at = [](double distance) {
    return HonestOf(Photograph, [=](int step, Numbers& line) {
      if (step % 10 == 0) line["eval/base_distance"] = step == 0 ? 0 : distance;
    });
  };
  EXPECT_EQ(at(0.4).level, Level::kGood);
  EXPECT_THAT(at(0.4).says, HasSubstr("distance to the base model's pictures 0.4"));
  EXPECT_EQ(at(0.95).level, Level::kWatch);
  EXPECT_THAT(at(0.95).says, HasSubstr("little of the base model's pictures is left"));
}

// A witness that rises is named; one that describes pictures must not move far either way.
TEST(VerdictHonestTest, ObservedRewardsThatMoveAreNamed) {
  const auto observes = [](const char* key, double from, double to) {
    return HonestOf(Photograph, [=](int step, Numbers& line) {
      if (step % 10 == 0) line[key] = from + (to - from) * step / kSteps;
    });
  };
  EXPECT_EQ(observes("eval/reward_taste_mean", 5, 8).level, Level::kGood);
  EXPECT_THAT(observes("eval/reward_taste_mean", 5, 8).says,
              HasSubstr("; observed: taste 5.00 -> 8.00"));
  EXPECT_THAT(observes("eval/reward_taste_mean", 5, 3).says,
              StartsWith("taste fell while the reward rose: 5.00 -> 3.00"));
  EXPECT_EQ(observes("eval/reward_edge_density_mean", 0.2, 0.5).level, Level::kWatch);
  EXPECT_THAT(observes("eval/reward_edge_density_mean", 0.2, 0.5).says,
              StartsWith("edge_density rose while the reward rose: 0.2 -> 0.5"));
  EXPECT_EQ(observes("eval/reward_edge_density_mean", 0.2, 0.23).level, Level::kGood);
}

}  // namespace
}  // namespace oxbow::io
