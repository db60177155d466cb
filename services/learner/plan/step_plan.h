// SPDX-License-Identifier: Apache-2.0
// The groups that one learner step will train on: U of distinct prompts, some with a replayed head.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "oxbow/v1/common.pb.h"
#include "services/learner/plan/prompt_order.h"

namespace oxbow::learner {

// The stored part of a sample: an entry of the replay buffer from its first stochastic step, cut
// after kept_steps transitions.
struct ReplayedHead {
  EntryId entry;
  uint32_t shard = 0;  // The shard of the buffer that holds the entry.
  v1::Prompt prompt;
  uint32_t kept_steps = 0;    // i_off
  double stored_reward = 0;   // The reward of the entry's first picture.
  uint64_t age = 0;           // Steps since birth.
  uint64_t uses = 0;          // Earlier steps that replayed it.
  bool other_window = false;  // Its stochastic steps are not those of the learner step.
  v1::Trajectory trajectory;  // As stored; its latents x_first .. x_{i_off} with bytes.
};

// The kinds of a group: where its prompt and its samples come from.
struct FreshGroup {};  // The next prompt of the order; workers make all samples.
struct AgainGroup {    // The same for a prompt that waited in `hard_prompts`.
  EntryId waited;      // Its entry there.
};
struct MixedGroup {  // Workers go on from the head.
  ReplayedHead head;
};
struct WholeGroup {  // The head is a complete sample, with its first picture's rewards.
  ReplayedHead head;
};
struct LateGroup {  // A fresh group that failed; then it got a complete sample.
  ReplayedHead head;
};
struct AddedGroup {  // A stored success beside the step's groups; workers make nothing for it.
  double success_rate = 1;           // It is judged against this rate.
  std::optional<ReplayedHead> head;  // None: the buffer had no more.
};
using GroupKind =
    std::variant<FreshGroup, AgainGroup, MixedGroup, WholeGroup, LateGroup, AddedGroup>;

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
  GroupKind kind;
  std::vector<bool> sde;  // The step's window, T flags; empty: all that may be stochastic.

  // As a group of this kind; null if it is of another.
  template <typename Kind>
  const Kind* As() const {
    return std::get_if<Kind>(&kind);
  }
  const ReplayedHead* head() const;  // Null for a kind without one.
  ReplayedHead* head();
  const ReplayedHead* whole() const;  // The head, where it is a complete sample.
  // Whether workers made all its samples, none from a head; a late one comes after them.
  bool fresh() const;
};

// A prompt that a rule asks for.
struct AskedGroup {
  v1::Prompt prompt;
  GroupKind kind;
};

// A step before it is planned (step_rule.h).
struct StepDraft {
  LearnerStep step;
  uint64_t committed = 0;             // Steps that are committed already.
  uint32_t groups = 0;                // U
  uint32_t dynamic_sampling_max = 0;  // Ids that the step reserves beyond these.
  std::vector<bool> sde;              // The window of all groups (flow::WindowAt).
  std::vector<AskedGroup> spread;     // Take places evenly over the step, so that ranks get equal
                                      // shares;
  std::vector<AskedGroup> next;       // these take the first places that are left.
};

struct StepPlan {
  LearnerStep step;
  std::vector<PlannedGroup> groups;  // U, by id; conditioning still empty.
  PromptPosition before;  // Where the prompt order stood: a resumed run plans again from here.
};

// Gives the other places the next prompts of the order. All prompts are distinct: of groups with
// the same one the first is taken. At most U are taken.
StepPlan PlanStep(StepDraft draft, PromptOrder& order);

// Plans fresh groups in the places `wanted` of a step's groups `now`. Their prompts are
// new to the step (`taken` holds those it has had, and grows) and come in the order of
// PromptOrder::TakeExtra. `made` of `dynamic_sampling_max` groups have been made before. Returns as
// many groups as there are ids and prompts for.
std::vector<PlannedGroup> PlanRefill(const std::vector<PlannedGroup>& now,
                                     const std::vector<size_t>& wanted, uint32_t made,
                                     uint32_t dynamic_sampling_max, const PromptOrder& order,
                                     std::set<uint64_t>& taken);

}  // namespace oxbow::learner
