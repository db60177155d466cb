// SPDX-License-Identifier: Apache-2.0
// How a config samples: noise levels, stochastic steps, rows that are trained of them, and how many
// bytes the experience takes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/flow/dynamics.h"
#include "core/flow/split_tree.h"
#include "core/flow/window.h"
#include "io/scheduler.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

// The steps that may be stochastic, and which of them are in each learner step. The last step never
// is: its density is so narrow that rounding alone would move it. A hold of 0 becomes the default
// of the window's kind.
// kInvalidArgument with the key and its fix for settings that leave nothing to train.
absl::StatusOr<flow::WindowPlan> WindowFromConfig(const v1::SamplingConfig& config);

// Fills in what a config leaves to the model: the shift, with the level at its end, where the shift
// is 0; the grid, with its whole timesteps, where the schedule is diffusers_default.
void ResolveSampling(const io::PipelineSchedule& own, v1::SamplingConfig& config);

// The trees that groups are.
flow::SplitTree SplitTreeOf(const v1::SamplingConfig& config);

// How a run samples. The spec's flags are the steps that some learner step takes stochastically.
// kInvalidArgument names a setting that is unspecified or out of range. Requires a resolved
// config, see ResolveSampling, and a resolved sampling.embedded_guidance (run/model_facts.h).
absl::StatusOr<flow::SamplingSpec> SamplingSpecFromConfig(const v1::SamplingConfig& config);

// The run's sampling with the size of evaluation's pictures, eval.height and eval.width. As the
// config has it: a shift of 0 is to be resolved for that size.
v1::SamplingConfig EvaluationSampling(const v1::RunConfig& config);

// kInvalidArgument for one that is not set.
absl::StatusOr<flow::SolverKind> SolverOf(v1::SolverKind kind);

// How held-out images are drawn, where config.sampling is EvaluationSampling, resolved: along the
// run's grid without noise, with the steps and the solver of `eval`. Errors as above.
absl::StatusOr<flow::SamplingSpec> EvaluationSpecFromConfig(const v1::RunConfig& config);

// The latents of fresh trajectories that the run's method trains on: transitions, final ones, or
// with an anchor both.
flow::SentLatents SentLatentsOf(const v1::RunConfig& config);

// A row is one sample at one noise level. Rows of one sample: its trained steps, or the noise
// levels at which its final image is trained. 0 for settings that make no window.
uint64_t TrainedSteps(const v1::RunConfig& config);

// Rows whose gradients one backward pass of one rank computes.
uint64_t RowsOfPass(const v1::RunConfig& config);

// How many bytes the experience of a run takes, on its way to the learner and in the replay buffer.
//
// `latent_shape` is that of the model, for example [C, H, W].
//
// Latents that one trajectory brings at most. The final latent alone for a method that trains on
// final images; all T + 1 where tails of replayed trajectories are stochastic; else those of the
// longest window.
uint64_t LatentsMax(const v1::RunConfig& config);

// Latent bytes of one group on its way to the learner, at most.
uint64_t GroupBytesMax(const v1::RunConfig& config, const std::vector<int64_t>& latent_shape);

// Latent bytes of the groups that may be under way or waiting at once. With less in
// services.sink_bytes_max, workers would wait for room for ever.
uint64_t SinkBytesNeeded(const v1::RunConfig& config, const std::vector<int64_t>& latent_shape);

// Bytes of one entry of the replay buffer, about: the latents up to the end of the last stochastic
// step, the conditioning of its prompt, and its picture.
uint64_t EntryBytes(const v1::SamplingConfig& sampling, const std::vector<int64_t>& latent_shape,
                    uint64_t conditioning_bytes);

}  // namespace oxbow::run
