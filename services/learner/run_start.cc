// SPDX-License-Identifier: Apache-2.0
#include "services/learner/run_start.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/log.h"
#include "base/patience.h"
#include "base/status_macros.h"
#include "io/model_digest.h"
#include "io/prompts/text_encoders.h"
#include "io/tensor_torch.h"
#include "rpc/stop_signal.h"
#include "run/run_record.h"
#include "run/start_weights.h"
#include "run/trainer_options.h"
#include "services/buffer/replay_client.h"
#include "services/learner/checkpoint/checkpoint_tensors.h"
#include "services/learner/checkpoint/checkpoint_writer.h"
#include "services/learner/record/step_log.h"

namespace oxbow::learner {
namespace {

// The newest start of the run that its buffers have seen; 0 if they know none.
absl::StatusOr<uint64_t> StartsCountedBy(const std::vector<std::string>& buffers,
                                         absl::Duration timeout, const std::string& run_uid) {
  uint64_t newest = 0;
  for (const std::string& endpoint : buffers) {
    const auto info = buffer::ReplayClient(endpoint, timeout).Info();
    if (!info.ok()) {
      return Annotate(info.status(), absl::StrCat("the buffer counts the starts of a run whose "
                                                  "directory was lost, and does not answer: ",
                                                  endpoint));
    }
    if (info->run_uid() == run_uid) newest = std::max(newest, info->epoch());
  }
  return newest;
}

absl::Status ReadCheckpoint(ResumePoint& point) {
  // Launchers restart all ranks with the same arguments. So --resume must work without a
  // checkpoint, and if there is one, a fresh start is never intended.
  OXBOW_ASSIGN_OR_RETURN(const bool none, point.checkpointing.store().empty());
  if (none) return CheckNotLost(point.options.directory);
  if (!point.options.resume) {
    return absl::InvalidArgumentError(
        absl::StrCat("the run has checkpoints: go on from them with --resume, or choose another "
                     "--run-dir: ",
                     point.options.directory.string()));
  }
  OXBOW_ASSIGN_OR_RETURN(point.resumed, point.checkpointing.LoadNewest());
  return absl::OkStatus();
}

// Whether the run's prompts and steps are such that it can go on from there.
absl::Status CheckFits(const ResumePoint& point) {
  const v1::RunConfig& config = point.setup.config;
  if (point.from.prompts.taken > point.setup.train.size()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint has taken ", point.from.prompts.taken, " prompts of a file that has ",
        point.setup.train.size(), " now: bring its prompts back: ", config.prompts().train()));
  }
  const uint64_t steps = config.run().steps();
  if (point.from.committed_steps <= steps) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the run has ", point.from.committed_steps,
                   " steps already: raise run.steps, or go back with `oxbow rollback`; run.steps "
                   "is ",
                   steps));
}

// The identity of this run, and of its start. In a directory that was lost, and has a checkpoint
// again, the run is the checkpoint's; how often it has started since is known to its buffer and to
// the place of its copies.
absl::Status SettleIdentity(RunStart& start) {
  const RunOptions& options = start.options;
  const v1::RunConfig& config = start.setup.config;
  const std::filesystem::path epoch = options.directory / "epoch";
  OXBOW_ASSIGN_OR_RETURN(start.run_uid,
                         run::RunUidOf(options.directory, config.run().name(), start.from.run_uid));
  const absl::Duration timeout = absl::Seconds(config.services().rpc_timeout_seconds());
  uint64_t seen = start.from.epoch;
  std::error_code error;
  const bool counted_here = std::filesystem::exists(epoch, error);
  if (error) return ErrnoStatus("cannot look for", epoch.string(), error.value());
  if (!start.from.run_uid.empty() && !counted_here) {
    OXBOW_ASSIGN_OR_RETURN(const uint64_t counted,
                           StartsCountedBy(options.buffer_endpoints, timeout, start.run_uid));
    seen = std::max({seen, counted, StartThatCopies(start.copies, start.run_uid)});
    OXBOW_LOG(Warning) << "the run goes on in another directory" << Field("run", start.run_uid)
                       << Field("step", start.from.committed_steps) << Field("starts", seen);
  }
  OXBOW_ASSIGN_OR_RETURN(start.epoch, NextEpoch(epoch, seen));
  return absl::OkStatus();
}

void LogCutPrompts(const RunSetup& setup) {
  for (const auto& [key, prompts] :
       {std::pair("prompts.train", &setup.train), std::pair("prompts.eval", &setup.held_out)}) {
    std::vector<std::string> texts;
    for (const v1::Prompt& prompt : *prompts) texts.push_back(prompt.text());
    const auto cut =
        io::CountCut(setup.model.components, setup.config.prompts().t5_length(), texts);
    if (!cut.ok() || !cut->has_value() || (*cut)->cut == 0) continue;
    OXBOW_LOG(Warning) << io::CutText(**cut) << Field("prompts", key);
  }
}

// The other ranks get them from this one.
absl::Status TakeStartWeights(const RunStart& run, model::Policy& policy) {
  const std::filesystem::path& directory = run.options.directory;
  const v1::LoraConfig& lora = run.setup.config.model().lora();
  OXBOW_ASSIGN_OR_RETURN(std::optional<run::StartWeights> start, run::ReadStart(directory));
  if (!start.has_value() && !lora.path().empty()) {
    auto adapter = run::StartFromAdapter(run.setup.config.model(), lora.path());
    if (!adapter.ok()) return Annotate(adapter.status(), "model.lora.path");
    start = *std::move(adapter);
    OXBOW_RETURN_IF_ERROR(run::WriteStart(directory, *start));
  }
  if (!start.has_value()) return absl::OkStatus();
  OXBOW_LOG(Info) << "run starts from other weights" << Field("from", run::StartSource(directory));
  OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors weights,
                         io::AllToTorch(std::move(start->tensors)));
  return Annotate(policy.StartFrom(weights),
                  absl::StrCat("the weights of ", start->from, " are not this model's"));
}

}  // namespace

absl::StatusOr<ResumePoint> ReadResumePoint(const RunOptions& options, RunSetup setup) {
  Checkpointing checkpointing(options.directory, setup.config, PromptDigestsOf(setup));
  ResumePoint point{options, std::move(setup), std::move(checkpointing), {}, {}, {}};
  const v1::RunConfig& config = point.setup.config;
  // A disk that cannot be read at this moment has no older checkpoint to offer.
  const absl::Status read = Insist(
      Clock::Steady(), absl::Minutes(config.services().patience_minutes()),
      [&] { return ReadCheckpoint(point); },
      [](const absl::Status& why, absl::Duration pause) {
        OXBOW_LOG(Warning) << "checkpoints cannot be read, it is tried again"
                           << Field("error", why.message()) << Field("pause", pause);
        absl::SleepFor(pause);
        return absl::OkStatus();
      });
  if (MayPass(read)) return absl::UnavailableError(read.message());
  OXBOW_RETURN_IF_ERROR(read);
  OXBOW_ASSIGN_OR_RETURN(point.copies, config::ParseCopyTarget(config.checkpoint().copy_to()));
  if (point.resumed.has_value()) {
    point.from = point.resumed->state;
  } else if (!options.supervised && !options.beside_copies) {
    OXBOW_RETURN_IF_ERROR(CheckNoCopies(options.directory, config.run().name(), point.copies));
  }
  OXBOW_RETURN_IF_ERROR(CheckFits(point));
  return point;
}

absl::StatusOr<std::unique_ptr<RunStart>> BeginStart(ResumePoint point) {
  std::unique_ptr<RunStart> start(new RunStart{std::move(point), {}, {}, {}});
  const std::filesystem::path& directory = start->options.directory;
  const uint64_t step = start->from.committed_steps;
  if (start->resumed.has_value()) {
    OXBOW_RETURN_IF_ERROR(start->checkpointing.store().SetDamagedAside(start->resumed->damaged));
  }
  OXBOW_RETURN_IF_ERROR(run::ReserveEnd(directory));
  // Called from another thread; the process ends next.
  start->options.stop->WhileLoading([directory, step](int signal) {
    const std::string by = rpc::NameOfSignal(signal);
    run::WriteEnd(directory, {.end = run::RunEnd::kInterrupted,
                              .step = step,
                              .exit_code = kExitDrained,
                              .reason = absl::StrCat("drained by ", by, " while it loaded"),
                              .time = absl::Now()})
        .IgnoreError();
  });
  for (const char* folder : {"", "weights"}) SweepTemporaries(directory / folder);
  OXBOW_RETURN_IF_ERROR(SettleIdentity(*start));
  // Two starts without locks may have taken the same epoch: one of them ends here.
  OXBOW_RETURN_IF_ERROR(start->options.check_directory());
  start->model_digests =
      std::async(std::launch::async, io::ModelDigests, start->setup.model.components);
  return start;
}

absl::StatusOr<LoadedPolicy> LoadPolicy(RunSetup& setup, const parallel::JoinOptions& place) {
  LoadedPolicy loaded;
  OXBOW_ASSIGN_OR_RETURN(loaded.policy, MakePolicy(setup, place.rank));
  OXBOW_ASSIGN_OR_RETURN(loaded.conditioning, WarmConditioning(setup, place.rank, place.size));
  return loaded;
}

absl::StatusOr<LoadedPolicy> LoadPolicy(RunStart& start) {
  LogCutPrompts(start.setup);
  OXBOW_ASSIGN_OR_RETURN(LoadedPolicy loaded, LoadPolicy(start.setup, start.options.place));
  OXBOW_ASSIGN_OR_RETURN(loaded.sha256, start.model_digests.get());
  if (start.resumed.has_value()) {
    OXBOW_RETURN_IF_ERROR(start.checkpointing.CheckModel(start.from, loaded.sha256));
  }
  return loaded;
}

absl::StatusOr<std::unique_ptr<rl::Trainer>> MakeTrainer(const RunOptions& options,
                                                         const RunSetup& setup,
                                                         model::Policy& policy,
                                                         parallel::Ranks& ranks,
                                                         const RunStart* start) {
  const bool resumed = start != nullptr && start->resumed.has_value();
  if (start != nullptr && !resumed) OXBOW_RETURN_IF_ERROR(TakeStartWeights(*start, policy));
  auto trainer = std::make_unique<rl::Trainer>(
      run::MakeTrainerOptions(setup.config, setup.sampling, setup.window), policy, ranks);
  if (trainer->has_pieces())
    OXBOW_RETURN_IF_ERROR(CheckDirectoryIsShared(ranks, options.directory));
  if (ranks.size() > 1) OXBOW_RETURN_IF_ERROR(trainer->ShareHostMemory());
  model::NamedTensors state;
  if (resumed) {
    OXBOW_RETURN_IF_ERROR(start->checkpointing.RestoreWeights(*start->resumed, policy));
    OXBOW_ASSIGN_OR_RETURN(state, start->checkpointing.TrainerState(*start->resumed));
    OXBOW_RETURN_IF_ERROR(trainer->LoadState(state));
  }
  if (ranks.size() > 1) OXBOW_RETURN_IF_ERROR(trainer->TakeStateOfRankZero(std::move(state)));
  return trainer;
}

}  // namespace oxbow::learner
