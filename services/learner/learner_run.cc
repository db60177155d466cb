// SPDX-License-Identifier: Apache-2.0
#include "services/learner/learner_run.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/listening_sockets.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "core/model/device.h"
#include "run/run_lock.h"
#include "services/learner/learner_process.h"
#include "services/learner/ranks/member_process.h"

namespace oxbow::learner {

namespace {

constexpr absl::Duration kPredecessorEnds = absl::Seconds(5);

std::string AnyPortAt(const std::string& endpoint) {
  return absl::StrCat(endpoint.substr(0, endpoint.rfind(':')), ":0");
}

absl::Status RunMember(const RunOptions& options, RunSetup setup) {
  MemberProcess process(options, std::move(setup));
  OXBOW_RETURN_IF_ERROR(process.MakeTrainer());
  OXBOW_RETURN_IF_ERROR(process.Serve());
  return process.Run();
}

struct Locks {
  std::optional<run::RunLock> run;  // Under `oxbow train` it is the parent's.
  std::optional<run::RunLock> learner;
};

// An earlier rank 0 may be about to end.
absl::Status TakeLocks(const RunOptions& options, Locks& locks) {
  run::RunLock::Options wanted{.program = "learner", .wait = kPredecessorEnds};
  if (!options.supervised) {
    OXBOW_ASSIGN_OR_RETURN(locks.run, run::RunLock::Take(options.directory, wanted));
  }
  wanted.part = run::RunLock::Part::kLearner;
  OXBOW_ASSIGN_OR_RETURN(locks.learner, run::RunLock::Take(options.directory, wanted));
  return absl::OkStatus();
}

absl::Status CheckLocks(const Locks& locks) {
  if (locks.run.has_value()) OXBOW_RETURN_IF_ERROR(locks.run->CheckHeld());
  return locks.learner->CheckHeld();
}

// Prompts may be encoded for hours before anything listens, so a port that is taken is found first.
absl::Status CheckPorts(const RunOptions& options) {
  for (const std::string& address : {options.listen, options.metrics_listen}) {
    OXBOW_RETURN_IF_ERROR(Listen(address).status());
  }
  return absl::OkStatus();
}

absl::Status RunRankZero(LearnerProcess& process) {
  OXBOW_RETURN_IF_ERROR(process.MakeStart());
  OXBOW_RETURN_IF_ERROR(process.MakeTrainer());
  OXBOW_RETURN_IF_ERROR(process.ConnectPeers());
  OXBOW_RETURN_IF_ERROR(process.MakeDesk());
  OXBOW_RETURN_IF_ERROR(process.MakeLoop());
  OXBOW_RETURN_IF_ERROR(process.Serve());
  return process.Run();
}

}  // namespace

absl::Status RunLearner(RunOptions options) {
  const absl::Status made = MakeDirectories(options.directory);
  Locks locks;
  if (options.place.rank == 0) {
    OXBOW_RETURN_IF_ERROR(made);
    OXBOW_RETURN_IF_ERROR(TakeLocks(options, locks));
    options.check_directory = [&locks] { return CheckLocks(locks); };
  }
  if (options.place.local_rank > 0) {
    // All ranks get the same arguments, but a machine has each port only once.
    options.listen = AnyPortAt(options.listen);
    options.metrics_listen = AnyPortAt(options.metrics_listen);
  }
  OXBOW_RETURN_IF_ERROR(CheckPorts(options));
  options.config.mutable_learner()->set_ranks(static_cast<uint32_t>(options.place.size));
  OXBOW_ASSIGN_OR_RETURN(
      const at::Device device,
      model::DeviceNamed(options.config.model().device(), options.place.local_rank));
  if (const std::string text = model::MissingKernelsText(device); !text.empty()) {
    OXBOW_LOG(Warning) << text;
  }
  if (options.config.run().deterministic()) model::UseDeterministicAlgorithms(device);
  if (options.place.size > 1 && absl::StartsWith(options.config.model().device(), "cuda:")) {
    return absl::InvalidArgumentError(
        absl::StrCat("with several learner ranks model.device must be cuda, the GPU of each rank's "
                     "number: ",
                     options.config.model().device()));
  }
  options.config.mutable_model()->set_device(device.str());
  options.place.device = device.str();
  if (options.config.model().encoder_device() == "cuda") {
    OXBOW_ASSIGN_OR_RETURN(const at::Device encoders,
                           model::DeviceNamed("cuda", options.place.local_rank));
    options.config.mutable_model()->set_encoder_device(encoders.str());
  }
  OXBOW_ASSIGN_OR_RETURN(RunSetup setup, ReadSetup(std::move(options.config)));
  if (options.place.rank > 0) return RunMember(options, std::move(setup));
  LearnerProcess process(options, std::move(setup));
  const absl::Status status = RunRankZero(process);
  options.stop->Finish([](int) {});  // It calls nothing of the process any more.
  options.ending();                  // Called also if the run failed before it called this itself.
  if (!status.ok() && !EndsEarly(status)) process.WriteFailure(status);
  return status;
}

}  // namespace oxbow::learner
