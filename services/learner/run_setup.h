// SPDX-License-Identifier: Apache-2.0
// Parts that a run is made from, read and checked before anything starts: config, model, prompts.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/flow/dynamics.h"
#include "core/flow/window.h"
#include "core/model/policy.h"
#include "io/tensorboard/event_writer.h"
#include "oxbow/v1/config.pb.h"
#include "oxbow/v1/coordinator.pb.h"
#include "run/loaded_model.h"
#include "services/learner/coordinator/coordinator.h"
#include "services/learner/coordinator/group_check.h"
#include "services/learner/evaluation/evaluation.h"
#include "services/learner/loop/learner_loop.h"
#include "services/learner/plan/conditioning_cache.h"
#include "services/learner/replay/replay_link.h"

namespace oxbow::learner {

struct RunSetup {
  v1::RunConfig config;  // With the model's shift and the kept steps filled in.
  run::LoadedModel model;
  flow::SamplingSpec sampling;
  std::optional<flow::WindowPlan> window;  // None: the sampler is the plain ODE.
  // Evaluation's pictures, which may have a size of their own.
  std::vector<int64_t> evaluated_shape;
  v1::SamplingConfig evaluated_sampling;  // As config.sampling, for that size.
  model::Conditioning negative;           // One row; defined with guidance.
  at::ScalarType compute = at::kFloat;
  at::Device device = at::kCPU;
  std::string lent_base;  // Where the base is lent to workers (core/model/lent_base.h); empty: not.
  std::vector<v1::Prompt> train;
  std::vector<v1::Prompt> held_out;  // Empty unless the run evaluates.
};

// kInvalidArgument for settings that do not fit each other or the prompts; else as LoadModel and
// run::ReadPrompts.
absl::StatusOr<RunSetup> ReadSetup(v1::RunConfig config);

// How far a worker's velocities may be from the learner's. Velocities are about 1. A step of bf16
// is 2^-8, and other devices and merged weights sum in another order.
double ProbeToleranceOf(const RunSetup& setup);

// The policy that is trained. Takes the transformer's tensors out of `setup`.
absl::StatusOr<std::unique_ptr<model::Policy>> MakePolicy(RunSetup& setup, int rank = 0);

// The prompts whose conditioning the run needs, held-out ones first: of these as many as pictures
// are drawn, of training's those that its steps can take, in their order. A step takes at most
// batch.groups from the shuffled order, and heads have prompts that were taken before. All of
// training's where that is not known beforehand: ranked prompts, extra groups of dynamic sampling.
std::vector<v1::Prompt> PromptsNeeded(const RunSetup& setup);

// Encodes PromptsNeeded of `setup` and frees the text encoders, which it takes out of `setup`.
// Every rank does the same and shares the work, so that no rank waits for another. A single rank
// whose encoders are on the CPU encodes held-out prompts and those of the first steps, and leaves
// the others to ConditioningCache::Ahead: its encoders are slow, and in the way of no GPU.
absl::StatusOr<std::unique_ptr<ConditioningCache>> WarmConditioning(RunSetup& setup, int rank,
                                                                    int ranks);

// A hash of the prompts that were read, by config key: of their ids in the file's order.
std::map<std::string, std::string> PromptDigestsOf(const RunSetup& setup);

// The settings by which TensorBoard's tab of hyperparameters tells runs apart: those that people
// tune, by their keys in a run file. All others are in the text `config` beside them.
std::map<std::string, io::HyperParameter> HyperParametersOf(const v1::RunConfig& config);

GroupRules GroupRulesOf(const RunSetup& setup);
// Names one start of the learner: "digits-1".
std::string RunIdOf(const RunSetup& setup, Epoch epoch);

Coordinator::Options CoordinatorOptionsOf(const RunSetup& setup, Epoch epoch,
                                          LearnerStep first_step);
// Without what says whose buffer it is.
ReplayLink::Options ReplayOptionsOf(const RunSetup& setup, Epoch epoch,
                                    std::vector<std::string> endpoints);
LearnerLoop::Options LoopOptionsOf(const RunSetup& setup, Epoch epoch, LearnerStep first_step,
                                   double wall_seconds_before);
// The ODE by which workers draw held-out pictures.
absl::StatusOr<flow::SamplingSpec> EvaluationSpecOf(const RunSetup& setup);
Evaluation::Options EvaluationOptionsOf(const RunSetup& setup, Epoch epoch,
                                        weights::ProbeShape probe_shape);
PictureJudge::Options JudgeOptionsOf(const RunSetup& setup);

// The answer to a worker's registration.
struct RunEndpoints {
  std::string learner;             // Serves the weights.
  std::vector<std::string> sinks;  // By rank.
  std::vector<std::string> rewards;
  std::vector<std::string> buffers;
};

absl::StatusOr<v1::RegisterResponse> RegistrationOf(const RunSetup& setup, Epoch epoch,
                                                    const RunEndpoints& endpoints);

}  // namespace oxbow::learner
