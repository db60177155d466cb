// SPDX-License-Identifier: Apache-2.0
// The experience that a learner step trains on: groups of sampled trajectories, as tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "core/model/velocity_model.h"
#include "core/parallel/share.h"

namespace oxbow::rl {

// One trajectory. Steps are numbered in sampling order; x_0 is the noisiest latent.
struct Trajectory {
  uint32_t index = 0;  // Member of its group.
  at::Tensor latents;  // [n + 1, C, H, W] float32: x_{first_latent} .. ; at least
                       // up to the successor of the last trained step.
  int first_latent = 0;
  std::vector<float> log_prob;              // [T] under the behaviour policy; 0 where not sde.
  std::vector<bool> sde;                    // [T]
  std::vector<uint64_t> behaviour_version;  // [T]
  std::map<std::string, double> rewards;
  double reward = 0;
  bool reward_failed = false;
  double group_distance = 0;   // Mean RMS of its image to the group's others; see likeness.h.
  double duplicate_share = 1;  // Share of its group that has nearly this image.

  // Replayed head: transitions 0 .. kept_steps - 1 come from the buffer, the rest was regenerated.
  bool replayed = false;
  EntryId entry_id;
  int kept_steps = 0;
  double stored_reward = 0;
};

struct Group {
  GroupId id;
  PromptId prompt_id;
  std::string prompt_text;
  std::string prompt_metadata_json;
  model::Conditioning conditioning;  // Rows of one.
  std::vector<Trajectory> trajectories;
  // Its prompt is the data set's next one, and all its samples are fresh: no choice of what was
  // solved or failed before is in its rewards.
  bool from_data_set = true;
  // Set: it is a stored success that trains beside the step's groups, against this rate of success
  // (training_plan.h). Such a group has one sample, or none where the buffer had no more.
  std::optional<double> success_rate;
  // The rank that has its latents; none: that of its place among the step's groups.
  std::optional<int> holder;
};

// The rank that has the latents of each group.
inline std::vector<int> HoldersOf(const std::vector<Group>& groups, int ranks) {
  std::vector<int> holders(groups.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const parallel::Share share = parallel::ShareOf(groups.size(), rank, ranks);
    for (size_t g = share.begin; g < share.end; ++g) holders[g] = groups[g].holder.value_or(rank);
  }
  return holders;
}

}  // namespace oxbow::rl
