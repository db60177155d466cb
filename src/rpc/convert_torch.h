// SPDX-License-Identifier: Apache-2.0
// Conversion of what travels <-> what the mathematics works on: conditioning, trajectories, groups.
//
// Latents travel in the run's storage dtype. Sampling already rounded them to
// it, so the round trip gives the same bits back; a ratio that is 1 before the
// wire is 1 behind it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/velocity_model.h"
#include "core/rl/experience.h"
#include "oxbow/v1/common.pb.h"

namespace oxbow::rpc {

// Rows of one: [1, ...] travels as [...], float32 in 16 bits where that is exact.
v1::Conditioning ToProto(const model::Conditioning& conditioning);
// The same bits again: parts in 16 bits become float32. kInvalidArgument names a part that is
// missing, of another shape than `parts` say, or unknown.
absl::StatusOr<model::Conditioning> ConditioningFromProto(
    const v1::Conditioning& conditioning, const std::vector<model::ConditioningPart>& parts);

// The trajectory with its latent bytes inside the message; an undefined latents
// tensor stays unset.
v1::Trajectory ToProto(const rl::Trajectory& sample, uint64_t schedule_id, at::ScalarType storage);

// Latents come back as float32. kInvalidArgument for per-step lists of different lengths, latents
// that are not [n, C, H, W] or [n, C, F, H, W] or lie outside the steps, or a number that is not
// finite.
absl::StatusOr<rl::Trajectory> TrajectoryFromProto(const v1::Trajectory& trajectory);

// Prompt and trajectories; lease, epoch, step, worker and timings are the
// caller's to fill.
v1::Group ToProto(const rl::Group& group, uint64_t schedule_id, at::ScalarType storage);

// Everything but the conditioning, which does not travel with a group.
// kInvalidArgument also for sample indices that repeat or a prompt id that is
// not the prompt's.
absl::StatusOr<rl::Group> GroupFromProto(const v1::Group& group);

// The same without their latents, which are not looked at: they are on the meta device and have a
// shape alone. What lies on other machines is described so.
absl::StatusOr<rl::Trajectory> TrajectoryOutline(const v1::Trajectory& trajectory);
absl::StatusOr<rl::Group> GroupOutline(const v1::Group& group);

}  // namespace oxbow::rpc
