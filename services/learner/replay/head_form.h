// SPDX-License-Identifier: Apache-2.0
// The heads of a run in the entries of its replay buffer: which entries it can use, and the part of
// their latents that it needs. Pure.
//
// A head keeps its own stochastic steps, whatever the step's window is: only they have a density,
// and weight and loss run over those before i_off. An older policy made its deterministic steps,
// which no weight can express.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "oxbow/v1/replay_buffer.pb.h"
#include "services/learner/plan/step_plan.h"

namespace oxbow::learner {

struct HeadForm {
  uint32_t kept_steps = 0;            // i_off
  bool images = false;                // Entries are final latents, not heads.
  uint64_t schedule_id = 0;           // Entries of another schedule are not used.
  uint64_t latent_bytes = 0;          // A latent's size as stored.
  std::vector<int64_t> latent_shape;  // [C, H, W] or [C, F, H, W]

  bool OfSchedule(const v1::ReplayEntry& entry) const {
    return entry.trajectory().schedule_id() == schedule_id;
  }
  // Whether latents [n, ...] are of this run's shape. Equal bytes do not say so.
  bool HasShape(const v1::Tensor& latents) const;

  // An entry's head by its header alone, without latents, for a step with window `sde` (T flags;
  // empty: windows do not move). Nothing, and why in `reason`, for an entry of another schedule or
  // size, or without a stochastic step before i_off.
  std::optional<ReplayedHead> HeadOf(LearnerStep step, const v1::ReplayEntry& entry,
                                     const std::vector<bool>& sde, const char*& reason) const;
  // Cuts the head's latents out of those that are stored; false if they are not there.
  bool Fill(v1::ReplayEntry entry, ReplayedHead& head) const;
};

}  // namespace oxbow::learner
