#include "tasks/digits_ocr.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tasks/digits.h"
#include "tasks/digits_reading.h"

namespace oxbow::reward {
namespace {

absl::StatusOr<tasks::Reading> ReadingOf(const Image8& image) {
  if (image.width != tasks::kImageWidth || image.height != tasks::kImageHeight ||
      image.channels != 1 || image.pixels.size() != tasks::kImagePixels) {
    return absl::InvalidArgumentError(absl::StrCat("image is not grey of 20 x 8: ", image.width,
                                                   " x ", image.height, ", ", image.channels,
                                                   " channels, ", image.pixels.size(), " bytes"));
  }
  return tasks::ReadDigits(image.pixels);
}

// Edit distance, 0..3, between the digits in the image and those in the prompt.
absl::StatusOr<int> Distance(const std::string& prompt_text, const Image8& image) {
  OXBOW_ASSIGN_OR_RETURN(const tasks::Digits wanted, tasks::ParseDigitsPrompt(prompt_text));
  OXBOW_ASSIGN_OR_RETURN(const tasks::Reading reading, ReadingOf(image));
  return tasks::EditDistance(reading, wanted);
}

class DigitsOcr final : public Scorer {
 public:
  std::string name() const override { return "digits_ocr"; }
  double value_min() const override { return 0; }
  double value_max() const override { return 1; }
  std::string help() const override { return "1 - edit distance / 3 of the digits read"; }
  absl::StatusOr<double> Score(const std::string& prompt_text, const std::string& /*metadata*/,
                               const Image8& image) const override {
    OXBOW_ASSIGN_OR_RETURN(const int distance, Distance(prompt_text, image));
    return 1.0 - std::min(distance, 3) / 3.0;
  }
};

class DigitsStrict final : public Scorer {
 public:
  std::string name() const override { return "digits_strict"; }
  double value_min() const override { return 0; }
  double value_max() const override { return 1; }
  std::string help() const override { return "1 if all three digits are right, else 0"; }
  absl::StatusOr<double> Score(const std::string& prompt_text, const std::string& /*metadata*/,
                               const Image8& image) const override {
    OXBOW_ASSIGN_OR_RETURN(const int distance, Distance(prompt_text, image));
    return distance == 0 ? 1.0 : 0.0;
  }
};

// Both rows are equally right, so observe this reward and do not train on it: a mean that moves
// away from .5 shows that images become alike.
class DigitsRow final : public Scorer {
 public:
  std::string name() const override { return "digits_row"; }
  double value_min() const override { return 0; }
  double value_max() const override { return 1; }
  std::string help() const override { return "the row the digits stand in, 0 or 1"; }
  absl::StatusOr<double> Score(const std::string& prompt_text, const std::string& /*metadata*/,
                               const Image8& image) const override {
    // An image of another task has no row.
    OXBOW_RETURN_IF_ERROR(tasks::ParseDigitsPrompt(prompt_text).status());
    OXBOW_ASSIGN_OR_RETURN(const tasks::Reading reading, ReadingOf(image));
    return reading.offset;
  }
};

}  // namespace

std::unique_ptr<Scorer> MakeDigitsOcr() { return std::make_unique<DigitsOcr>(); }
std::unique_ptr<Scorer> MakeDigitsRow() { return std::make_unique<DigitsRow>(); }
std::unique_ptr<Scorer> MakeDigitsStrict() { return std::make_unique<DigitsStrict>(); }

}  // namespace oxbow::reward
