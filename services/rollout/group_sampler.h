// SPDX-License-Identifier: Apache-2.0
// Samples leased groups: all waiting leases with the same window in one denoising batch. No RPC, no
// clock. Only the latents that training needs are returned: those of the stochastic steps.
//
// A group's result depends only on the run seed, the group id and the weights of each step: not on
// the batch, the attempt or the worker. The replayed member of a mixed group is the last one; its
// head stays in the buffer, and its tail is generated again from x_{kept_steps}. With several
// branches so many last members go on from the same head, each with noise of its own. With a shared
// start the fresh members have the same x_0; the head keeps its own x_0. Groups that are trees
// (flow/split_tree.h) have each of their nodes computed once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/image8.h"
#include "core/model/image_decoder.h"
#include "core/model/velocity_model.h"
#include "core/rl/experience.h"
#include "services/rollout/run_spec.h"

namespace oxbow::rollout {

struct GroupTask {
  GroupId group;
  uint32_t group_size = 0;
  model::Conditioning conditioning;  // Rows of one, on the device that paths are drawn on.
  // The replayed trajectory that members of a mixed group continue: entry_id, kept_steps (i_off),
  // stored_reward, and x_{kept_steps} as its only latent.
  std::optional<rl::Trajectory> head;
  std::vector<bool> sde;  // T flags: its stochastic steps; empty: all of the run's.
};

struct SampledGroup {
  std::vector<rl::Trajectory> trajectories;  // Without rewards and distances.
  std::vector<std::vector<Image8>> media;    // The frames of each sample, in order.
};

// A network, and the version of the weights in it.
struct VersionedNetwork {
  const model::VelocityModel& model;
  PolicyVersion version;
};

// The network that takes the next denoising step of a batch. It is asked before each one, so new
// weights can take over between two steps; what it throws ends the sampling.
using NetworkOfStep = std::function<VersionedNetwork()>;

// Samples all tasks. A step of a sample has the log-prob and the version of the weights that took
// it. Must run on the torch thread; runs without gradients. Requires tasks whose conditionings have
// equal shapes.
std::vector<SampledGroup> SampleGroups(const RunSpec& spec, const NetworkOfStep& network,
                                       const model::ImageDecoder& decoder,
                                       const std::vector<GroupTask>& tasks);

// Fills in how like each other the samples are (reward/likeness.h). On any thread: the torch thread
// would leave its GPU idle meanwhile.
void CompareSamples(double radius, SampledGroup& group);

}  // namespace oxbow::rollout
