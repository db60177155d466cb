// SPDX-License-Identifier: Apache-2.0
#include "services/learner/learner_stages.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "config/run_config.h"
#include "config/validate.h"
#include "io/report/report.h"
#include "run/rewards.h"
#include "services/learner/checkpoint/checkpoint_tensors.h"
#include "services/learner/record/facts_of_run.h"
#include "services/weights/broadcast_group.h"

namespace oxbow::learner {
namespace {

// An open page takes one of twice this age for one of a run that was killed.
constexpr absl::Duration kReportEvery = absl::Minutes(5);

absl::StatusOr<std::unique_ptr<reward::RewardClient>> ConnectRewards(const RunStart& start) {
  const v1::RewardConfig& reward = start.setup.config.reward();
  const std::vector<std::string>& endpoints = start.options.reward_endpoints;
  return reward::RewardClient::Connect(
      {.endpoints = endpoints,
       .elsewhere = {reward.endpoints().begin(), reward.endpoints().end()},
       .rewards = run::RewardNames(reward),
       .observed = {reward.observed().begin(), reward.observed().end()},
       .not_asked = run::RewardsNotAsked(reward, endpoints),
       .tries = static_cast<int>(reward.tries()),
       .timeout = absl::Seconds(reward.timeout_seconds()),
       .transport = reward.transport()});
}

absl::Status OpenLogs(const RunStart& start, Peers& peers) {
  const v1::RunConfig& config = start.setup.config;
  const RunOptions& options = start.options;
  std::optional<int64_t> resume_after;
  // At step 0 the run begins again, with its line.
  if (start.resumed.has_value()) {
    resume_after = static_cast<int64_t>(start.from.committed_steps);
    if (resume_after == 0) resume_after = -1;
  }
  OXBOW_ASSIGN_OR_RETURN(peers.log, telemetry::RunLog::Open(options.directory, resume_after));
  OXBOW_RETURN_IF_ERROR(
      peers.log->Text(std::max<int64_t>(resume_after.value_or(0), 0), "config",
                      absl::StrCat("```yaml\n", config::ResolvedYaml({config, {}}), "```\n")));
  if (!resume_after.has_value()) {
    OXBOW_RETURN_IF_ERROR(peers.log->HyperParameters(HyperParametersOf(config)));
  }
  OXBOW_ASSIGN_OR_RETURN(peers.step_log,
                         StepLog::Open(options.directory / "steps.jsonl", options.check_directory));
  return absl::OkStatus();
}

void NoticeDamage(const RunStart& start, RunProgress& progress) {
  if (!start.resumed.has_value() || start.resumed->damaged.empty()) return;
  const std::vector<uint64_t>& damaged = start.resumed->damaged;
  const bool one = damaged.size() == 1;
  progress.Notice(absl::StrCat(
      one ? "the checkpoint of step " : "the checkpoints of steps ", absl::StrJoin(damaged, ", "),
      one ? " is" : " are", " damaged and kept as ", CheckpointName(damaged.front()), ".damaged",
      one ? "" : " and so on", ", going on from ", start.from.committed_steps));
}

// At the end of the run, and of one that drains.
constexpr absl::Duration kCopyMax = absl::Hours(2);
constexpr absl::Duration kCopyMaxOnDrain = absl::Seconds(60);

std::unique_ptr<CheckpointCopier> MakeCopier(const RunStart& start, const Peers& peers) {
  const v1::CheckpointConfig& config = start.setup.config.checkpoint();
  if (config.copy_to().empty()) return nullptr;
  return std::make_unique<CheckpointCopier>(
      CheckpointCopier::Options{.checkpoints = start.options.directory / "checkpoints",
                                .target = start.copies,
                                .run_uid = start.run_uid,
                                .epoch = start.epoch.value,
                                .keep = config.keep(),
                                .best = config.best(),
                                .command_max = kCopyMax},
      [&peers, said = false](const absl::Status& copied) mutable {
        peers.metrics->CheckpointCopied(copied.ok());
        if (copied.ok() || std::exchange(said, true)) return;
        peers.progress->Notice(absl::StrCat("a checkpoint was not copied to checkpoint.copy_to: ",
                                            std::string(copied.message())));
      });
}

}  // namespace

absl::StatusOr<Peers> MakePeers(const RunStart& start) {
  const RunOptions& options = start.options;
  const v1::RunConfig& config = start.setup.config;
  Peers peers;
  OXBOW_ASSIGN_OR_RETURN(peers.exposer, telemetry::Metrics::Serve(options.metrics_listen));
  peers.exposer->WatchDisk("run", options.directory);
  peers.metrics = std::make_unique<LearnerMetrics>(peers.exposer->registry());
  peers.metrics->StalenessBudgetIs(config.off_policy().staleness_max());
  peers.publish_metrics = std::make_unique<weights::PublishMetrics>(peers.exposer->registry());
  OXBOW_ASSIGN_OR_RETURN(peers.rewards, ConnectRewards(start));
  OXBOW_RETURN_IF_ERROR(OpenLogs(start, peers));
  peers.progress =
      std::make_unique<RunProgress>(Clock::Steady(), *peers.metrics, config.run().steps(),
                                    start.from.committed_steps, start.from.policy_version);
  NoticeDamage(start, *peers.progress);
  peers.report = std::make_unique<LiveReport>(
      [&options, reading = io::RunReading(options.directory)](bool live) mutable -> absl::Status {
        OXBOW_RETURN_IF_ERROR(options.check_directory());
        return io::WriteReport(options.directory, FactsOfRun(options.directory, live), reading);
      },
      kReportEvery);
  return peers;
}

absl::StatusOr<Planning> MakePlanning(const RunStart& start, const Peers& peers) {
  const RunSetup& setup = start.setup;
  const LearnerStep first_step(start.from.committed_steps);
  Planning planning;
  planning.prompts =
      std::make_unique<PromptOrder>(setup.train, setup.config.run().seed(), start.from.prompts);
  planning.budget = std::make_unique<ByteBudget>(setup.config.services().sink_bytes_max());
  planning.assembler = std::make_unique<GroupAssembler>();
  planning.coordinator =
      std::make_unique<Coordinator>(CoordinatorOptionsOf(setup, start.epoch, first_step),
                                    Clock::Steady(), *planning.assembler, *peers.metrics);
  const std::vector<std::string>& buffers = start.options.buffer_endpoints;
  if (!config::UsesReplayBuffer(setup.config) || buffers.empty()) return planning;
  ReplayLink::Options link = ReplayOptionsOf(setup, start.epoch, buffers);
  link.each.run = start.run_uid;
  link.each.take_from = start.options.take_buffer;
  planning.buffer = std::make_unique<ReplayLink>(std::move(link), *peers.metrics);
  planning.buffer->Restore(start.from.buffer_checkpoint, first_step);
  OXBOW_RETURN_IF_ERROR(planning.buffer->ended());
  return planning;
}

absl::StatusOr<Publication> MakePublication(const RunStart& start, const LoadedPolicy& model,
                                            const Peers& peers, const Planning& planning) {
  const RunSetup& setup = start.setup;
  const v1::RunConfig& config = setup.config;
  OXBOW_ASSIGN_OR_RETURN(
      weights::ProbeShape probe_shape,
      weights::ProbeShapeOf(*setup.model.architecture, setup.model.latent_shape, setup.negative));
  weights::JoinBroadcastGroup join_broadcast_group;
  if (config.publish().transport() == v1::TRANSPORT_BROADCAST) {
    join_broadcast_group = weights::JoinOverRanks({.device = config.model().device()});
  }
  Publication out;
  out.channel = std::make_unique<weights::WeightChannelService>(
      weights::WeightChannelService::Options{
          .epoch = start.epoch,
          .snapshots_kept = config.services().snapshots_kept(),
          .fanout = config.services().weight_fanout(),
          .content = &model.conditioning->sent(),
          .join_broadcast_group = std::move(join_broadcast_group),
          .broadcast_device = config.model().device()},
      *peers.publish_metrics, Clock::Steady(), [](const v1::ReportAppliedRequest& report) {
        if (report.failure().empty()) return;
        OXBOW_LOG(Warning) << "worker refused weights" << Field("worker", report.worker_id())
                           << Field("reason", report.failure());
      });
  out.publisher = std::make_unique<Publisher>(
      Publisher::Options{.epoch = start.epoch,
                         .probe_shape = probe_shape,
                         .probe_seed = config.run().seed(),
                         .probe_tolerance = ProbeToleranceOf(setup),
                         .gate = {.reward_floor = config.publish().reward_floor(),
                                  .staleness_max = config.off_policy().staleness_max(),
                                  .best_reward = start.from.best_reward},
                         .decoder = setup.model.autoencoder,
                         .components = setup.model.components},
      *model.policy, *planning.coordinator, *out.channel,
      Publisher::Metrics{*peers.metrics, *peers.publish_metrics},
      [assembler = planning.assembler.get()](const absl::Status& why) { assembler->Stop(why); });
  if (setup.held_out.empty()) return out;
  out.judge = std::make_unique<PictureJudge>(JudgeOptionsOf(setup), setup.held_out, *peers.rewards);
  out.evaluation = std::make_unique<Evaluation>(
      EvaluationOptionsOf(setup, start.epoch, std::move(probe_shape)), setup.held_out,
      Evaluation::Parts{.policy = *model.policy,
                        .conditioning = *model.conditioning,
                        .coordinator = *planning.coordinator,
                        .judge = *out.judge,
                        .published = [channel = out.channel.get()](const std::string& sha256) {
                          return channel->Held(sha256);
                        }});
  return out;
}

RunCheckpoints::RunCheckpoints(const Stages& stages, RankLeader& leader)
    : stages_(stages), leader_(leader), copier_(MakeCopier(stages.start, stages.peers)) {}

// The weights are copied before the other ranks are told: none of them waits for that.
absl::Status RunCheckpoints::Begin(RunState state) {
  const RunStart& start = stages_.start;
  OXBOW_RETURN_IF_ERROR(start.options.check_directory());
  state.run_uid = start.run_uid;
  state.best_reward = stages_.publication.publisher->best_reward();
  state.model_sha256 = stages_.model.sha256;
  CheckpointCopy copy = start.checkpointing.CopyWeights(*stages_.model.policy);
  // An evaluation beside training is owed with weights that the policy has no more.
  const std::vector<uint64_t>& owed = state.owed_evaluations;
  std::optional<weights::Snapshot> cut;
  if (stages_.publication.evaluation != nullptr) cut = stages_.publication.evaluation->TakeCutOff();
  if (cut.has_value() && !owed.empty() && owed.front() != state.committed_steps) {
    copy.chunked.emplace(kOwedWeights, *std::move(cut));
  }
  CheckpointStore::Others others;
  if (stages_.trainer.has_pieces()) {
    OXBOW_RETURN_IF_ERROR(start.checkpointing.store().Prepare(state.committed_steps));
    leader_.AnnounceSave(state.committed_steps);
    others = [this] { return leader_.AwaitSaved(); };
  }
  Checkpointing::AddTrainerState(stages_.trainer, /*rank=*/0, start.options.place.size, copy);
  writer_.Begin([this, state = std::move(state), copy = std::move(copy),
                 others = std::move(others)]() mutable -> absl::Status {
    const RunStart& run = stages_.start;
    const absl::Duration began = Clock::Steady().Now();
    OXBOW_ASSIGN_OR_RETURN(
        const uint64_t bytes,
        run.checkpointing.Write(state, std::move(copy), run.options.check_directory, others));
    stages_.peers.metrics->CheckpointWritten(bytes,
                                             absl::ToDoubleSeconds(Clock::Steady().Now() - began));
    if (copier_ != nullptr) copier_->Copy(state.committed_steps);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

std::string RunCheckpoints::AwaitCopies(uint64_t step, bool complete) {
  if (copier_ == nullptr) return "";
  if (copier_->Finish(complete ? kCopyMax : kCopyMaxOnDrain)) return copier_->last_error();
  OXBOW_LOG(Warning) << "the run ends before the last checkpoint was copied" << Field("step", step);
  return "the copy takes longer than the end may";
}

}  // namespace oxbow::learner
