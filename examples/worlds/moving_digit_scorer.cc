// SPDX-License-Identifier: Apache-2.0
#include "examples/worlds/moving_digit_scorer.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "examples/worlds/clips.h"
#include "examples/worlds/clips_reading.h"

namespace oxbow::worlds {
namespace {

using reward::Item;
using reward::PictureScorer;
using reward::RewardFacts;
using reward::Score;
using reward::Scorer;

absl::StatusOr<FrameReading> FrameReadingOf(const Image8& frame) {
  if (frame.width != kClipWidth || frame.height != kClipHeight || frame.channels != 1 ||
      frame.pixels.size() != kFramePixels) {
    return absl::InvalidArgumentError(absl::StrCat("frame is not grey of 20 x 8: ", frame.width,
                                                   " x ", frame.height, ", ", frame.channels,
                                                   " channels, ", frame.pixels.size(), " bytes"));
  }
  return ReadFrame(frame.pixels);
}

std::string TextOf(const FrameReading& reading) {
  std::string text;
  for (const int digit : reading.digits) {
    text += digit == kUnreadable ? '?' : static_cast<char>('0' + digit);
  }
  return text;
}

class ClipOcr final : public PictureScorer {
 public:
  using PictureScorer::PictureScorer;

  absl::StatusOr<Score> ScorePicture(std::string_view prompt, std::string_view /*metadata_json*/,
                                     const Image8& frame) const override {
    OXBOW_ASSIGN_OR_RETURN(const ClipNumber wanted, ParseClipPrompt(prompt));
    OXBOW_ASSIGN_OR_RETURN(const FrameReading reading, FrameReadingOf(frame));
    return Score{.value = static_cast<double>(RightDigits(reading, wanted)) / kClipDigits,
                 .note = TextOf(reading)};
  }
};

absl::StatusOr<Score> SteadyScore(const Item& item) {
  OXBOW_RETURN_IF_ERROR(ParseClipPrompt(item.prompt).status());
  if (item.frames.size() < 2) {
    return absl::InvalidArgumentError("a video of one frame has no way");
  }
  std::vector<FrameReading> frames;
  for (const Image8& frame : item.frames) {
    OXBOW_ASSIGN_OR_RETURN(frames.emplace_back(), FrameReadingOf(frame));
  }
  return Score{.value = Steady(frames) ? 1.0 : 0.0};
}

class ClipSteady final : public Scorer {
 public:
  const RewardFacts& facts() const override { return facts_; }
  int concurrency_max() const override { return std::numeric_limits<int>::max(); }

  std::vector<absl::StatusOr<Score>> ScoreBatch(absl::Span<const Item> items) override {
    std::vector<absl::StatusOr<Score>> scores;
    scores.reserve(items.size());
    for (const Item& item : items) scores.push_back(SteadyScore(item));
    return scores;
  }

 private:
  const RewardFacts facts_ = {.name = "clip_steady",
                              .help = "1 if all frames show one number that moves by even steps",
                              .identity = "clip_steady/1",
                              .images = false,
                              .videos = true};
};

}  // namespace

std::unique_ptr<reward::Scorer> MakeClipOcr() {
  return std::make_unique<ClipOcr>(RewardFacts{.name = "clip_ocr",
                                               .help = "share of right digits, mean over frames",
                                               .identity = "clip_ocr/1"});
}

std::unique_ptr<reward::Scorer> MakeClipSteady() { return std::make_unique<ClipSteady>(); }

}  // namespace oxbow::worlds
