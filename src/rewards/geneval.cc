// SPDX-License-Identifier: Apache-2.0
#include "rewards/geneval.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "core/reward/clip_crop.h"
#include "core/reward/pillow_resize.h"
#include "io/image.h"
#include "rewards/picture_guards.h"

namespace oxbow::rewards {
namespace {

using reward::CountedDetections;
using reward::GenevalPrompt;
using reward::GenevalVariant;
using reward::Item;
using reward::Score;

constexpr char kName[] = "geneval";
constexpr uint8_t kGrey = 0x99;
constexpr int kJpegQuality = 75;

reward::RewardFacts FactsOf(const InstanceDetector& detector, const ClipTowers& towers,
                            GenevalVariant variant) {
  const bool official = variant == GenevalVariant::kOfficial;
  return {
      .name = kName,
      .value_min = official ? 0.0 : -14.0,
      .value_max = 1,
      .help = official ? "GenEval: 1 if the image shows the objects asked for, else 0"
                       : "GenEval as Flow-GRPO trains on it: the mean of what is right",
      .identity = absl::StrCat("geneval/", official ? "official" : "flow_grpo", "/1 mask2former ",
                               detector.identity(), " clip ", towers.identity()),
      .metadata_keys = {"include"}};
}

Image8 Swapped(Image8 image) {
  for (size_t i = 0; i + 2 < image.pixels.size(); i += 3) {
    std::swap(image.pixels[i], image.pixels[i + 2]);
  }
  return image;
}

// [10, width]: a unit vector for each colour of a thing.
at::Tensor ColourTexts(ClipTowers& towers, const std::string& thing) {
  std::vector<std::string> texts;
  for (const char* const colour : reward::GenevalColours()) {
    texts.push_back(absl::StrCat("a photo of a ", colour, " ", thing));
    texts.push_back(absl::StrCat("a photo of a ", colour, "-colored ", thing));
    texts.push_back(absl::StrCat("a photo of a ", colour, " object"));
  }
  const at::Tensor rows = towers.EmbedTexts(texts);
  const at::Tensor means = rows.view({-1, 3, rows.size(1)}).mean(1);
  return means / means.norm(2, {-1}, /*keepdim=*/true);
}

Image8 Part(const Image8& image, int x, int y, int width, int height) {
  Image8 part{width, height, image.channels, {}};
  const auto row = static_cast<size_t>(width * image.channels);
  for (int i = y; i < y + height; ++i) {
    const auto* const begin =
        &image.pixels[(static_cast<size_t>(i) * static_cast<size_t>(image.width) +
                       static_cast<size_t>(x)) *
                      static_cast<size_t>(image.channels)];
    part.pixels.insert(part.pixels.end(), begin, begin + row);
  }
  return part;
}

// CLIP sees the middle of a crop. A strip of a few pixels would be a giant once its shorter side is
// resized: what is far from its middle is left out before.
Image8 WithoutEnds(const Image8& crop, int64_t side) {
  const int longest = std::max(reward::kResizeSideMax / static_cast<int>(side) - 2, 1);
  const int shorter = std::min(crop.width, crop.height);
  const int cut = std::max((std::max(crop.width, crop.height) - longest * shorter + 1) / 2, 0);
  const int x = crop.width > crop.height ? cut : 0, y = crop.width > crop.height ? 0 : cut;
  return cut == 0 ? crop : Part(crop, x, y, crop.width - 2 * x, crop.height - 2 * y);
}

class Geneval final : public reward::Scorer {
 public:
  Geneval(std::unique_ptr<InstanceDetector> detector, std::shared_ptr<ClipTowers> towers,
          GenevalVariant variant)
      : facts_(FactsOf(*detector, *towers, variant)),
        detector_(std::move(detector)),
        towers_(std::move(towers)),
        variant_(variant) {}

  const reward::RewardFacts& facts() const override { return facts_; }
  int concurrency_max() const override { return 1; }

  std::vector<absl::StatusOr<Score>> ScoreBatch(absl::Span<const Item> items) override {
    std::vector<absl::StatusOr<Score>> scores;
    for (const Item& item : items) scores.push_back(ScoreItem(item));
    return scores;
  }

 private:
  absl::StatusOr<Score> ScoreItem(const Item& item) const {
    OXBOW_ASSIGN_OR_RETURN(const GenevalPrompt prompt,
                           reward::ParseGenevalPrompt(item.metadata_json));
    OXBOW_ASSIGN_OR_RETURN(const Image8 image, Seen(item.picture()));
    const bool official = variant_ == GenevalVariant::kOfficial;
    OXBOW_ASSIGN_OR_RETURN(
        const std::vector<Instance> found,
        detector_->Detect(official ? image : Swapped(image), reward::GenevalThreshold(prompt.tag)));
    std::vector<reward::Detection> detections;
    for (const Instance& instance : found) detections.push_back(instance.detection);
    const CountedDetections counted = reward::CountDetections(detections, prompt.tag);
    const auto verdict = reward::JudgeGeneval(
        prompt, detections, counted,
        ColoursOf(image, found, reward::DetectionsToColour(prompt, counted, variant_)), variant_);
    return Score{
        .value = verdict.score,
        .note = absl::StrCat(
            prompt.tag, prompt.tag.empty() ? "" : ": ",
            verdict.correct ? "right" : absl::StrReplaceAll(verdict.reason, {{"\n", "; "}}))};
  }

  // The image as the evaluator gets it.
  absl::StatusOr<Image8> Seen(const Image8& picture) const {
    OXBOW_RETURN_IF_ERROR(CheckPicture(picture, kName));
    OXBOW_RETURN_IF_ERROR(detector_->CheckSize({picture.width, picture.height}));
    Image8 image = reward::ToRgb(picture);
    if (variant_ == GenevalVariant::kOfficial) return image;
    return io::DecodeJpeg(io::EncodeJpeg(image, kJpegQuality));
  }

  std::map<size_t, int> ColoursOf(const Image8& image, const std::vector<Instance>& found,
                                  const std::vector<size_t>& asked) const {
    std::map<size_t, int> colours;
    for (const size_t i : asked) {
      const Image8 crop = WithoutEnds(ColourCrop(image, found[i]), towers_->side());
      const at::Tensor row = towers_->EmbedImages({&crop}, ClipInput::kTorchvision);
      const std::string thing =
          reward::GenevalThings()[static_cast<size_t>(found[i].detection.thing)];
      const at::Tensor likeness = at::matmul(ColourTexts(*towers_, thing), row[0]);
      colours[i] = static_cast<int>(likeness.argmax().item<int64_t>());
    }
    return colours;
  }

  const reward::RewardFacts facts_;
  const std::unique_ptr<InstanceDetector> detector_;
  const std::shared_ptr<ClipTowers> towers_;
  const GenevalVariant variant_;
};

}  // namespace

Image8 ColourCrop(const Image8& image, const Instance& object) {
  Image8 masked = image;
  for (size_t i = 0; i < object.mask.size(); ++i) {
    if (object.mask[i] == 0) std::fill_n(&masked.pixels[i * 3], 3, kGrey);
  }
  const auto [x0, y0, x1, y1] = object.detection.box;
  return Part(masked, static_cast<int>(x0), static_cast<int>(y0), static_cast<int>(x1 - x0),
              static_cast<int>(y1 - y0));
}

absl::StatusOr<std::unique_ptr<reward::Scorer>> OpenGeneval(
    const std::filesystem::path& detector, std::shared_ptr<ClipTowers> towers,
    GenevalVariant variant, const model::exported::NetworkOptions& options) {
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<InstanceDetector> opened,
                         InstanceDetector::Open(detector, options));
  const size_t things = reward::GenevalThings().size();
  if (opened->classes() != static_cast<int64_t>(things)) {
    return absl::FailedPreconditionError(
        absl::StrCat(detector.string(), ": tells ", opened->classes(),
                     " classes apart; GenEval's rules are for the ", things, " things of COCO"));
  }
  return std::make_unique<Geneval>(std::move(opened), std::move(towers), variant);
}

}  // namespace oxbow::rewards
