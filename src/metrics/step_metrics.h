// SPDX-License-Identifier: Apache-2.0
// The numbers of a learner step: every key of metrics.jsonl with its unit and its meaning.
//
// Code that writes or reads such a number uses the constant. Its name is the key in CamelCase:
//
//   numbers[metric::kTrainLoss] = loss;
//   numbers[metric::kTrainRewardNameMean.Of("digits_ocr")] = mean;
//
// tools/metric_names.py prints them as a table (`--print`), also for the site, and checks that no
// C++ file outside of tests spells a key, that every row is used, and that tests and scripts spell
// only keys that are here.
//
// `absent` says when a line has no such key; empty: a line has it if it has train/samples. Texts
// are Markdown. docs/formats.md defines fresh, stale and replayed samples, rows and ratios.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace oxbow::metric {

struct StepMetric {
  const char* name;
  const char* unit;
  const char* help;
  const char* absent = "";

  operator std::string() const { return name; }  // NOLINT: a key of a map, nothing else.
};

// One number for each value of a variable. The key is `before`, the value, `after`.
struct StepMetricFamily {
  std::string_view before;
  std::string_view variable;  // The placeholder of the value in documents.
  std::string_view after;
  const char* unit;
  const char* help;
  const char* absent = "";

  std::string Of(std::string_view value) const {
    return std::string(before).append(value).append(after);
  }
  // The value in a key of this form, nothing for another key.
  std::optional<std::string_view> ValueIn(std::string_view key) const {
    if (key.size() <= before.size() + after.size()) return std::nullopt;
    if (!key.starts_with(before) || !key.ends_with(after)) return std::nullopt;
    return key.substr(before.size(), key.size() - before.size() - after.size());
  }
};

// Evaluations are rarer than steps: readers keep these until the next one.
inline bool IsOfEvaluation(std::string_view key) { return key.starts_with("eval/"); }

// clang-format off
// The step and its times.
inline constexpr StepMetric kStep{"step", "steps", "committed learner steps", "never"};
inline constexpr StepMetric kTimeWallS{
    "time/wall_s", "s", "the run's time so far, earlier starts included", "never"};
inline constexpr StepMetric kTimeStepS{"time/step_s", "s", "sum of the phases", "never"};
inline constexpr StepMetricFamily kTimePhaseS{
    "time/", "PHASE", "_s", "s",
    "time of one phase of the step; the next nine rows are the phases",
    "the step had no such phase"};
inline constexpr StepMetric kTimePlanS{
    "time/plan_s", "s", "drawing replayed heads, choosing and encoding prompts",
    "nothing was left to plan"};
inline constexpr StepMetric kTimeWaitS{"time/wait_s", "s", "waiting for rollouts", "line 0"};
inline constexpr StepMetric kTimeRewardsS{
    "time/rewards_s", "s",
    "waiting for reward servers, none of which answers within `reward.timeout_seconds`; line 0: "
    "until each reward has scored a picture",
    "nobody waited for one"};
inline constexpr StepMetric kTimeUpdateS{
    "time/update_s", "s", "forward, backward, optimiser", "line 0"};
inline constexpr StepMetric kTimePublishS{
    "time/publish_s", "s", "hashing and announcing weights", "nothing was published"};
inline constexpr StepMetric kTimeOfferS{
    "time/offer_s", "s", "offers to the buffer and its step commit", "no buffer, line 0"};
inline constexpr StepMetric kTimeEvalS{
    "time/eval_s", "s", "evaluation", "no evaluation at this step"};
inline constexpr StepMetric kTimeCheckpointS{
    "time/checkpoint_s", "s",
    "waiting for the checkpoint before, and copying tensors to the host; writing is not in it",
    "none was due"};
inline constexpr StepMetric kTimeLogS{"time/log_s", "s", "metrics and sheets", "never"};
inline constexpr StepMetricFamily kTimeUnfinishedPhaseS{
    "time/unfinished_", "PHASE", "_s", "s",
    "time of one phase after this step, when the learner was stopped",
    "the learner was not stopped there, or by a kill"};
inline constexpr StepMetric kCheckpointCopiesFailed{
    "checkpoint/copies_failed", "count",
    "copies of checkpoints that failed since the learner's start", "no `checkpoint.copy_to`"};
inline constexpr StepMetric kThroughputSamplesPerS{
    "throughput/samples_per_s", "1/s", "`train/samples / time/step_s`", "line 0"};

// The data that was trained on.
inline constexpr StepMetric kTrainSamples{
    "train/samples", "count", "samples that arrived, failed ones included",
    "line 0, as all `train/` keys"};
inline constexpr StepMetric kTrainSamplesUnscored{
    "train/samples_unscored", "count",
    "samples of these without a score: a reward server answered and gave none"};
inline constexpr StepMetric kTrainSamplesTrained{
    "train/samples_trained", "count", "samples with weight above 0 in some row"};
inline constexpr StepMetric kTrainGroupsReplayed{
    "train/groups_replayed", "count", "groups with a replayed head"};
inline constexpr StepMetric kTrainGroupsBoundLate{
    "train/groups_bound_late", "count",
    "fresh groups of failures that were given their prompt's stored success",
    "`replay.late_binding: false`, line 0"};
inline constexpr StepMetric kTrainAddedSamples{
    "train/added_samples", "count",
    "stored successes beside the groups of the step (`replay.added`)", "the step had none"};
inline constexpr StepMetric kTrainAddedScale{
    "train/added_scale", "0 to 1",
    "factor of their advantages: their weights have a limit; 0: none was trained",
    "as `train/added_samples`"};
inline constexpr StepMetric kTrainRefilledGroups{
    "train/refilled_groups", "count",
    "groups made in place of groups whose rewards were all equal (`batch.dynamic_sampling_max`)"};
inline constexpr StepMetric kTrainRewardMean{
    "train/reward_mean", "reward",
    "mean of the weighted sum over samples whose reward did not fail, of fresh groups on the data "
    "set's next prompts, or on those that `prompts.choice: learnable` took; groups that others "
    "replaced are not in it; over all where a step has no such group"};
inline constexpr StepMetric kTrainChosenRewardMean{
    "train/chosen_reward_mean", "reward",
    "the same mean over the other groups: those with a replayed head, on prompts that were hard "
    "before, and reused ones",
    "no such group"};
inline constexpr StepMetric kTrainRewardStd{
    "train/reward_std", "reward", "standard deviation of the same"};
inline constexpr StepMetricFamily kTrainRewardNameMean{
    "train/reward_", "NAME", "_mean", "reward",
    "mean of one reward, unweighted; trained on or observed", "no sample has it"};
inline constexpr StepMetricFamily kTrainRewardNameStd{
    "train/reward_", "NAME", "_std", "reward",
    "standard deviation of the same; 0: it gives every picture the same number",
    "no sample has it"};
inline constexpr StepMetricFamily kTrainRewardNameFailed{
    "train/reward_", "NAME", "_failed", "count",
    "scored samples without this observed reward", "every sample has it"};
inline constexpr StepMetric kTrainRewardGroupStdMean{
    "train/reward_group_std_mean", "reward",
    "mean over groups of the standard deviation inside a group"};
inline constexpr StepMetric kTrainRewardZeroStdRatio{
    "train/reward_zero_std_ratio", "share",
    "groups with two scores or more whose rewards are all equal, diversity aside: they teach "
    "nothing",
    "no group has two scores"};
inline constexpr StepMetric kTrainReplayRewardChange{
    "train/replay_reward_change", "reward",
    "reward of the regenerated image minus that of the stored one", "no replayed sample"};
inline constexpr StepMetric kTrainGroupDistanceMean{
    "train/group_distance_mean", "1",
    "mean over samples of the mean RMS distance of an image to its group's others; black to white "
    "is 1"};
inline constexpr StepMetric kTrainDuplicateShareMean{
    "train/duplicate_share_mean", "share",
    "mean over samples of the part of its group within `method.diversity.radius`; 1: all alike"};
inline constexpr StepMetric kTrainAdvMin{
    "train/adv_min", "1",
    "smallest advantage of trained samples; of trees (`sampling.split_steps`) of trained edges"};
inline constexpr StepMetric kTrainAdvMax{
    "train/adv_max", "1", "largest advantage of trained samples; of trees of trained edges"};
inline constexpr StepMetric kTrainAdvAbsMean{
    "train/adv_abs_mean", "1",
    "mean absolute advantage of trained samples; of trees of trained edges"};
inline constexpr StepMetric kTrainStalenessMean{
    "train/staleness_mean", "steps",
    "mean of (version at the update - mean version that drew the sample's trained steps) / "
    "updates; samples with a head are not counted",
    "`rollout/staleness_mean` is the same number"};
inline constexpr StepMetric kTrainStalenessMax{
    "train/staleness_max", "steps", "largest of the same for one trained step",
    "`rollout/staleness_max` is the same number"};
inline constexpr StepMetric kTrainWindowFirst{
    "train/window_first", "step", "first stochastic step of fresh samples",
    "no step is stochastic"};
inline constexpr StepMetric kTrainWindowSteps{
    "train/window_steps", "steps", "number of stochastic steps of fresh samples"};

// Loss and optimiser.
inline constexpr StepMetric kTrainLoss{
    "train/loss", "1",
    "mean over updates: policy loss + `kl_weight` x divergence, and the other pulls"};
inline constexpr StepMetric kTrainPolicyLoss{"train/policy_loss", "1", "clipped surrogate"};
inline constexpr StepMetric kTrainKlDiv{
    "train/kl_div", "1",
    "divergence from the reference policy, unweighted", "`method.kl_weight` is 0"};
inline constexpr StepMetric kTrainKlPrecedentDiv{
    "train/kl_precedent_div", "1",
    "divergence from the policy before the step, unweighted", "`method.kl_precedent` is 0"};
inline constexpr StepMetric kTrainKlLoss{
    "train/kl_loss", "1",
    "`kl_weight` x divergence; with `kl_precedent` of both policies, by their shares",
    "`method.kl_weight` is 0"};
inline constexpr StepMetric kTrainOldKlDiv{
    "train/old_kl_div", "1", "divergence from the old policy, unweighted",
    "`method.old_kl_weight` is 0"};
inline constexpr StepMetric kTrainOldDecay{
    "train/old_decay", "share",
    "d of the running old policy's last move, old = d old + (1 - d) policy",
    "the method keeps no old policy"};
inline constexpr StepMetric kTrainAnchorDiv{
    "train/anchor_div", "1",
    "squared velocity difference to the reference at the anchor's levels, unweighted",
    "`method.anchor.weight` is 0"};
inline constexpr StepMetric kTrainGradNorm{
    "train/grad_norm", "1", "gradient norm before clipping, mean over updates"};
inline constexpr StepMetric kTrainGradRms{
    "train/grad_rms", "1",
    "root mean square of the gradient's elements after clipping, mean over updates; below "
    "`optimizer.epsilon` AdamW's steps shrink with the gradient",
    "no sample was trained"};
inline constexpr StepMetric kTrainUpdateNorm{
    "train/update_norm", "1", "Euclidean distance the trained parameters moved in this step"};
inline constexpr StepMetric kTrainBaseDistance{
    "train/base_distance", "1",
    "Euclidean distance of the policy's weights from the base model's; of LoRA, the length of what "
    "the adapter adds to them",
    "a full fine-tune without a reference, or with one that moves"};
inline constexpr StepMetric kTrainLr{"train/lr", "1", "learning rate at the start of the step"};
inline constexpr StepMetric kTrainRowsForward{
    "train/rows_forward", "rows",
    "rows that went through a network without gradient, on all ranks"};
inline constexpr StepMetric kTrainRowsBackward{
    "train/rows_backward", "rows", "rows that went forward and backward, on all ranks"};
inline constexpr StepMetric kTrainCommunicationS{
    "train/communication_s", "s",
    "part of `time/update_s` in which some operation between ranks was under way, as rank 0 saw "
    "it, waiting for later ranks included",
    "one rank"};
inline constexpr StepMetric kTrainCommunicationExposedS{
    "train/communication_exposed_s", "s",
    "the part of it for which rank 0 stood still; the rest was overlapped with the backward pass",
    "one rank"};

// Ratios, clip and weights.
inline constexpr StepMetric kTrainRatioMean{
    "train/ratio_mean", "1", "mean policy ratio over all rows of all updates",
    "no row was trained"};
inline constexpr StepMetric kTrainRatioStd{
    "train/ratio_std", "1", "standard deviation of the same", "no row"};
inline constexpr StepMetric kTrainRatioMin{"train/ratio_min", "1", "smallest of them", "no row"};
inline constexpr StepMetric kTrainRatioMax{"train/ratio_max", "1", "largest of them", "no row"};
inline constexpr StepMetric kTrainApproxKl{
    "train/approx_kl", "nat per element", "mean of (log ratio)^2 / 2", "no row"};
inline constexpr StepMetric kTrainClipFracTotal{
    "train/clip_frac_total", "share", "rows outside the clip range, either side", "no row"};
inline constexpr StepMetric kTrainClipFracHigh{
    "train/clip_frac_high", "share", "rows above the range", "no row"};
inline constexpr StepMetric kTrainClipFracLow{
    "train/clip_frac_low", "share", "rows below the range", "no row"};
inline constexpr StepMetric kTrainClipFracZeroGrad{
    "train/clip_frac_zero_grad", "share",
    "rows that the clip silences: outside, on the side the advantage pushes to", "no row"};
inline constexpr StepMetric kTrainClipFracFresh{
    "train/clip_frac_fresh", "share", "clipped rows among those of fresh samples", "no such row"};
inline constexpr StepMetric kTrainClipFracStale{
    "train/clip_frac_stale", "share", "clipped rows among those of stale samples", "no such row"};
inline constexpr StepMetric kTrainClipFracReplay{
    "train/clip_frac_replay", "share", "clipped rows among those of replayed samples",
    "no such row"};
inline constexpr StepMetricFamily kTrainClipFracStepN{
    "train/clip_frac_step_", "N", "", "share",
    "clipped rows among those of denoising step N, 0 the noisiest", "no such row"};
inline constexpr StepMetric kTrainSurrogateCv{
    "train/surrogate_cv", "1",
    "standard deviation over mean of the surrogates of a group's samples, before the step's first "
    "update; mean over groups",
    "the method is not `v_grpo`"};
inline constexpr StepMetricFamily kTrainLogProbDrawnStepN{
    "train/log_prob_drawn_step_", "N", "", "nat per element",
    "mean log-prob, by the weights before the step, of denoising step N of fresh and stale samples",
    "no such row"};
inline constexpr StepMetricFamily kTrainLogProbReplayStepN{
    "train/log_prob_replay_step_", "N", "", "nat per element",
    "the same of the stored steps of replayed samples, which end before i_off", "no such row"};
inline constexpr StepMetric kTrainOnpolicyRatioErr{
    "train/onpolicy_ratio_err", "1",
    "largest abs(ratio - 1) of on-policy rows in the first update; exactly 0 on CPUs, rounding on "
    "GPUs and with `model.lora.merge_for_rollouts`",
    "no such row"};
inline constexpr StepMetric kTrainOnpolicyRatioLimit{
    "train/onpolicy_ratio_limit", "1",
    "what `train/onpolicy_ratio_err` may be: half the clip range where the clip's centre is the "
    "worker's log-prob; at least ten times the rounding of the device where it is recomputed",
    "as `train/onpolicy_ratio_err`"};
inline constexpr StepMetric kTrainIwMean{
    "train/iw_mean", "1", "mean weight W of off-policy samples (replayed and stale)",
    "no weighted sample"};
inline constexpr StepMetric kTrainIwMin{
    "train/iw_min", "1", "smallest of them", "no weighted sample"};
inline constexpr StepMetric kTrainIwMax{
    "train/iw_max", "1", "largest of them", "no weighted sample"};
inline constexpr StepMetric kTrainIwEss{
    "train/iw_ess", "samples", "effective number of them, (sum W)^2 / sum W^2",
    "no weighted sample"};
inline constexpr StepMetric kTrainIwTruncFrac{
    "train/iw_trunc_frac", "share", "weighted samples whose W met the cap", "no weighted sample"};

// The workers' part in the step.
inline constexpr StepMetric kRolloutStalenessMean{
    "rollout/staleness_mean", "steps",
    "mean number of learner steps between the weights of a fresh sample and its update", "line 0"};
inline constexpr StepMetric kRolloutStalenessMax{
    "rollout/staleness_max", "steps", "largest of the same", "line 0"};
inline constexpr StepMetric kRolloutInFlightShare{
    "rollout/in_flight_share", "share",
    "fresh samples that more than one version of the weights drew "
    "(`off_policy.in_flight_updates`)",
    "line 0"};
inline constexpr StepMetric kRolloutWorkers{
    "rollout/workers", "count", "workers that drew a group of this step", "line 0"};
inline constexpr StepMetric kRolloutBatches{
    "rollout/batches", "count", "denoising batches they drew them in", "line 0"};
inline constexpr StepMetric kRolloutSamples{
    "rollout/samples", "count",
    "samples that workers made for this step, those of replaced groups included",
    "line 0, or `train/samples` is the same number"};
inline constexpr StepMetric kRolloutRowsForward{
    "rollout/rows_forward", "rows",
    "rows that workers sent through the network for `rollout/samples`", "line 0"};
inline constexpr StepMetric kRolloutLatentBytes{
    "rollout/latent_bytes", "bytes", "latents that workers sent of `rollout/samples`", "line 0"};
inline constexpr StepMetric kRolloutSampleS{
    "rollout/sample_s", "s",
    "seconds of those batches, summed; a batch that other steps share counts in full", "line 0"};
inline constexpr StepMetric kRolloutRewardSMean{
    "rollout/reward_s_mean", "s",
    "mean over groups of the time from asking for the scores to the last score", "line 0"};
inline constexpr StepMetric kRolloutLeasesExpired{
    "rollout/leases_expired", "count", "leases that ran out since the learner started", "line 0"};
inline constexpr StepMetric kRolloutLeasesSpeculated{
    "rollout/leases_speculated", "count",
    "second leases of stragglers since the learner started", "line 0"};
inline constexpr StepMetric kRolloutLeasesSuperseded{
    "rollout/leases_superseded", "count",
    "leases ended since the learner started because the group's other lease was first", "line 0"};
inline constexpr StepMetric kRolloutGroupsDiscarded{
    "rollout/groups_discarded", "count",
    "results refused or undelivered since the learner started: work thrown away", "line 0"};

// The replay buffer.
inline constexpr StepMetric kBufferAttached{
    "buffer/attached", "0 or 1", "1: the replay buffer answers",
    "`replay.fraction: 0` without adaptation, line 0"};
inline constexpr StepMetric kBufferNeed{
    "buffer/need", "share",
    "running mean of the share of fresh groups without a signal, which `replay.by_need` follows",
    "as `buffer/attached`"};
inline constexpr StepMetric kBufferOffers{
    "buffer/offers", "count", "entries offered by this step", "as `buffer/attached`"};
inline constexpr StepMetric kBufferHeadsFailed{
    "buffer/heads_failed", "count",
    "heads of this step whose regenerated image is worse than the stored one was, and no better "
    "than the mean of its group's fresh samples",
    "as `buffer/attached`"};
inline constexpr StepMetric kBufferSize{
    "buffer/size", "entries", "live entries",
    "as `buffer/attached`, and while the buffer is away"};
inline constexpr StepMetric kBufferRawRewardMean{
    "buffer/raw_reward_mean", "reward", "mean reward of live entries", "as `buffer/size`"};
inline constexpr StepMetric kBufferPriorityMean{
    "buffer/priority_mean", "reward", "the same, decayed", "as `buffer/size`"};
inline constexpr StepMetric kBufferAgeMean{
    "buffer/age_mean", "steps", "mean age of live entries", "as `buffer/size`"};
inline constexpr StepMetricFamily kBufferOffersOutcome{
    "buffer/offers_", "OUTCOME", "", "count",
    "offers since the buffer's process began; OUTCOME as in `replay_buffer.proto`: "
    "`OFFER_OUTCOME_INSERTED`, `_REPLACED`, `_REJECTED_LOWER`, `_DUPLICATE`, `_REJECTED_INVALID`",
    "as `buffer/size`"};
inline constexpr StepMetric kBufferStalenessMean{
    "buffer/staleness_mean", "steps", "mean age of the heads used by this step",
    "no head was used"};
inline constexpr StepMetric kBufferStalenessP95{
    "buffer/staleness_p95", "steps", "95th percentile of the same", "no head was used"};
inline constexpr StepMetric kBufferHeadsOtherWindow{
    "buffer/heads_other_window", "count",
    "those of the heads that were drawn under another window of stochastic steps",
    "no head was used"};
inline constexpr StepMetric kBufferReuseMean{
    "buffer/reuse_mean", "uses", "mean uses of those heads, this one included", "no head was used"};
inline constexpr StepMetric kBufferHeadsRefused{
    "buffer/heads_refused", "count",
    "entries that were drawn since the learner started and do not fit the run or the step's window",
    "no buffer, line 0"};
inline constexpr StepMetricFamily kBufferTable{
    "buffer/", "TABLE", "", "entries",
    "entries of a queue of an adapted run: `buffer/hard_prompts`, `buffer/recent_groups`",
    "adaptation is off; the buffer is away; a queue that is not used"};

// Batch adaptation.
inline constexpr StepMetric kAdaptationFilteredShare{
    "adaptation/filtered_share", "share",
    "fresh groups that were left out: nearly all right or wrong",
    "adaptation is off, line 0; as all of `adaptation/`"};
inline constexpr StepMetric kAdaptationFreshRewardMean{
    "adaptation/fresh_reward_mean", "reward",
    "mean over fresh groups, left out or not; `train/reward_mean` is of the groups that are "
    "trained",
    "as above"};
inline constexpr StepMetric kAdaptationHardAgain{
    "adaptation/hard_again", "groups", "groups of prompts that waited and were sampled again",
    "as above"};
inline constexpr StepMetric kAdaptationHardKept{
    "adaptation/hard_kept", "groups", "those of them that were trained", "as above"};
inline constexpr StepMetric kAdaptationGroupsReused{
    "adaptation/groups_reused", "groups", "trained groups of earlier steps", "as above"};
inline constexpr StepMetric kAdaptationGroupsTrained{
    "adaptation/groups_trained", "groups", "trained groups in all", "as above"};
inline constexpr StepMetric kAdaptationReuseMin{
    "adaptation/reuse_min", "reward", "lowest mean with which a group could be used again",
    "as above"};
inline constexpr StepMetric kAdaptationReuseMax{
    "adaptation/reuse_max", "reward", "highest mean with which a group could be used again",
    "as above"};

// Training prompts (core/rl/prompt_progress.h).
inline constexpr StepMetric kPromptsSeen{
    "prompts/seen", "prompts", "training prompts of which a group was seen so far",
    "line 0; as all of `prompts/`"};
inline constexpr StepMetric kPromptsSolvedShare{
    "prompts/solved_share", "share",
    "of the prompts whose first group had no success and that were seen again, those whose latest "
    "group has one",
    "there are none"};
inline constexpr StepMetricFamily kPromptsLevelN{
    "prompts/level_", "N", "", "prompts",
    "prompts whose latest group is at level N: its mean share of the full reward is 0 (N 0), up to "
    "1/4, 1/2, 3/4, below 1 (N 1 to 4), or 1 (N 5)",
    "as `prompts/seen`"};
inline constexpr StepMetricFamily kPromptsMovedAB{
    "prompts/moved_", "A_B", "", "prompts",
    "prompts whose first group was at level A and whose latest is at B; all add up to "
    "`prompts/seen`",
    "there are none"};

// Evaluation on held-out prompts.
inline constexpr StepMetric kEvalRewardMean{
    "eval/reward_mean", "reward",
    "weighted sum, mean over those of `eval.images` held-out samples that have a score; ODE "
    "sampler, averaged weights if `eval.use_ema`",
    "no evaluation at this step, or it failed"};
inline constexpr StepMetricFamily kEvalRewardNameMean{
    "eval/reward_", "NAME", "_mean", "reward",
    "one reward, over the samples that have it", "as above, or no sample has it"};
inline constexpr StepMetricFamily kEvalRewardNameFailed{
    "eval/reward_", "NAME", "_failed", "count",
    "held-out samples without this observed reward", "every sample has it"};
inline constexpr StepMetric kEvalSamplesUnscored{
    "eval/samples_unscored", "count",
    "held-out samples without a score: a reward server answered and gave none; means are over the "
    "others",
    "as `eval/reward_mean`"};
inline constexpr StepMetric kEvalFailed{
    "eval/failed", "1", "the evaluation of this step gave no number: `failed.json` beside its "
    "pictures says why",
    "it gave its numbers, or there was none"};
inline constexpr StepMetricFamily kEvalByValueMean{
    "eval/by_", "VALUE", "_mean", "reward",
    "mean reward of the held-out prompts whose metadata have this value of `eval.by`",
    "as `eval/reward_mean`, or `eval.by` is empty"};
inline constexpr StepMetric kEvalSpeckleMean{
    "eval/speckle_mean", "0 to 1", "mean of 1 - abs(x), x in [-1, 1]: grey dust",
    "as `eval/reward_mean`, or no reward is of a task whose pictures are black and white"};
inline constexpr StepMetric kEvalMinorityShare{
    "eval/minority_share", "0 to 0.5", "share of the rarer of two equally right layouts",
    "as `eval/reward_mean`, or no reward says which layout a picture has (`digits_row` does)"};
inline constexpr StepMetric kEvalSaturatedShare{
    "eval/saturated_share", "share",
    "pixels of held-out pictures with a channel at 0 or 255, or with channels that differ by half "
    "of the range",
    "as `eval/reward_mean`, or the line has `eval/speckle_mean`"};
inline constexpr StepMetric kEvalSaturatedShareStd{
    "eval/saturated_share_std", "share", "standard deviation of it over the pictures",
    "as `eval/saturated_share`"};
inline constexpr StepMetric kEvalFineDetail{
    "eval/fine_detail", "0 to 1",
    "energy of the highest frequencies: root mean square of luma less the mean of its four "
    "neighbours, mean over the pictures",
    "as `eval/saturated_share`"};
inline constexpr StepMetric kEvalFineDetailStd{
    "eval/fine_detail_std", "0 to 1", "standard deviation of it over the pictures",
    "as `eval/saturated_share`"};
inline constexpr StepMetric kEvalSharpness{
    "eval/sharpness", "1",
    "change of luma over one pixel by that over four, root mean squares: 0.25 of a ramp, 1 of "
    "white noise; mean over the pictures",
    "as `eval/saturated_share`"};
inline constexpr StepMetric kEvalSharpnessStd{
    "eval/sharpness_std", "1", "standard deviation of it over the pictures",
    "as `eval/saturated_share`"};
inline constexpr StepMetric kEvalBaseDistance{
    "eval/base_distance", "1",
    "mean distance of a held-out picture to that of the same noise at step 0, both at 32 x 32 "
    "pixels, by the mean distance between two pictures of step 0: 1 is as far as another prompt's",
    "as `eval/reward_mean`; step 0 was not evaluated, or with other prompts"};
// clang-format on

}  // namespace oxbow::metric
