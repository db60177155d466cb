// SPDX-License-Identifier: Apache-2.0
// The three worlds as synthetic tasks. A program that links this library has them.
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/reward/synthetic_task.h"
#include "examples/worlds/clips_reading.h"
#include "examples/worlds/digits_ocr.h"
#include "examples/worlds/digits_reading.h"
#include "examples/worlds/moving_digit_scorer.h"
#include "examples/worlds/plates_reading.h"
#include "examples/worlds/plates_scorer.h"

namespace oxbow::worlds {
namespace {

using reward::ImageFormat;
using reward::Measure;
using reward::SyntheticTask;
using reward::TaskReport;
using reward::TaskReward;

absl::Status CheckSize(const ImageFormat& format, std::span<const uint8_t> pixels) {
  if (pixels.size() == format.bytes()) return absl::OkStatus();
  const std::string frames = format.frames == 0 ? "" : absl::StrCat(format.frames, " frames of ");
  return absl::FailedPreconditionError(absl::StrCat(
      "image does not have the size of its task, ", frames, format.width, " x ", format.height,
      " with ", format.channels, " channels: ", pixels.size(), " bytes"));
}

// The measures that every task has.
template <typename Report>
std::vector<Measure> CommonMeasures(const Report& report) {
  return {{"images", static_cast<double>(report.images)},
          {"reward", report.reward},
          {"reward_stderr", report.reward_stderr},
          {"strict", report.strict},
          {"speckle", report.speckle},
          {"unreadable", report.unreadable}};
}

struct DigitsTraits {
  using Wanted = Digits;
  using Counter = DigitsCounter;
  static constexpr const char* kName = "digits";
  static std::vector<TaskReward> Rewards() {
    return {{"digits_ocr", MakeDigitsOcr},
            {"digits_strict", MakeDigitsStrict},
            {"digits_row", MakeDigitsRow},
            {"digits_graded", MakeDigitsGraded}};
  }
  static constexpr const char* kLayoutReward = "digits_row";
  static constexpr bool kGreyIsDust = true;
  static constexpr ImageFormat kFormat = {kImageWidth, kImageHeight, 1};
  static DigitsCounter NewCounter() { return DigitsCounter(kRowOffsets); }
  static void Count(DigitsCounter& counter, const Digits& wanted, std::span<const uint8_t> pixels) {
    counter.Add(wanted, ReadDigits(pixels), Speckle(pixels));
  }
  static absl::StatusOr<Digits> Parse(const std::string& prompt) {
    return ParseDigitsPrompt(prompt);
  }
  static bool Right(const Digits& wanted, std::span<const uint8_t> pixels) {
    return EditDistance(ReadDigits(pixels), wanted) == 0;
  }
  static std::vector<Measure> OwnMeasures(const DigitsReport& report) {
    return {{"minority_share", report.minority_row_share},
            {"digit_1_accuracy", report.digit_accuracy[0]},
            {"digit_2_accuracy", report.digit_accuracy[1]},
            {"digit_3_accuracy", report.digit_accuracy[2]}};
  }
};

// The measures of its reader, not of the OCR engine.
struct PlatesTraits {
  using Wanted = Digits;
  using Counter = DigitsCounter;
  static constexpr const char* kName = "plates";
  static std::vector<TaskReward> Rewards() {
    return {{"plates_reader", MakePlatesReader}, {"plates_strict", MakePlatesStrict}};
  }
  static constexpr const char* kLayoutReward = "";
  static constexpr bool kGreyIsDust = true;
  static constexpr ImageFormat kFormat = {kPlateWidth, kPlateHeight, 1};
  static DigitsCounter NewCounter() { return DigitsCounter(kPlateOffsets); }
  static void Count(DigitsCounter& counter, const Digits& wanted, std::span<const uint8_t> pixels) {
    counter.Add(wanted, ReadPlate(pixels), PlateDust(pixels));
  }
  static absl::StatusOr<Digits> Parse(const std::string& prompt) {
    return ParsePlatePrompt(prompt);
  }
  static bool Right(const Digits& wanted, std::span<const uint8_t> pixels) {
    return EditDistance(ReadPlate(pixels), wanted) == 0;
  }
  static std::vector<Measure> OwnMeasures(const DigitsReport& report) {
    return DigitsTraits::OwnMeasures(report);
  }
};

struct ClipTraits {
  using Wanted = ClipNumber;
  using Counter = ClipCounter;
  static constexpr const char* kName = "clip";
  static std::vector<TaskReward> Rewards() {
    return {{"clip_ocr", MakeClipOcr}, {"clip_steady", MakeClipSteady}};
  }
  static constexpr const char* kLayoutReward = "";
  static constexpr bool kGreyIsDust = true;
  static constexpr ImageFormat kFormat = {kClipWidth, kClipHeight, 1, kClipFrames};
  static ClipCounter NewCounter() { return {}; }
  static void Count(ClipCounter& counter, const ClipNumber& wanted,
                    std::span<const uint8_t> pixels) {
    counter.Add(wanted, pixels);
  }
  static absl::StatusOr<ClipNumber> Parse(const std::string& prompt) {
    return ParseClipPrompt(prompt);
  }
  static bool Right(const ClipNumber& wanted, std::span<const uint8_t> pixels) {
    const std::vector<FrameReading> frames = ReadClip(pixels);
    return Steady(frames) && RightDigits(frames.front(), wanted) == kClipDigits;
  }
  static std::vector<Measure> OwnMeasures(const ClipReport& report) {
    return {{"steady", report.steady},
            {"minority_way_share", report.minority_way_share},
            {"minority_share", report.minority_row_share},
            {"digit_1_accuracy", report.digit_accuracy[0]},
            {"digit_2_accuracy", report.digit_accuracy[1]},
            {"frame_1_accuracy", report.frame_accuracy[0]},
            {"frame_2_accuracy", report.frame_accuracy[1]},
            {"frame_3_accuracy", report.frame_accuracy[2]}};
  }
};

template <typename Traits>
class CountedReport final : public TaskReport {
 public:
  absl::Status Add(const std::string& prompt, std::span<const uint8_t> pixels) override {
    OXBOW_ASSIGN_OR_RETURN(const typename Traits::Wanted wanted, Traits::Parse(prompt));
    OXBOW_RETURN_IF_ERROR(CheckSize(Traits::kFormat, pixels));
    Traits::Count(counter_, wanted, pixels);
    return absl::OkStatus();
  }
  std::vector<Measure> Report() const override {
    const auto report = counter_.Report();
    std::vector<Measure> measures = CommonMeasures(report);
    for (Measure& own : Traits::OwnMeasures(report)) measures.push_back(std::move(own));
    return measures;
  }

 private:
  typename Traits::Counter counter_ = Traits::NewCounter();
};

template <typename Traits>
class TaskOf final : public SyntheticTask {
 public:
  std::string name() const override { return Traits::kName; }
  ImageFormat format() const override { return Traits::kFormat; }
  std::vector<TaskReward> rewards() const override { return Traits::Rewards(); }
  std::string layout_reward() const override { return Traits::kLayoutReward; }
  bool grey_is_dust() const override { return Traits::kGreyIsDust; }
  bool HasPrompt(const std::string& prompt) const override { return Traits::Parse(prompt).ok(); }
  std::unique_ptr<TaskReport> NewReport() const override {
    return std::make_unique<CountedReport<Traits>>();
  }
  absl::StatusOr<bool> IsRight(const std::string& prompt,
                               std::span<const uint8_t> pixels) const override {
    OXBOW_ASSIGN_OR_RETURN(const typename Traits::Wanted wanted, Traits::Parse(prompt));
    OXBOW_RETURN_IF_ERROR(CheckSize(Traits::kFormat, pixels));
    return Traits::Right(wanted, pixels);
  }
};

template <typename Traits>
bool Added() {
  static const TaskOf<Traits> task;
  reward::AddTask(task);
  return true;
}

[[maybe_unused]] const bool kAdded =
    Added<DigitsTraits>() && Added<PlatesTraits>() && Added<ClipTraits>();

}  // namespace
}  // namespace oxbow::worlds
