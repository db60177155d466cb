// SPDX-License-Identifier: Apache-2.0
#include "services/learner/learner_run.h"

#include <ATen/ATen.h>

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/listening_sockets.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "config/memory_parts.h"
#include "core/model/device.h"
#include "run/run_lock.h"
#include "run/run_record.h"
#include "services/learner/learner_stages.h"
#include "services/learner/ranks/member_process.h"
#include "services/learner/serving.h"

namespace oxbow::learner {

namespace {

constexpr absl::Duration kPredecessorEnds = absl::Seconds(5);

std::string AnyPortAt(const std::string& endpoint) {
  return absl::StrCat(endpoint.substr(0, endpoint.rfind(':')), ":0");
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

absl::StatusOr<std::unique_ptr<parallel::Ranks>> RanksOf(const parallel::JoinOptions& place) {
  if (place.size > 1) return parallel::JoinRanks(place);
  return parallel::MakeSingleRank();
}

absl::Status RunMember(const RunOptions& options, RunSetup setup) {
  OXBOW_ASSIGN_OR_RETURN(const LoadedPolicy model, LoadPolicy(setup, options.place));
  OXBOW_ASSIGN_OR_RETURN(const auto ranks, RanksOf(options.place));
  OXBOW_ASSIGN_OR_RETURN(const auto trainer, MakeTrainer(options, setup, *model.policy, *ranks));
  OXBOW_ASSIGN_OR_RETURN(const auto process, MemberProcess::Start({.options = options,
                                                                   .setup = setup,
                                                                   .model = model,
                                                                   .ranks = *ranks,
                                                                   .trainer = *trainer}));
  return process->Run();
}

// Rank 0. Its parts are made in the order of their dependencies and destroyed in the reverse order.
class LearnerProcess {
 public:
  explicit LearnerProcess(const RunOptions& options) : options_(options) {}

  absl::Status Run(RunSetup setup);

  // Records that the run has failed, for people. A start that was refused is no end of the run.
  void WriteFailure(const absl::Status& why) const;

 private:
  const RunOptions& options_;
  std::optional<uint64_t> begun_at_;  // The step from which the run goes on; none: it was refused.
  std::unique_ptr<RunStart> start_;
  LoadedPolicy model_;
  std::unique_ptr<parallel::Ranks> ranks_;
  std::unique_ptr<rl::Trainer> trainer_;
  Peers peers_;
  Planning desk_;
  Publication publication_;
  std::unique_ptr<Serving> serving_;
};

absl::Status LearnerProcess::Run(RunSetup setup) {
  OXBOW_ASSIGN_OR_RETURN(ResumePoint point, ReadResumePoint(options_, std::move(setup)));
  begun_at_ = point.from.committed_steps;
  OXBOW_ASSIGN_OR_RETURN(start_, BeginStart(std::move(point)));
  OXBOW_ASSIGN_OR_RETURN(model_, LoadPolicy(*start_));
  OXBOW_ASSIGN_OR_RETURN(ranks_, RanksOf(options_.place));
  OXBOW_ASSIGN_OR_RETURN(
      trainer_, MakeTrainer(options_, start_->setup, *model_.policy, *ranks_, start_.get()));
  OXBOW_ASSIGN_OR_RETURN(peers_, MakePeers(*start_));
  OXBOW_ASSIGN_OR_RETURN(desk_, MakePlanning(*start_, peers_));
  OXBOW_ASSIGN_OR_RETURN(publication_, MakePublication(*start_, model_, peers_, desk_));
  OXBOW_ASSIGN_OR_RETURN(serving_, Serving::Start({.start = *start_,
                                                   .model = model_,
                                                   .ranks = *ranks_,
                                                   .trainer = *trainer_,
                                                   .peers = peers_,
                                                   .planning = desk_,
                                                   .publication = publication_}));
  return serving_->Run();
}

void LearnerProcess::WriteFailure(const absl::Status& why) const {
  if (!begun_at_.has_value() || !options_.check_directory().ok()) return;
  const run::EndRecord record{.end = run::RunEnd::kFailed,
                              .step = serving_ == nullptr ? *begun_at_ : serving_->committed(),
                              .exit_code = ExitCodeOf(why),
                              .reason = std::string(why.message()),
                              .time = absl::Now()};
  const absl::Status written = run::WriteEnd(options_.directory, record);
  if (!written.ok()) {
    OXBOW_LOG(Warning) << "why the run ended was not written" << Field("error", written.message());
  }
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
  if (options.supervised && config::LendsBase(setup.config.model())) {
    setup.lent_base = options.directory / config::kLentFolder;
  }
  if (options.place.rank > 0) return RunMember(options, std::move(setup));
  LearnerProcess process(options);
  const absl::Status status = process.Run(std::move(setup));
  options.stop->Finish([](int) {});  // It calls nothing of the process any more.
  options.ending();                  // Called also if the run failed before it called this itself.
  if (!status.ok() && !EndsEarly(status)) process.WriteFailure(status);
  return status;
}

}  // namespace oxbow::learner
