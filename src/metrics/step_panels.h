// SPDX-License-Identifier: Apache-2.0
// The charts of a step's numbers, in their order: the report draws those that a run has numbers for
// (io/report/panels.cc), and Grafana's dashboard "Training health" all (deploy/grafana/panels.py,
// which reads this file through tools/metric_names.py).
#pragma once

#include "metrics/step_metrics.h"

namespace oxbow::metric {

struct StepCurve {
  const char* label = nullptr;
  const StepMetric* number = nullptr;
  // In place of both: a curve for each value, which labels it. Such a chart has two of them or
  // more.
  const StepMetricFamily* each = nullptr;
};

enum class StepScale {
  kFree,
  kFromZero,
  kShare,         // 0 to 1.
  kSmall,         // Far below 1.
  kReward,        // Within the bounds of the run's reward, if it has bounds.
  kRewardChange,  // A reward, or a difference of two.
};

enum class StepChart {
  kUsual,
  kRare,        // Only some runs measure it.
  kZeroIsNews,  // Drawn also if it is 0 at every step: news of an error, and none of a cost.
};

struct StepPanel {
  const char* title;
  const char* unit;
  StepScale scale;
  StepCurve curves[4];  // The first without number and family ends them.
  const char* how_to_read;
  StepChart chart = StepChart::kUsual;
};

// clang-format off
using enum StepScale;
using enum StepChart;

// Does it learn, without cheating?
inline constexpr StepPanel kLearningPanels[] = {
    {"Held-out reward", "", kReward, {{"reward", &kEvalRewardMean}},
     "The figure that counts: prompts that are never trained on, sampled without noise. Flat "
     "while the training reward rises: prompts are learnt by heart."},
    {"Training reward", "mean of a step", kReward,
     {{"reward", &kTrainRewardMean}, {"chosen groups", &kTrainChosenRewardMean}},
     "Noisier and often lower than the held-out one, because samples explore. Chosen groups are "
     "those with a replayed start and those on prompts that were hard."},
    {"Each reward, held out", "", kReward, {{.each = &kEvalRewardNameMean}},
     "One that falls while the sum rises is paid for by the others."},
    {"Each reward, in training", "", kReward, {{.each = &kTrainRewardNameMean}},
     "Mean over the samples of a step, observed rewards among them."},
    {"Held-out reward by difficulty", "", kReward, {{.each = &kEvalByValueMean}},
     "The held-out prompts by what their metadata say (eval.by). A mean hides hard prompts "
     "that are never solved.", kRare},
    {"Groups without a signal", "share", kShare,
     {{"all rewards equal", &kTrainRewardZeroStdRatio},
      {"fresh groups, running mean", &kBufferNeed}},
     "A group whose pictures all score alike teaches nothing. Near 1 there is nothing left to "
     "learn from, or nothing to begin with."},
    {"Prompts by success", "prompts of training", kFromZero, {{.each = &kPromptsLevelN}},
     "By the mean share of the full reward in their latest group: 0 none, 1 to 4 up to 1/4, 1/2, "
     "3/4 and below 1, 5 all. Groups at 0 and 5 teach nothing."},
    {"Prompts solved since", "share", kShare, {{"share", &kPromptsSolvedShare}},
     "Of the prompts without a success in their first group that came again, those whose latest "
     "group has one.", kRare},
    {"Advantage", "mean of absolute values", kFromZero, {{"advantage", &kTrainAdvAbsMean}},
     "Around 0.8 when rewards spread within groups; it falls with the groups that have no signal."},
    {"Speckle", "0 to 1, lower is cleaner", kFromZero, {{"speckle", &kEvalSpeckleMean}},
     "How grey the pixels of held-out pictures are, which should be black and white. A "
     "rise is dust that the reward does not see and people do.", kRare},
    {"Saturated pixels", "share", kFromZero, {{"share", &kEvalSaturatedShare}},
     "Pixels of held-out pictures that are burnt out, black or of the strongest colour. It "
     "rises where light, contrast or colour please the reward.", kRare},
    {"Fine detail", "energy of the highest frequencies", kFromZero,
     {{"fine detail", &kEvalFineDetail}},
     "Noise, grain and grids that please the reward raise it. A fall is a picture that "
     "becomes smooth.", kRare},
    {"Sharpness", "contrast over one pixel by that over four", kFree,
     {{"sharpness", &kEvalSharpness}},
     "Blur lowers it; sharpened edges raise it. It does not depend on contrast.", kRare},
    {"Distance from the base model's pictures", "1 is that of two prompts", kFromZero,
     {{"distance", &kEvalBaseDistance}},
     "How far held-out pictures are from those of step 0, which had the same noise. Near 1 "
     "nothing of them is left."},
    {"Layouts", "share of the rarer one, at most 0.5", kFromZero,
     {{"rarer layout", &kEvalMinorityShare}},
     "Two layouts are equally right; at 0.5 both are drawn equally often. A fall towards 0 "
     "is mode collapse, which the reward does not show.", kRare},
    {"Variety within a group", "1 is black to white", kFromZero,
     {{"difference of pictures", &kTrainGroupDistanceMean},
      {"share of near duplicates", &kTrainDuplicateShareMean}},
     "How far pictures of one prompt differ. It falls while wrong pictures leave; towards 0 all "
     "pictures of a prompt become one."},
};

// Is the update healthy?
inline constexpr StepPanel kUpdatePanels[] = {
    {"Gradient norm", "before clipping", kFromZero, {{"norm", &kTrainGradNorm}},
     "A steady level is healthy. A rise to many times its usual value comes before a collapse."},
    {"Movement of the weights", "distance in a step", kFromZero, {{"distance", &kTrainUpdateNorm}},
     "How far a step moves the trained weights. It follows the learning rate."},
    {"Distance from the base model", "of the weights", kFromZero,
     {{"distance", &kTrainBaseDistance}},
     "How far training has moved the weights in all. It levels off as training settles; it goes "
     "on rising, with a reward that stands still, where weights only drift."},
    {"Learning rate", "", kSmall, {{"rate", &kTrainLr}},
     "Warm-up and decay as configured."},
    {"Clip fraction", "share of ratios clipped", kFromZero,
     {{"all", &kTrainClipFracTotal}, {"fresh", &kTrainClipFracFresh},
      {"stale", &kTrainClipFracStale}, {"replayed", &kTrainClipFracReplay}},
     "Low on fresh samples and higher on replayed ones is normal. A steady climb "
     "means that the steps are too large for the clip range.", kZeroIsNews},
    {"Clip fraction by side", "share of ratios clipped", kFromZero,
     {{"above", &kTrainClipFracHigh}, {"below", &kTrainClipFracLow},
      {"without gradient", &kTrainClipFracZeroGrad}},
     "Those without gradient are outside on the side that their advantage pushes to; over half of "
     "all rows is an alert."},
    {"Clip fraction by denoising step", "share of ratios clipped", kFromZero,
     {{.each = &kTrainClipFracStepN}},
     "0 is the noisiest. Late steps have the sharpest densities and clip first."},
    {"Log-prob by denoising step, drawn", "nat per element", kFree,
     {{.each = &kTrainLogProbDrawnStepN}},
     "Of fresh and stale samples. 0 is the noisiest step.", kRare},
    {"Log-prob by denoising step, replayed", "nat per element", kFree,
     {{.each = &kTrainLogProbReplayStepN}},
     "Steps from i_off on are not there: they were drawn again. A step that falls below the same "
     "step of drawn samples says how far the policy has left what is stored.", kRare},
    {"Moved within a step", "(log ratio)^2 / 2", kFromZero, {{"mean", &kTrainApproxKl}},
     "How far the updates of a step moved the policy. A sudden rise comes before a collapse."},
    {"Spread of surrogates in a group", "deviation over mean", kFromZero,
     {{"mean", &kTrainSurrogateCv}},
     "V-GRPO's stand-in for a log-prob. Times and noise that a group shares keep it small; what is "
     "left is noise of the ratios.", kRare},
    {"Weights of off-policy samples", "", kFromZero,
     {{"mean", &kTrainIwMean}, {"smallest", &kTrainIwMin}},
     "The correction for samples of older weights; 1 means that none is needed, near 0 they no "
     "longer count."},
    {"Effective off-policy samples", "samples", kFromZero, {{"effective", &kTrainIwEss}},
     "How many of the weighted samples still count.", kRare},
    {"On-policy ratio error", "|ratio - 1|", kSmall,
     {{"largest", &kTrainOnpolicyRatioErr}, {"allowed", &kTrainOnpolicyRatioLimit}},
     "Before the first update of fresh data the ratio must be 1, so 0 is right on "
     "CPUs. More than allowed: worker and learner disagree about the same step.", kZeroIsNews},
    {"Divergence from the base model", "per element", kFromZero,
     {{"KL", &kTrainKlDiv}, {"from the old policy", &kTrainOldKlDiv},
      {"from the policy before the step", &kTrainKlPrecedentDiv}},
     "How far the policy is from where it started. A sudden jump often comes just before a "
     "collapse.", kRare},
    {"Anchor", "squared difference of velocities", kFromZero,
     {{"to the base model", &kTrainAnchorDiv}},
     "How far the model has moved at the noise levels that the anchor holds. Fine strokes "
     "leave the base model as it rises.", kRare},
    {"Age of fresh samples", "learner steps", kFromZero,
     {{"mean", &kRolloutStalenessMean}, {"largest", &kRolloutStalenessMax}},
     "Steps between the weights that made a sample and the update that used it; never more than "
     "off_policy.staleness_max."},
    {"Age of replayed heads", "learner steps", kFromZero,
     {{"mean", &kBufferStalenessMean}, {"95th percentile", &kBufferStalenessP95}},
     "How long replayed starts had been in the buffer.", kRare},
    {"Replay buffer", "entries", kFromZero, {{"entries", &kBufferSize}},
     "The best trajectory of each prompt so far, one per prompt at most, until its "
     "capacity.", kRare},
    {"Reward in the replay buffer", "mean", kRewardChange,
     {{"stored", &kBufferRawRewardMean}, {"decayed", &kBufferPriorityMean}},
     "Entries are worth keeping while this is above the training reward.", kRare},
    {"Replayed again", "change of reward", kRewardChange,
     {{"new picture - stored one", &kTrainReplayRewardChange}},
     "Near 0 a replayed start still leads to a picture as good as the stored one.", kRare},
    {"Chosen groups", "groups", kFromZero,
     {{"trained", &kAdaptationGroupsTrained}, {"reused", &kAdaptationGroupsReused},
      {"hard ones again", &kAdaptationHardAgain}},
     "The groups that batch adaptation trains on in each step.", kRare},
};

// Where does the time go?
inline constexpr StepPanel kTimePanels[] = {
    {"Throughput", "images per second", kFromZero, {{"images/s", &kThroughputSamplesPerS}},
     "Images sampled, scored and trained on, over the time of the step."},
    {"Workers", "that drew a group of the step", kFromZero, {{"workers", &kRolloutWorkers}},
     "They may join and leave at any time."},
    {"Lost work", "groups since the start", kFromZero,
     {{"leases expired", &kRolloutLeasesExpired}, {"results discarded", &kRolloutGroupsDiscarded}},
     "Groups that were given out and did not come back in time, or came twice."},
    {"Communication between ranks", "seconds of a step", kFromZero,
     {{"in all", &kTrainCommunicationS}, {"stood still", &kTrainCommunicationExposedS}},
     "Time in all, less that for which a rank stood still, was hidden behind the backward "
     "pass.", kRare},
};
// clang-format on

}  // namespace oxbow::metric
