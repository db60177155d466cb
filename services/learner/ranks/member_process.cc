// SPDX-License-Identifier: Apache-2.0
#include "services/learner/ranks/member_process.h"

#include <ATen/ATen.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "config/validate.h"
#include "core/parallel/c10d_ranks.h"
#include "core/parallel/share.h"
#include "run/trainer_options.h"
#include "services/learner/checkpoint/checkpoint_tensors.h"
#include "services/learner/checkpoint/optimizer_pieces.h"
#include "services/learner/loop/experience_builder.h"
#include "services/learner/ranks/step_manifest.h"

namespace oxbow::learner {

MemberProcess::MemberProcess(const RunOptions& options, RunSetup setup)
    : options_(options), setup_(std::move(setup)) {}

absl::Status MemberProcess::MakeTrainer() {
  OXBOW_ASSIGN_OR_RETURN(policy_, MakePolicy(setup_));
  OXBOW_ASSIGN_OR_RETURN(conditioning_,
                         WarmConditioning(setup_, options_.place.rank, options_.place.size));
  OXBOW_ASSIGN_OR_RETURN(ranks_, parallel::JoinRanks(options_.place));
  trainer_ = std::make_unique<rl::Trainer>(
      run::MakeTrainerOptions(setup_.config, setup_.sampling, setup_.window), *policy_, *ranks_);
  if (trainer_->has_pieces()) {
    OXBOW_RETURN_IF_ERROR(CheckDirectoryIsShared(*ranks_, options_.directory));
  }
  return trainer_->TakeStateOfRankZero({});
}

absl::Status MemberProcess::Serve() {
  const v1::RunConfig& config = setup_.config;
  OXBOW_ASSIGN_OR_RETURN(exposer_, telemetry::Metrics::Serve(options_.metrics_listen));
  metrics_ = std::make_unique<LearnerMetrics>(exposer_->registry());
  budget_ = std::make_unique<ByteBudget>(config.services().sink_bytes_max());
  groups_ = std::make_unique<HeldGroups>(
      GroupRulesOf(setup_), config::KeepsSuccesses(config),
      [this](const v1::Group& group) { return stream_->Accept(group); });
  sink_service_ =
      std::make_unique<ExperienceSinkService>(*groups_, *budget_, GroupRulesOf(setup_), *metrics_);
  OXBOW_ASSIGN_OR_RETURN(server_,
                         rpc::Server::Start({.listen = options_.listen}, {sink_service_.get()}));
  std::string leader;
  OXBOW_RETURN_IF_ERROR(ranks_->BroadcastBytes(leader, 0));
  v1::RankReport::Hello place;
  place.set_sink_endpoint(server_->endpoint());
  place.set_metrics_endpoint(exposer_->endpoint());
  options_.stop->Finish([this](int signal) {
    joined_.WaitForNotification();
    stream_->AskToDrain(rpc::NameOfSignal(signal));
  });
  stream_ = std::make_unique<RankStream>(
      RankStream::Options{.leader = leader,
                          .rank = ranks_->rank(),
                          .place = place,
                          .timeout = absl::Seconds(setup_.config.learner().rank_timeout_seconds())},
      Clock::Steady(), [this](const absl::Status& why) { ranks_->Abort(why); });
  joined_.Notify();
  writer_ = std::make_unique<CheckpointWriter>();
  rpc::AnnounceReady(absl::StrCat("learner-", ranks_->rank()), place.sink_endpoint(),
                     place.metrics_endpoint());
  return absl::OkStatus();
}

// Copies the piece; a thread writes it and reports, while training goes on.
void MemberProcess::SavePiece(uint64_t committed_steps) {
  writer_->Begin([this, committed_steps,
                  piece = TensorCopies{trainer_->CopyMoments(), {}}]() mutable -> absl::Status {
    const int rank = ranks_->rank();
    const absl::StatusOr<FileDigest> digest =
        WritePieceOf(rank, ranks_->size(), options_.directory, committed_steps, std::move(piece));
    v1::RankReport::Saved saved;
    saved.set_committed_steps(committed_steps);
    saved.set_file(PieceName(rank, ranks_->size()));
    if (digest.ok()) {
      saved.set_sha256(digest->sha256);
      saved.set_bytes(digest->bytes);
    } else {
      saved.set_error(std::string(digest.status().message()));
    }
    stream_->Saved(saved);
    return absl::OkStatus();  // The effect of an error is rank 0's to say.
  });
}

absl::Status MemberProcess::Run() {
  OXBOW_LOG(Info) << "learner rank is ready" << Field("rank", ranks_->rank())
                  << Field("sink", server_->endpoint());
  absl::Status status;
  while (status.ok()) {
    absl::StatusOr<v1::RankCommand> command = stream_->Next();
    status = command.status();
    if (!status.ok()) break;
    if (command->has_stop()) {
      const v1::RankCommand::Stop& stop = command->stop();
      if (stop.exit_code() != kExitOk) {
        status = ErrorOf(static_cast<int>(stop.exit_code()), stop.reason());
      }
      break;
    }
    if (command->has_head_latents()) {
      const v1::RankCommand::HeadLatents& latents = command->head_latents();
      heads_[latents.group_id()].append(latents.data());
    }
    if (command->has_step()) status = TrainOne(command->step());
    if (command->has_save()) SavePiece(command->save().committed_steps());
  }
  options_.stop->Finish([](int) {});
  server_->Shutdown(kShutdownGrace);
  server_.reset();
  sink_service_.reset();  // Waits for results that are being told to rank 0 by the stream.
  writer_.reset();        // Reports by the stream, too.
  stream_.reset();
  return status;
}

absl::StatusOr<rl::Group> MemberProcess::BuildMember(LearnerStep step,
                                                     const v1::StepManifest::Item& item,
                                                     bool held) {
  PlannedGroup planned = PlannedFrom(step, item);
  if (!held) return BuildOutline(item.group(), planned);
  if (ReplayedHead* head = planned.head(); head != nullptr) {
    head->trajectory.mutable_latents()->set_data(std::move(heads_[planned.id.value]));
  }
  ReceivedGroup received{.group = item.group(), .attempt = 0, .bytes = {}};
  if (planned.As<AddedGroup>() == nullptr) {  // Else nobody sampled it.
    OXBOW_ASSIGN_OR_RETURN(received, groups_->Take(LeaseId(item.group().lease_id())));
    // Rank 0 has dropped the samples of a head that it could not read.
    for (int i = 0; i < item.group().trajectories_size(); ++i) {
      received.group.mutable_trajectories(i)->set_reward_failed(
          item.group().trajectories(i).reward_failed());
    }
  }
  OXBOW_ASSIGN_OR_RETURN(const ConditioningCache::Entry* entry, conditioning_->Get(planned.prompt));
  return BuildGroup(received.group, planned, entry->tensors);
}

absl::Status MemberProcess::TrainOne(const v1::StepManifest& manifest) {
  const LearnerStep step(manifest.step());
  const auto count = static_cast<size_t>(manifest.groups_size());
  const parallel::Share share = parallel::ShareOf(count, ranks_->rank(), ranks_->size());
  std::vector<rl::Group> groups;
  for (size_t i = 0; i < count; ++i) {
    OXBOW_ASSIGN_OR_RETURN(rl::Group group,
                           BuildMember(step, manifest.groups(static_cast<int>(i)), share.Has(i)));
    groups.push_back(std::move(group));
  }
  heads_.clear();
  const absl::Duration started = Clock::Steady().Now();
  const absl::StatusOr<rl::StepResult> result = trainer_->Step(step, groups);
  if (absl::IsCancelled(result.status()))
    return absl::OkStatus();  // Rank 0 drains; a save follows.
  OXBOW_RETURN_IF_ERROR(result.status());
  metrics_->PolicyVersionIs(trainer_->version().value);
  metrics_->StepCommitted(absl::ToDoubleSeconds(Clock::Steady().Now() - started), result->metrics);
  groups_->Forget(LearnerStep(step.value + 1));
  return absl::OkStatus();
}

}  // namespace oxbow::learner
