// SPDX-License-Identifier: Apache-2.0
#include "core/rl/method_facts.h"

#include "base/check.h"

namespace oxbow::rl {
namespace {

// Log-probs are means over latent elements, so ratios of a step stay near 1.
constexpr ClipLimits kStepRatio = {
    .max = 0.1,
    .rule =
        "must be in (0, 0.1]: log-probs are means over elements, so ratios differ from 1 by "
        "far less; 1e-4 to 1e-2 is usual",
    .usual_max = 0.01,
    .unusual =
        "above 0.01 nothing is clipped, because log-probs are means over elements; 1e-4 to "
        "1e-2 is usual"};

constexpr MethodFacts kMethods[] = {
    {.name = "grpo", .clip = kStepRatio},
    {.name = "guard", .clip = kStepRatio, .compares_means = true},
    {.name = "dppo",
     .ratio = RatioUse::kMasked,
     .clip = {.max = 0.1,
              .rule = "must be in (0, 0.1] for dppo: it is the divergence of means over 2 S^2 from "
                      "which a row is masked, not a range of ratios; 1e-5 is published"},
     .compares_means = true},
    {.name = "nft",
     .data = TrainedData::kFinalLatents,
     .ratio = RatioUse::kNone,
     .old_copy = OldCopy::kSamples},
    {.name = "awm",
     .data = TrainedData::kFinalLatents,
     .clip = {.max = 1,
              .rule = "must be in (0, 1] for awm, whose ratio is of a flow-matching loss; 1 clips "
                      "nothing"},
     .old_copy = OldCopy::kForItsPull,
     .pulls_to_old = true},
    {.name = "v_grpo",
     .data = TrainedData::kFinalLatents,
     .clip = {.min = 1e-4,
              .max = 1,
              .rule = "must be in [1e-4, 1] for v_grpo, whose ratio is of a whole image and not "
                      "of a step; 6e-3 to 1e-2 is usual"},
     .pulls_to_old = true,
     .compares_images = true,
     .whole_samples = true},
    {.name = "gspo", .clip = kStepRatio, .whole_samples = true},
};

}  // namespace

std::span<const MethodFacts> AllMethods() { return kMethods; }

const MethodFacts& FactsOf(MethodKind kind) {
  const auto place = static_cast<size_t>(kind);
  OXBOW_CHECK(place < std::size(kMethods)) << "method " << place;
  return kMethods[place];
}

}  // namespace oxbow::rl
