// SPDX-License-Identifier: Apache-2.0
// How a start of the learner finds out which run it is and from where it goes on.
#include <algorithm>
#include <filesystem>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/patience.h"
#include "base/status_macros.h"
#include "config/file_paths.h"
#include "io/model_digest.h"
#include "run/run_record.h"
#include "services/buffer/replay_client.h"
#include "services/learner/checkpoint/checkpoint_copier.h"
#include "services/learner/learner_process.h"

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

}  // namespace

absl::Status LearnerProcess::MakeStart() {
  // A disk that cannot be read at this moment has no older checkpoint to offer.
  const absl::Status read = Insist(
      Clock::Steady(), absl::Minutes(setup_.config.services().patience_minutes()),
      [this] { return ReadCheckpoint(); },
      [](const absl::Status& why, absl::Duration pause) {
        OXBOW_LOG(Warning) << "checkpoints cannot be read, it is tried again"
                           << Field("error", why.message()) << Field("pause", pause);
        absl::SleepFor(pause);
        return absl::OkStatus();
      });
  if (MayPass(read)) return absl::UnavailableError(read.message());
  OXBOW_RETURN_IF_ERROR(read);
  if (!resumed_.has_value() && !options_.supervised && !options_.beside_copies) {
    OXBOW_ASSIGN_OR_RETURN(const config::CopyTarget target,
                           config::ParseCopyTarget(setup_.config.checkpoint().copy_to()));
    OXBOW_RETURN_IF_ERROR(CheckNoCopies(options_.directory, setup_.config.run().name(), target));
  }
  if (resumed_.has_value()) {
    from_ = resumed_->state;
    if (from_.prompts.taken > setup_.train.size()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the checkpoint has taken ", from_.prompts.taken, " prompts of a file that has ",
          setup_.train.size(), " now: bring its prompts back: ", setup_.config.prompts().train()));
    }
  }
  OXBOW_RETURN_IF_ERROR(CheckSteps());
  started_ = true;
  if (resumed_.has_value()) OXBOW_RETURN_IF_ERROR(checkpointing_.SetAside(resumed_->damaged));
  model_digests_ = std::async(std::launch::async, io::ModelDigests, setup_.model.components);
  OXBOW_RETURN_IF_ERROR(run::ReserveEnd(options_.directory));
  options_.stop->WhileLoading([this](int signal) { EndWhileLoading(rpc::NameOfSignal(signal)); });
  for (const char* folder : {"", "weights"}) SweepTemporaries(options_.directory / folder);
  OXBOW_RETURN_IF_ERROR(SettleIdentity());
  // Two starts without locks may have taken the same epoch: one of them ends here.
  return options_.check_directory();
}

absl::Status LearnerProcess::ReadCheckpoint() {
  // Launchers restart all ranks with the same arguments. So --resume must work without a
  // checkpoint, and if there is one, a fresh start is never intended.
  OXBOW_ASSIGN_OR_RETURN(const bool none, checkpointing_.empty());
  if (none) return CheckNotLost(options_.directory);
  if (!options_.resume) {
    return absl::InvalidArgumentError(
        absl::StrCat("the run has checkpoints: go on from them with --resume, or choose another "
                     "--run-dir: ",
                     options_.directory.string()));
  }
  OXBOW_ASSIGN_OR_RETURN(resumed_, checkpointing_.LoadNewest());
  return absl::OkStatus();
}

// The identity of this run, and of its start. In a directory that was lost, and has a checkpoint
// again, the run is the checkpoint's; how often it has started since is known to its buffer and to
// the place of its copies.
absl::Status LearnerProcess::SettleIdentity() {
  const std::filesystem::path epoch = options_.directory / "epoch";
  OXBOW_ASSIGN_OR_RETURN(
      run_uid_, run::RunUidOf(options_.directory, setup_.config.run().name(), from_.run_uid));
  const absl::Duration timeout = absl::Seconds(setup_.config.services().rpc_timeout_seconds());
  uint64_t seen = from_.epoch;
  std::error_code error;
  const bool counted_here = std::filesystem::exists(epoch, error);
  if (error) return ErrnoStatus("cannot look for", epoch.string(), error.value());
  if (!from_.run_uid.empty() && !counted_here) {
    OXBOW_ASSIGN_OR_RETURN(const uint64_t counted,
                           StartsCountedBy(options_.buffer_endpoints, timeout, run_uid_));
    OXBOW_ASSIGN_OR_RETURN(const config::CopyTarget target,
                           config::ParseCopyTarget(setup_.config.checkpoint().copy_to()));
    seen = std::max({seen, counted, StartThatCopies(target, run_uid_)});
    OXBOW_LOG(Warning) << "the run goes on in another directory" << Field("run", run_uid_)
                       << Field("step", from_.committed_steps) << Field("starts", seen);
  }
  OXBOW_ASSIGN_OR_RETURN(epoch_, NextEpoch(epoch, seen));
  return absl::OkStatus();
}

absl::Status LearnerProcess::CheckSteps() const {
  const uint64_t steps = setup_.config.run().steps();
  if (from_.committed_steps <= steps) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the run has ", from_.committed_steps,
                   " steps already: raise run.steps, or go back with `oxbow rollback`; run.steps "
                   "is ",
                   steps));
}

}  // namespace oxbow::learner
