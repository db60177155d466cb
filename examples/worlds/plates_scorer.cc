// SPDX-License-Identifier: Apache-2.0
#include "examples/worlds/plates_scorer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "examples/worlds/plates_reading.h"

namespace oxbow::worlds {
namespace {

using reward::PictureScorer;
using reward::RewardFacts;
using reward::Score;

absl::Status CheckFormat(const Image8& image) {
  if (image.width == kPlateWidth && image.height == kPlateHeight && image.channels == 1 &&
      image.pixels.size() == kPlatePixels) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("image is not grey of 32 x 16: ", image.width,
                                                 " x ", image.height, ", ", image.channels,
                                                 " channels, ", image.pixels.size(), " bytes"));
}

// A number of the edit distance, 0 to 3, of what is read and what is wanted.
using MeasurePlate = double (*)(int distance);

class PlatesScorer final : public PictureScorer {
 public:
  PlatesScorer(RewardFacts facts, MeasurePlate measure)
      : PictureScorer(std::move(facts)), measure_(measure) {}

  absl::StatusOr<Score> ScorePicture(std::string_view prompt, std::string_view /*metadata_json*/,
                                     const Image8& image) const override {
    OXBOW_ASSIGN_OR_RETURN(const Digits wanted, ParsePlatePrompt(prompt));
    OXBOW_RETURN_IF_ERROR(CheckFormat(image));
    const Reading reading = ReadPlate(image.pixels);
    std::string read;
    for (const CellReading& cell : reading.cells) {
      read += cell.digit == kUnreadable ? '?' : static_cast<char>('0' + cell.digit);
    }
    return Score{.value = measure_(EditDistance(reading, wanted)), .note = read};
  }

 private:
  const MeasurePlate measure_;
};

}  // namespace

std::unique_ptr<reward::Scorer> MakePlatesReader() {
  return std::make_unique<PlatesScorer>(
      RewardFacts{.name = "plates_reader",
                  .help = "1 - edit distance / 3 of the digits that templates read",
                  .identity = "plates_reader/1"},
      [](int distance) { return 1.0 - std::min(distance, 3) / 3.0; });
}

std::unique_ptr<reward::Scorer> MakePlatesStrict() {
  return std::make_unique<PlatesScorer>(
      RewardFacts{.name = "plates_strict",
                  .help = "1 if templates read all three digits right, else 0",
                  .identity = "plates_strict/1"},
      [](int distance) { return distance == 0 ? 1.0 : 0.0; });
}

}  // namespace oxbow::worlds
