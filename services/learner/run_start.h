// SPDX-License-Identifier: Apache-2.0
// The start of a run: from where it goes on, the identity of this start, and its model and trainer
// in the state that it goes on from. Ranks above 0 have only these two, in the state of rank 0.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "config/file_paths.h"
#include "core/model/policy.h"
#include "core/parallel/ranks.h"
#include "core/rl/trainer.h"
#include "services/learner/checkpoint/checkpointing.h"
#include "services/learner/learner_run.h"
#include "services/learner/plan/conditioning_cache.h"
#include "services/learner/run_setup.h"

namespace oxbow::learner {

// From where a run goes on. Nothing of its directory has changed.
struct ResumePoint {
  const RunOptions& options;
  RunSetup setup;
  Checkpointing checkpointing;
  config::CopyTarget copies;          // checkpoint.copy_to
  std::optional<Checkpoint> resumed;  // None: the run begins.
  RunState from;                      // The state of `resumed`.
};

// Reads the newest checkpoint if there is one, and checks that the run can go on from it. An error
// is a start that is refused, no end of the run. `options` outlives all that a start makes.
absl::StatusOr<ResumePoint> ReadResumePoint(const RunOptions& options, RunSetup setup);

// A start that counts.
struct RunStart : ResumePoint {
  std::string run_uid;
  Epoch epoch;
  // io::ModelDigests, made while the model is loaded.
  std::future<absl::StatusOr<std::map<std::string, std::string>>> model_digests;
};

// Counts the start. From here on a stop signal leaves a record of the run's end while it loads.
absl::StatusOr<std::unique_ptr<RunStart>> BeginStart(ResumePoint point);

// The model of a rank.
struct LoadedPolicy {
  std::unique_ptr<model::Policy> policy;
  std::unique_ptr<ConditioningCache> conditioning;  // The prompts, encoded.
  std::map<std::string, std::string> sha256;        // As RunState::model_sha256; rank 0's.
};

// Does all slow work of a start: from then on the other ranks wait no longer than for a step. Takes
// model and text encoders out of `setup`.
absl::StatusOr<LoadedPolicy> LoadPolicy(RunSetup& setup, const parallel::JoinOptions& place);
// As rank 0: warns of prompts that are cut, and refuses a model that is not the checkpoint's.
absl::StatusOr<LoadedPolicy> LoadPolicy(RunStart& start);

// Makes rank 0's trainer, in the state of the checkpoint or with the weights that a run begins
// with. Without a `start` it is another rank's, with weights and optimiser of rank 0.
absl::StatusOr<std::unique_ptr<rl::Trainer>> MakeTrainer(const RunOptions& options,
                                                         const RunSetup& setup,
                                                         model::Policy& policy,
                                                         parallel::Ranks& ranks,
                                                         const RunStart* start = nullptr);

}  // namespace oxbow::learner
