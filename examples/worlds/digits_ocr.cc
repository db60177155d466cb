// SPDX-License-Identifier: Apache-2.0
#include "examples/worlds/digits_ocr.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "examples/worlds/digits.h"
#include "examples/worlds/digits_reading.h"

namespace oxbow::worlds {
namespace {

using reward::PictureScorer;
using reward::RewardFacts;
using reward::Score;

absl::StatusOr<Reading> ReadingOf(const Image8& image) {
  if (image.width != kImageWidth || image.height != kImageHeight || image.channels != 1 ||
      image.pixels.size() != kImagePixels) {
    return absl::InvalidArgumentError(absl::StrCat("image is not grey of 20 x 8: ", image.width,
                                                   " x ", image.height, ", ", image.channels,
                                                   " channels, ", image.pixels.size(), " bytes"));
  }
  return ReadDigits(image.pixels);
}

// A number of what is read and what is wanted.
using MeasureDigits = double (*)(const Reading& reading, const Digits& wanted);

double Ocr(const Reading& reading, const Digits& wanted) {
  return 1.0 - std::min(EditDistance(reading, wanted), 3) / 3.0;
}

double Strict(const Reading& reading, const Digits& wanted) {
  return EditDistance(reading, wanted) == 0 ? 1.0 : 0.0;
}

// Both rows are equally right, so observe this reward and do not train on it: a mean that moves
// away from .5 shows that images become alike.
double Row(const Reading& reading, const Digits& /*wanted*/) { return reading.offset; }

class DigitsScorer final : public PictureScorer {
 public:
  DigitsScorer(RewardFacts facts, MeasureDigits measure)
      : PictureScorer(std::move(facts)), measure_(measure) {}

  absl::StatusOr<Score> ScorePicture(std::string_view prompt, std::string_view /*metadata_json*/,
                                     const Image8& image) const override {
    // An image of another task has no digits, not even a row.
    OXBOW_ASSIGN_OR_RETURN(const Digits wanted, ParseDigitsPrompt(prompt));
    OXBOW_ASSIGN_OR_RETURN(const Reading reading, ReadingOf(image));
    return Score{.value = measure_(reading, wanted)};
  }

 private:
  const MeasureDigits measure_;
};

constexpr char kDigitsKey[] = "digits";

// How many digits of a prompt must be right.
absl::StatusOr<int> DigitsWanted(std::string_view metadata_json) {
  const auto metadata = ParseJson(metadata_json);
  if (metadata.is_object()) {
    const auto found = metadata.find(kDigitsKey);
    if (found != metadata.end() && found->is_number_unsigned() &&
        found->get<uint64_t>() <= kDigitCount) {
      return found->get<int>();
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "metadata need \"", kDigitsKey, "\", how many digits must be right: 0 to ", kDigitCount));
}

class GradedDigitsScorer final : public PictureScorer {
 public:
  GradedDigitsScorer()
      : PictureScorer(RewardFacts{
            .name = "digits_graded",
            .help = "1 if as many digits are right as the prompt's metadata ask for, in row 0",
            .identity = "digits_graded/1",
            .metadata_keys = {kDigitsKey}}) {}

  absl::StatusOr<Score> ScorePicture(std::string_view prompt, std::string_view metadata_json,
                                     const Image8& image) const override {
    OXBOW_ASSIGN_OR_RETURN(const Digits digits, ParseDigitsPrompt(prompt));
    OXBOW_ASSIGN_OR_RETURN(const int wanted, DigitsWanted(metadata_json));
    OXBOW_ASSIGN_OR_RETURN(const Reading reading, ReadingOf(image));
    int right = 0;
    for (size_t i = 0; i < digits.size(); ++i) {
      if (reading.cells[i].digit == kUnreadable) return Score{.value = 0};
      right += reading.cells[i].digit == digits[i] ? 1 : 0;
    }
    return Score{.value = reading.offset == 0 && right >= wanted ? 1.0 : 0.0};
  }
};

}  // namespace

std::unique_ptr<reward::Scorer> MakeDigitsGraded() {
  return std::make_unique<GradedDigitsScorer>();
}

std::unique_ptr<reward::Scorer> MakeDigitsOcr() {
  return std::make_unique<DigitsScorer>(
      RewardFacts{.name = "digits_ocr",
                  .help = "1 - edit distance / 3 of the digits read",
                  .identity = "digits_ocr/1"},
      Ocr);
}

std::unique_ptr<reward::Scorer> MakeDigitsRow() {
  return std::make_unique<DigitsScorer>(RewardFacts{.name = "digits_row",
                                                    .help = "the row the digits stand in, 0 or 1",
                                                    .identity = "digits_row/1"},
                                        Row);
}

std::unique_ptr<reward::Scorer> MakeDigitsStrict() {
  return std::make_unique<DigitsScorer>(
      RewardFacts{.name = "digits_strict",
                  .help = "1 if all three digits are right, else 0",
                  .identity = "digits_strict/1"},
      Strict);
}

}  // namespace oxbow::worlds
