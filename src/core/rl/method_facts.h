// SPDX-License-Identifier: Apache-2.0
// The facts of each method, for everyone who would ask by its name: one row per method.
//
// The table needs no torch, so that the rules of a config can read it. The class behind a row is in
// method_table.cc.
#pragma once

#include <span>

namespace oxbow::rl {

// Every method, in the order of v1::MethodName. A kind is the place of its row.
enum class MethodKind { kGrpo, kGuard, kDppo, kNft, kAwm, kVGrpo, kGspo };

// The data that a method trains on, and that a rollout worker therefore sends.
enum class TrainedData {
  kTransitions,   // Sampled transitions, scored by their log-probs: the sampler must be stochastic.
  kFinalLatents,  // The finished image: of a fresh trajectory, x_T travels and nothing else.
};

// A method's use of the ratio of the trained policy to the policy before the learner step.
enum class RatioUse { kNone, kClipped, kMasked };

// When the policy keeps an old copy that follows it slowly (policy_copies.h).
enum class OldCopy {
  kNever,
  kForItsPull,  // Where the config pulls towards it (method.old_kl_weight > 0) or samples with it.
  kSamples,     // Always: rollouts are sampled with it.
};

// Lower end of the noise levels of the pull to the reference (method.anchor).
inline constexpr double kAnchorLow = 0.02;

// The sane range of method.clip_range, and of clip_range_high where it is set: above 0, at least
// `min` and at most `max`.
struct ClipLimits {
  double min = 0;
  double max = 0;            // 0: nothing is clipped, and any value will do.
  const char* rule = "";     // "must be ...": what to say of a value outside.
  double usual_max = 0;      // A larger value gets a warning; 0: none does.
  const char* unusual = "";  // Text of the warning.
};

struct MethodFacts {
  const char* name;  // In method.name, and of the method's own section where it has one.
  TrainedData data = TrainedData::kTransitions;
  RatioUse ratio = RatioUse::kClipped;
  ClipLimits clip;
  OldCopy old_copy = OldCopy::kNever;
  // Its loss has the pull towards an old policy that method.old_kl_weight weighs.
  bool pulls_to_old = false;
  // It compares the means of Gaussian steps with those of the policy before the update.
  bool compares_means = false;
  // It compares the images of a group, which should share times and noises.
  bool compares_images = false;
  // A row's loss depends on the other rows of its sample, which go through one backward pass.
  bool whole_samples = false;

  bool trains_final_latents() const { return data == TrainedData::kFinalLatents; }
  bool needs_density() const { return data == TrainedData::kTransitions; }
};

// All rows.
std::span<const MethodFacts> AllMethods();

const MethodFacts& FactsOf(MethodKind kind);

}  // namespace oxbow::rl
