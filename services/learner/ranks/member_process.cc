// SPDX-License-Identifier: Apache-2.0
#include "services/learner/ranks/member_process.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "config/validate.h"
#include "core/parallel/share.h"
#include "services/learner/checkpoint/checkpoint_tensors.h"
#include "services/learner/loop/experience_builder.h"
#include "services/learner/loop/step_rules.h"
#include "services/learner/ranks/step_manifest.h"
#include "services/learner/replay/replay_offer.h"

namespace oxbow::learner {
namespace {

// Groups that may be trained again are kept whole, others as the sample that is offered.
KeptLatents LatentsKept(const v1::RunConfig& config, const v1::Group& group) {
  const std::optional<double> mean = MeanReward(group);
  if (config.adaptation().enabled() && mean.has_value() &&
      rl::MayBeReused(AdaptationOf(config.adaptation()), *mean)) {
    return KeptLatents::kAll;
  }
  return config::KeepsSuccesses(config) ? KeptLatents::kOffer : KeptLatents::kNone;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MemberProcess>> MemberProcess::Start(const Parts& parts) {
  OXBOW_ASSIGN_OR_RETURN(auto exposer, telemetry::Metrics::Serve(parts.options.metrics_listen));
  std::unique_ptr<MemberProcess> process(new MemberProcess(parts, std::move(exposer)));
  OXBOW_ASSIGN_OR_RETURN(process->server_, rpc::Server::Start({.listen = parts.options.listen},
                                                              {&process->sink_service_}));
  OXBOW_RETURN_IF_ERROR(process->Join());
  return process;
}

MemberProcess::MemberProcess(const Parts& parts, std::unique_ptr<telemetry::Metrics> exposer)
    : parts_(parts),
      exposer_(std::move(exposer)),
      metrics_(exposer_->registry()),
      budget_(parts.setup.config.services().sink_bytes_max()),
      groups_(
          GroupRulesOf(parts.setup),
          [this](const v1::Group& group) { return LatentsKept(parts_.setup.config, group); },
          [this](const v1::Group& group) { return stream_->Accept(group); }),
      sink_service_(groups_, budget_, GroupRulesOf(parts.setup), metrics_) {}

absl::Status MemberProcess::Join() {
  std::string leader;
  OXBOW_RETURN_IF_ERROR(parts_.ranks.BroadcastBytes(leader, 0));
  v1::RankReport::Hello place;
  place.set_sink_endpoint(server_->endpoint());
  place.set_metrics_endpoint(exposer_->endpoint());
  parts_.options.stop->Finish([this](int signal) {
    joined_.WaitForNotification();
    stream_->AskToDrain(rpc::NameOfSignal(signal));
  });
  const v1::LearnerConfig& config = parts_.setup.config.learner();
  stream_ = std::make_unique<RankStream>(
      RankStream::Options{.leader = leader,
                          .rank = parts_.ranks.rank(),
                          .place = place,
                          .timeout = absl::Seconds(config.rank_timeout_seconds())},
      Clock::Steady(), [this](const absl::Status& why) { parts_.ranks.Abort(why); });
  joined_.Notify();
  rpc::AnnounceReady(absl::StrCat("learner-", parts_.ranks.rank()), place.sink_endpoint(),
                     place.metrics_endpoint());
  return absl::OkStatus();
}

// Copies the piece; a thread writes it and reports, while training goes on.
void MemberProcess::SavePiece(uint64_t committed_steps) {
  writer_.Begin([this, committed_steps,
                 piece = TensorCopies{parts_.trainer.CopyMoments(), {}}]() mutable -> absl::Status {
    const int rank = parts_.ranks.rank();
    const absl::StatusOr<FileDigest> digest = WritePieceOf(
        rank, parts_.ranks.size(), parts_.options.directory, committed_steps, std::move(piece));
    v1::RankReport::Saved saved;
    saved.set_committed_steps(committed_steps);
    saved.set_file(PieceName(rank, parts_.ranks.size()));
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
  OXBOW_LOG(Info) << "learner rank is ready" << Field("rank", parts_.ranks.rank())
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
  parts_.options.stop->Finish([](int) {});
  server_->Shutdown(kShutdownGrace);
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
    OXBOW_ASSIGN_OR_RETURN(received, groups_.Take(LeaseId(item.group().lease_id())));
    // Rank 0 has dropped the samples of a head that it could not read.
    for (int i = 0; i < item.group().trajectories_size(); ++i) {
      received.group.mutable_trajectories(i)->set_reward_failed(
          item.group().trajectories(i).reward_failed());
    }
  }
  OXBOW_ASSIGN_OR_RETURN(const ConditioningCache::Entry* entry,
                         parts_.model.conditioning->Get(planned.prompt));
  return BuildGroup(received.group, planned, entry->tensors);
}

// Rank 0 has sent what is held of it.
absl::StatusOr<rl::Group> MemberProcess::BuildStored(v1::Group group, bool held) {
  if (!held) return BuildOutline(group, PlannedGroup());
  OXBOW_RETURN_IF_ERROR(TakeLatents(heads_[group.group_id()], group));
  OXBOW_ASSIGN_OR_RETURN(const ConditioningCache::Entry* entry,
                         parts_.model.conditioning->Get(group.prompt()));
  return BuildGroup(group, PlannedGroup(), entry->tensors);
}

absl::Status MemberProcess::TrainOne(const v1::StepManifest& manifest) {
  const LearnerStep step(manifest.step());
  const auto count = static_cast<size_t>(manifest.groups_size());
  const parallel::Share share = parallel::ShareOf(count, parts_.ranks.rank(), parts_.ranks.size());
  std::vector<rl::Group> groups;
  for (size_t i = 0; i < count; ++i) {
    const v1::StepManifest::Item& item = manifest.groups(static_cast<int>(i));
    const auto holder = static_cast<int>(item.holder());
    const bool held = item.has_holder() ? holder == parts_.ranks.rank() : share.Has(i);
    OXBOW_ASSIGN_OR_RETURN(rl::Group group, item.stored() ? BuildStored(item.group(), held)
                                                          : BuildMember(step, item, held));
    if (item.has_holder()) group.holder = holder;
    groups.push_back(std::move(group));
  }
  heads_.clear();
  const absl::Duration started = Clock::Steady().Now();
  const absl::StatusOr<rl::StepResult> result = parts_.trainer.Step(step, groups);
  if (absl::IsCancelled(result.status()))
    return absl::OkStatus();  // Rank 0 drains; a save follows.
  OXBOW_RETURN_IF_ERROR(result.status());
  metrics_.PolicyVersionIs(parts_.trainer.version().value);
  metrics_.StepCommitted(absl::ToDoubleSeconds(Clock::Steady().Now() - started), result->metrics);
  groups_.Forget(LearnerStep(step.value + 1));
  return absl::OkStatus();
}

}  // namespace oxbow::learner
