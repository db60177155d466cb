// SPDX-License-Identifier: Apache-2.0
// Draws held-out prompts by the plain ODE and has the reward servers score them: the number a run
// is judged by. An image may be a video. Its size may be another than that of training. Every
// evaluation starts from the same noise.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/flow/dynamics.h"
#include "core/model/image_decoder.h"
#include "core/model/velocity_model.h"
#include "io/evaluation_file.h"
#include "io/film.h"
#include "oxbow/v1/config.pb.h"
#include "services/learner/conditioning_cache.h"
#include "services/reward/reward_client.h"

namespace oxbow::learner {

// Held-out pictures start from noises of their own: the group of prompt i is this plus i. Groups of
// training count from 0.
inline constexpr uint64_t kEvaluationGroups = uint64_t{1} << 63;

struct EvaluationResult {
  std::map<std::string, double> metrics;  // "eval/reward_mean", "eval/strict_mean", ...
  io::Film sheet;                         // The first samples; see Evaluation::Run.
  std::string caption;
  std::vector<io::EvaluatedPicture> pictures;  // All samples; those on the sheet first.
};

// Owned by the thread that owns torch.
class Evaluation {
 public:
  struct Options {
    uint32_t images = 128;
    uint32_t sheet_images = 64;
    std::string by;  // Metadata key of prompts whose values get means of their own; empty: none.
    std::vector<double> sigmas;  // The ODE's noise levels.
    flow::SolverKind solver = flow::SolverKind::kEuler;
    std::vector<int64_t> latent_shape;
    int64_t at_once = 64;  // Samples that are drawn together; changes no result.
    uint64_t seed = 0;
    v1::RewardConfig reward;       // Its terms are trained on.
    at::Device device = at::kCPU;  // Where the network is.
  };

  // `prompts`: held out, not empty; taken in turn until `images` are drawn.
  Evaluation(Options options, std::vector<v1::Prompt> prompts, ConditioningCache& conditioning,
             const model::ImageDecoder& decoder, reward::RewardClient& rewards);

  // An error if an image could not be scored: the mean of fewer images is another number. An
  // observed reward that failed is missing from its own mean, and counted. Ends at
  // the first image without a score; kUnavailable if no reward server answers or scoring takes
  // longer than kScoringMax; kCancelled once `rewards` is cancelled or Cancel was called.
  //
  // The pictures on the sheet are framed by right and wrong, once one was right in full. Rewards
  // without a full value (HasFullReward) know no right and wrong.
  absl::StatusOr<EvaluationResult> Run(const model::VelocityModel& model);

  // Ends the drawing of a running evaluation after the forward pass under way; all later ones, too.
  // From any thread. Scoring ends with reward::RewardClient::Cancel.
  void Cancel() { cancelled_ = true; }

  static constexpr absl::Duration kScoringMax = absl::Minutes(30);

 private:
  using Samples = std::vector<std::vector<Image8>>;  // The frames of each.

  // What the scorers said of one image.
  struct Verdict {
    reward::Scores scores;
    double reward = 0;   // Weighted sum.
    bool right = false;  // The reward is full: that of an image whose every term scores 1.
  };

  absl::StatusOr<Samples> Draw(const model::VelocityModel& model);
  absl::StatusOr<std::vector<Verdict>> Score(const Samples& images);
  absl::Status ScorePrompt(uint32_t prompt, const Samples& images, absl::Duration limit,
                           std::vector<Verdict>& verdicts);
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
  ConditioningCache& conditioning_;
  const model::ImageDecoder& decoder_;
  reward::RewardClient& rewards_;
  std::atomic<bool> cancelled_ = false;
  bool any_right_ = false;  // Whether a sample was right so far.
};

}  // namespace oxbow::learner
