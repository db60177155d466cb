// SPDX-License-Identifier: Apache-2.0
#include "rewards/ocr_scorer.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "core/reward/ocr_rule.h"
#include "io/image.h"

namespace oxbow::rewards {
namespace {

using reward::Item;
using reward::OcrVariant;
using reward::Score;

absl::StatusOr<OcrVariant> VariantNamed(const std::string& name) {
  if (name == "flow_grpo") return OcrVariant::kFlowGrpo;
  if (name == "flow_factory") return OcrVariant::kFlowFactory;
  return absl::InvalidArgumentError(
      absl::StrCat("unknown variant of ocr (there are flow_grpo, flow_factory): ", name));
}

reward::RewardFacts FactsOf(const OcrSettings& settings, const TextReader& reader) {
  return {.name = settings.name,
          .help = "1 - edit distance / length of the text read by " + reader.help(),
          .identity = absl::StrCat("ocr/1 ", settings.variant, " ", reader.identity()),
          .videos = true,
          .frames_every = reward::kOcrFrameStride};
}

class OcrScorer final : public reward::Scorer {
 public:
  OcrScorer(reward::RewardFacts facts, OcrVariant variant, std::unique_ptr<TextReader> reader)
      : facts_(std::move(facts)), variant_(variant), reader_(std::move(reader)) {}

  const reward::RewardFacts& facts() const override { return facts_; }
  // A batch uses all engines; a second one fills what the first leaves at its end.
  int concurrency_max() const override { return std::min(reader_->engines(), 2); }
  std::vector<absl::StatusOr<Score>> ScoreBatch(absl::Span<const Item> items) override;

 private:
  absl::StatusOr<Score> ScoreItem(const Item& item) const;

  const reward::RewardFacts facts_;
  const OcrVariant variant_;
  const std::unique_ptr<TextReader> reader_;
};

absl::StatusOr<Score> OcrScorer::ScoreItem(const Item& item) const {
  // The prompt first: it is the cheaper one to refuse.
  OXBOW_ASSIGN_OR_RETURN(
      const std::string target,
      reward::OcrTarget(std::string(item.prompt), std::string(item.metadata_json), variant_));
  std::vector<std::string> read;
  for (const Image8& frame : item.frames) {
    OXBOW_ASSIGN_OR_RETURN(std::string text, reader_->Read(frame));
    read.push_back(std::move(text));
  }
  Score score{.note = absl::StrJoin(read, " | ")};
  // Lines are joined as flow_grpo joins what was read at different places.
  for (std::string& text : read) text = absl::StrReplaceAll(text, {{"\n", ""}});
  absl::StatusOr<double> value = item.is_video() ? reward::OcrVideoReward(target, read)
                                                 : reward::OcrReward(target, read.front());
  if (!value.ok()) return value.status();
  score.value = *value;
  return score;
}

std::vector<absl::StatusOr<Score>> OcrScorer::ScoreBatch(absl::Span<const Item> items) {
  std::vector<absl::StatusOr<Score>> scores(items.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < items.size(); i = next++) scores[i] = ScoreItem(items[i]);
  };
  std::vector<std::jthread> others;
  const size_t readers = std::min<size_t>(items.size(), reader_->engines());
  for (size_t i = 1; i < readers; ++i) others.emplace_back(work);
  work();
  others.clear();  // Joins them.
  return scores;
}

}  // namespace

absl::Status CheckReadable(const Image8& picture, int side_max) {
  if (io::IsValid(picture) && std::max(picture.width, picture.height) <= side_max) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "picture is not grey or RGB of 1 to ", side_max, " pixels a side: ", picture.width, " x ",
      picture.height, ", ", picture.channels, " channels, ", picture.pixels.size(), " bytes"));
}

absl::StatusOr<std::unique_ptr<reward::Scorer>> MakeOcr(const OcrSettings& settings,
                                                        std::unique_ptr<TextReader> reader) {
  OXBOW_ASSIGN_OR_RETURN(const OcrVariant variant, VariantNamed(settings.variant));
  reward::RewardFacts facts = FactsOf(settings, *reader);
  return std::make_unique<OcrScorer>(std::move(facts), variant, std::move(reader));
}

}  // namespace oxbow::rewards
