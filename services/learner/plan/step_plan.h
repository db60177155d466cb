// SPDX-License-Identifier: Apache-2.0
// The groups that one learner step will train on: U of distinct prompts, some with a replayed head.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "oxbow/v1/common.pb.h"
#include "services/learner/plan/prompt_order.h"

namespace oxbow::learner {

// The stored part of a mixed group: an entry of the replay buffer from its first stochastic step,
// cut after kept_steps transitions.
struct ReplayedHead {
  EntryId entry;
  uint32_t shard = 0;  // The shard of the buffer that holds the entry.
  v1::Prompt prompt;
  uint32_t kept_steps = 0;  // i_off
  // It is a complete sample: no worker generates its tail, and its first picture's rewards count.
  bool whole = false;
  double stored_reward = 0;   // The reward of the entry's first picture.
  uint64_t age = 0;           // Steps since birth.
  uint64_t uses = 0;          // Earlier steps that replayed it.
  bool other_window = false;  // Its stochastic steps are not those of the learner step.
  v1::Trajectory trajectory;  // As stored; its latents x_first .. x_{i_off} with bytes.
};

// A prompt's conditioning as it travels, shared by all that hold it.
struct SentConditioning {
  std::string sha256;
  std::shared_ptr<const std::string> bytes;  // A serialised v1::Conditioning; null: none yet.
};

struct PlannedGroup {
  GroupId id;
  uint32_t place = 0;  // Index among the U groups of the step; decides which rank holds it.
  LearnerStep step;
  v1::Prompt prompt;
  SentConditioning conditioning;
  std::optional<ReplayedHead> head;  // Set for a mixed group.
  bool late = false;                 // The head came after the samples, which are all fresh.
  // Set for a stored success beside the step's groups: nothing was sampled for it, and its head, if
  // the buffer had one, is judged against this rate.
  std::optional<double> success_rate;
  std::optional<EntryId> waited;  // Set where the prompt waited in `hard_prompts`: its entry there.
  std::vector<bool> sde;          // The step's window, T flags; empty: all that may be stochastic.
};

// A prompt that waits in the table `hard_prompts`.
struct WaitingPrompt {
  EntryId entry;
  v1::Prompt prompt;
};

struct StepPlan {
  LearnerStep step;
  std::vector<PlannedGroup> groups;  // U, by id; conditioning still empty.
  PromptPosition before;  // Where the prompt order stood: a resumed run plans again from here.
};

// Gives groups of step `step` the drawn heads, evenly spread, so that ranks get equal shares; the
// next places the prompts that waited, and the others the next prompts of the order. All prompts
// are distinct: if two heads or waiting prompts have the same one, the first is taken. At most
// `groups` heads and waiting prompts are taken. All groups are sampled with the step's window
// (flow::WindowAt) `sde`. A step reserves `dynamic_sampling_max` more ids than it has groups.
StepPlan PlanStep(LearnerStep step, uint32_t groups, std::vector<ReplayedHead> heads,
                  PromptOrder& order, const std::vector<bool>& sde = {},
                  uint32_t dynamic_sampling_max = 0, std::vector<WaitingPrompt> waiting = {});

// Plans groups without a head in the places `wanted` of a step's groups `now`. Their prompts are
// new to the step (`taken` holds those it has had, and grows) and come in the order of
// PromptOrder::TakeExtra. `made` of `dynamic_sampling_max` groups have been made before. Returns as
// many groups as there are ids and prompts for.
std::vector<PlannedGroup> PlanRefill(const std::vector<PlannedGroup>& now,
                                     const std::vector<size_t>& wanted, uint32_t made,
                                     uint32_t dynamic_sampling_max, const PromptOrder& order,
                                     std::set<uint64_t>& taken);

}  // namespace oxbow::learner
