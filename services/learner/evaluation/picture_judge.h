// SPDX-License-Identifier: Apache-2.0
// Has the reward servers score held-out pictures: the number a run is judged by. It sees all
// pictures of an evaluation, so no number depends on who drew them.
#pragma once

#include <atomic>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "io/evaluation_file.h"
#include "io/film.h"
#include "io/picture_file.h"
#include "oxbow/v1/config.pb.h"
#include "oxbow/v1/coordinator.pb.h"
#include "services/reward/reward_client.h"

namespace oxbow::learner {

struct EvaluationResult {
  std::map<std::string, double> metrics;  // "eval/reward_mean", "eval/reward_NAME_mean", ...
  io::Film sheet;                         // The first samples; see PictureJudge::Judge.
  std::string caption;
  std::vector<io::EvaluatedPicture> pictures;  // All samples; those on the sheet first.
  std::vector<Image8> small;                   // As SmallPictures makes them.
  std::vector<io::PictureFile> files;          // Pictures on the sheet, and films.
};

// One call at a time. Uses no torch.
class PictureJudge {
 public:
  struct Options {
    uint64_t seed = 0;  // The run's, which all keys have.
    uint32_t sheet_images = 64;
    std::string by;  // Metadata key of prompts whose values get means of their own; empty: none.
    v1::RewardConfig reward;  // Its terms are trained on.
  };

  // `prompts`: held out, not empty.
  PictureJudge(Options options, std::vector<v1::Prompt> prompts, reward::RewardClient& rewards);

  // Judges these pictures: the frames of each, in the order of their places (held_out_pictures.h).
  //
  // Means are over the images that have a score. Those to which a reward server answered without
  // one are counted, and shown; kFailedPrecondition once they are more than
  // UnscoredGuard::kShareMax of all. An observed reward that failed is missing from its own mean,
  // and counted. kUnavailable if no reward server answers or scoring takes longer than kScoringMax;
  // kCancelled once `rewards` is cancelled.
  //
  // The pictures on the sheet are framed by right and wrong, once one was right in full. Rewards
  // without a full value (HasFullReward) know no right and wrong.
  absl::StatusOr<EvaluationResult> Judge(const std::vector<std::vector<Image8>>& images);

  static constexpr absl::Duration kScoringMax = absl::Minutes(30);

 private:
  using Samples = std::vector<std::vector<Image8>>;  // The frames of each.

  // The scorers' verdict on one image.
  struct Verdict {
    absl::Status unscored;  // Why it has no score.
    reward::Scores scores;
    double reward = std::numeric_limits<double>::quiet_NaN();  // Weighted sum.
    bool right = false;  // The reward is full: that of an image whose every term scores 1.
  };

  absl::StatusOr<std::vector<Verdict>> Score(const Samples& images);
  // Adds the images without a score to `unscored`.
  absl::Status ScorePrompt(uint32_t prompt, const Samples& images, absl::Duration limit,
                           std::vector<Verdict>& verdicts, std::atomic<size_t>& unscored);
  std::map<std::string, double> MetricsOf(const std::vector<Verdict>& verdicts) const;
  void AddMeansByValue(const std::vector<Verdict>& verdicts,
                       std::map<std::string, double>& metrics) const;
  io::Film SheetOf(const Samples& images, const std::vector<Verdict>& verdicts) const;
  std::vector<io::EvaluatedPicture> PicturesOf(const Samples& images,
                                               const std::vector<Verdict>& verdicts) const;
  // Whether every term says of itself that it goes from 0 to 1.
  bool HasFullReward() const;
  Verdict VerdictOf(reward::Scores scores) const;

  const Options options_;
  const std::vector<v1::Prompt> prompts_;
  const std::vector<std::string> values_;  // Each prompt's value of `by`; empty: none.
  reward::RewardClient& rewards_;
  bool any_right_ = false;  // Whether a sample was right so far.
};

}  // namespace oxbow::learner
