// SPDX-License-Identifier: Apache-2.0
// Checks that a group which came over the wire is what was asked for, and made with weights that
// may make it. Each refusal says why.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/ids.h"
#include "core/flow/window.h"
#include "oxbow/v1/common.pb.h"
#include "services/learner/plan/step_plan.h"

namespace oxbow::learner {

// The weights that are published, and the groups that they may sample. With the weights after L_V
// committed steps, a group of learner step s is within the staleness budget S if s <= L_V + S.
// Thread-safe.
class PublishedVersions {
 public:
  explicit PublishedVersions(uint64_t staleness_max) : staleness_max_(staleness_max) {}

  // Adds a version, made after `committed` steps. Forgets versions that are so old that no result
  // made with them is wanted.
  void Add(PolicyVersion version, LearnerStep committed);

  // Nothing if the version is unknown or forgotten.
  std::optional<LearnerStep> StepOf(PolicyVersion version) const;
  // Whether a group of `step` may be sampled with this version. False for unknown versions.
  bool Serves(PolicyVersion version, LearnerStep step) const;
  // The oldest version that serves `step`, or the newest if none does; 0 before the first.
  PolicyVersion OldestFor(LearnerStep step) const;
  // 0 before the first.
  PolicyVersion newest() const;

 private:
  const uint64_t staleness_max_;
  mutable absl::Mutex mutex_;
  std::map<PolicyVersion, LearnerStep> committed_ ABSL_GUARDED_BY(mutex_);
};

// The rules that every group of a run obeys.
struct GroupRules {
  std::vector<int64_t> latent_shape;  // [C, H, W]
  v1::DType storage = v1::DTYPE_F32;  // The latents' type.
  uint64_t schedule_id = 0;
  std::vector<bool> sde;  // T flags: the steps that may be stochastic.
  int latents_max = 0;    // Most latents in one trajectory; 0: all T + 1.
  flow::SentLatents sent = flow::SentLatents::kTransitions;
  uint32_t group_size = 0;
  bool in_flight_updates = false;  // Weights may become newer between the steps of a sample.

  int steps() const { return static_cast<int>(sde.size()); }
  uint64_t LatentBytes() const;    // Bytes of one latent.
  uint64_t GroupBytesMax() const;  // Bytes of all latents of a full group.
};

// Checks everything but the latents' bytes: what can be refused before they arrive.
// kInvalidArgument: "trajectory 3: ...".
absl::Status CheckHeader(const v1::Group& group, const GroupRules& rules);

// Checks a complete group against what was planned: prompt, window, head and finite numbers; that
// every sample has one behaviour version for all its steps, or versions that only grow where
// weights may change in flight; and that these versions are published and within the staleness
// budget. Does not read the latents' bytes.
absl::Status CheckGroup(const v1::Group& group, const PlannedGroup& planned,
                        const PublishedVersions& published, const GroupRules& rules);

// Reads every latent of a complete group, which takes time. kInvalidArgument if any is not finite.
absl::Status CheckFinite(const v1::Group& group, const GroupRules& rules);

// The versions of the weights that sampled the steps of this attempt (all steps of a fresh sample,
// the tail of a replayed one), each once.
std::vector<PolicyVersion> BehaviourVersions(const v1::Group& group);

// Samples of a group without a score.
uint64_t UnscoredIn(const v1::Group& group);

}  // namespace oxbow::learner
