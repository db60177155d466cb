// SPDX-License-Identifier: Apache-2.0
#include "services/learner/evaluation/held_out_pictures.h"

#include <ATen/ATen.h>

#include "base/status_macros.h"

namespace oxbow::learner {

flow::NoiseKey HeldOutKeyOf(uint64_t run_seed, size_t place, size_t prompts) {
  return {.run_seed = run_seed,
          .group = kEvaluationGroups + place % prompts,
          .sample = static_cast<uint32_t>(place / prompts)};
}

absl::StatusOr<HeldOutPictures> HeldOutPictures::Of(const std::vector<v1::Prompt>& prompts,
                                                    size_t images, size_t together,
                                                    ConditioningCache& conditioning) {
  HeldOutPictures pictures;
  for (size_t place = 0; place < images; ++place) {
    if (place % together == 0) {
      pictures.leases.emplace_back().set_first_place(static_cast<uint32_t>(place));
    }
    OXBOW_ASSIGN_OR_RETURN(const ConditioningCache::Entry* entry,
                           conditioning.Get(prompts[place % prompts.size()]));
    const flow::NoiseKey key = HeldOutKeyOf(/*run_seed=*/0, place, prompts.size());
    v1::Lease::Picture& picture = *pictures.leases.back().add_pictures();
    picture.mutable_conditioning()->set_sha256(entry->sent.sha256);
    picture.mutable_conditioning()->set_bytes(entry->sent.bytes->size());
    picture.set_noise_group(key.group);
    picture.set_noise_sample(key.sample);
    if (place < prompts.size()) pictures.conditioning.push_back(entry->sent.bytes);
  }
  return pictures;
}

}  // namespace oxbow::learner
