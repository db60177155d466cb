// SPDX-License-Identifier: Apache-2.0
// A rule by which steps get the groups that they train on: one form of reuse, or of choice. The
// learner's loop holds a list of them, asks each in turn, and knows none by name.
//
//   Plan       a step is planned, as many as off_policy.staleness_max steps before it is due
//   PlanExtra  its groups without a signal are about to be replaced
//   Join       its groups are there: stored samples join them
//   Choose     they are tensors: some stay out, others come in
//   See        a group has done its part: at a commit each of the step, before it each replaced one
//   Follow     the step has committed
//   Offer      the replay buffer is to hear of it
//   Save       a checkpoint is made
//
// A rule does nothing where it does not say otherwise. It is a function of the groups, the buffer's
// content, the run's seed and what it saves, so that a resumed run goes on as if it had not ended.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "services/learner/coordinator/group_assembler.h"
#include "services/learner/plan/step_plan.h"
#include "services/learner/record/step_log.h"

namespace oxbow::rl {
struct Group;
}  // namespace oxbow::rl

namespace oxbow::learner {

struct RunState;
struct StepCommit;

struct TrainedGroup {
  size_t place = 0;                 // Among the groups of the step: says which rank has it.
  std::optional<v1::Group> stored;  // The buffer's, in place of the step's own group.
};

// The groups of a step; equal indices belong together.
struct StepGroups {
  std::vector<ReceivedGroup> received;
  std::vector<PlannedGroup> planned;
  StepChoice choice;  // How they differ from those that were made for the step.
  // The groups that are trained, by place, where a rule chose them; else all.
  std::optional<std::vector<TrainedGroup>> trained;
  std::vector<EntryId> joining;  // Entries that rules took for it, read or not.
};

// Owned by the loop's thread. An error ends the run.
class StepRule {
 public:
  using Numbers = std::map<std::string, double>;
  // The groups that would train anything as they are.
  using Signal = std::function<absl::StatusOr<std::vector<bool>>()>;

  virtual ~StepRule() = default;

  virtual absl::Status Plan(StepDraft& /*draft*/) { return absl::OkStatus(); }
  virtual void PlanExtra(LearnerStep /*step*/) {}
  virtual absl::Status Join(LearnerStep /*step*/, const Signal& /*signal*/,
                            StepGroups& /*groups*/) {
    return absl::OkStatus();
  }
  // `built` are made of `groups`, in their order.
  virtual absl::Status Choose(LearnerStep /*step*/, StepGroups& /*groups*/,
                              std::vector<rl::Group>& /*built*/) {
    return absl::OkStatus();
  }
  virtual void See(LearnerStep /*step*/, const ReceivedGroup& /*received*/,
                   const PlannedGroup& /*planned*/) {}
  // Adds the rule's metrics of the step to `numbers`; so does Offer.
  virtual void Follow(LearnerStep /*step*/, const StepGroups& /*groups*/, Numbers& /*numbers*/) {}
  virtual void Offer(const StepGroups& /*groups*/, StepCommit& /*commit*/, Numbers& /*numbers*/) {}
  virtual void Save(RunState& /*state*/) const {}
};

using StepRules = std::vector<std::unique_ptr<StepRule>>;

}  // namespace oxbow::learner
