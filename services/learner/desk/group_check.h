// Is a group that came over the wire what was asked for? Pure; every refusal says why.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "oxbow/v1/common.pb.h"
#include "services/learner/desk/step_plan.h"

namespace oxbow::learner {

// What every group of a run obeys.
struct GroupRules {
  std::vector<int64_t> latent_shape;  // [C, H, W]
  v1::DType storage = v1::DTYPE_F32;  // Of latents.
  uint64_t schedule_id = 0;
  std::vector<bool> sde;      // T flags: the steps that may be stochastic.
  int latents_max = 0;        // Of one trajectory; 0: all T + 1.
  bool final_latent = false;  // Fresh samples bring x_T instead of their transitions.
  uint32_t group_size = 0;

  int steps() const { return static_cast<int>(sde.size()); }
  uint64_t LatentBytes() const;    // Of one latent.
  uint64_t GroupBytesMax() const;  // Latents of all members.
};

// Checks everything but the latents' bytes: what can be refused before they arrive.
// kInvalidArgument: "trajectory 3: ...".
absl::Status CheckHeader(const v1::Group& group, const GroupRules& rules);

// Checks a complete group against what was planned: prompt, window, head, finite numbers, and that
// every fresh sample has one behaviour version for all its steps. Looks at no latent bytes.
absl::Status CheckGroup(const v1::Group& group, const PlannedGroup& planned,
                        const GroupRules& rules);

// Reads every latent of a complete group: as long as its bytes. kInvalidArgument if any is not
// finite.
absl::Status CheckFinite(const v1::Group& group, const GroupRules& rules);

// Versions that took the steps this attempt sampled itself (all of a fresh sample, the tail of a
// replayed one), each once.
std::vector<PolicyVersion> BehaviourVersions(const v1::Group& group);

}  // namespace oxbow::learner
