// SPDX-License-Identifier: Apache-2.0
#include "services/learner/learner_process.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/memory_limits.h"
#include "base/status_macros.h"
#include "config/file_paths.h"
#include "config/run_config.h"
#include "config/validate.h"
#include "core/model/image_decoder.h"
#include "core/parallel/c10d_ranks.h"
#include "io/tensor_torch.h"
#include "metrics/step_metrics.h"
#include "run/rewards.h"
#include "run/run_record.h"
#include "run/start_weights.h"
#include "run/trainer_options.h"
#include "services/learner/checkpoint/checkpoint_tensors.h"
#include "services/learner/checkpoint/optimizer_pieces.h"
#include "services/learner/loop/step_rules.h"
#include "services/learner/record/hyper_parameters.h"
#include "services/learner/reward_check.h"
#include "services/weights/broadcast_group.h"

namespace oxbow::learner {
namespace {

// All groups are in and all weights are out; the remaining streams only wait for more.
constexpr absl::Duration kRanksGrace = absl::Seconds(5);

void LogRefusal(const v1::ReportAppliedRequest& report) {
  if (report.failure().empty()) return;
  OXBOW_LOG(Warning) << "worker refused weights" << Field("worker", report.worker_id())
                     << Field("reason", report.failure());
}

// At the end of the run, and of one that drains.
constexpr absl::Duration kCopyMax = absl::Hours(2);
// An open page takes one of twice this age for one of a run that was killed.
constexpr absl::Duration kReportEvery = absl::Minutes(5);
constexpr absl::Duration kCopyMaxOnDrain = absl::Seconds(60);

}  // namespace

LearnerProcess::LearnerProcess(const RunOptions& options, RunSetup setup)
    : options_(options),
      setup_(std::move(setup)),
      checkpointing_(options_.directory, setup_.config, PromptDigestsOf(setup_)) {}

absl::Status LearnerProcess::CheckModel() {
  OXBOW_ASSIGN_OR_RETURN(model_sha256_, model_digests_.get());
  return resumed_.has_value() ? checkpointing_.CheckModel(from_, model_sha256_) : absl::OkStatus();
}

absl::Status LearnerProcess::MakeTrainer() {
  LogCutPrompts();
  OXBOW_ASSIGN_OR_RETURN(policy_, MakePolicy(setup_));
  OXBOW_ASSIGN_OR_RETURN(conditioning_,
                         WarmConditioning(setup_, options_.place.rank, options_.place.size));
  OXBOW_RETURN_IF_ERROR(CheckModel());
  // All slow work is done before this point: from here on the other ranks wait no longer than for a
  // step.
  if (options_.place.size > 1) {
    OXBOW_ASSIGN_OR_RETURN(ranks_, parallel::JoinRanks(options_.place));
  } else {
    ranks_ = parallel::MakeSingleRank();
  }
  if (!resumed_.has_value()) OXBOW_RETURN_IF_ERROR(TakeStartWeights());
  trainer_ = std::make_unique<rl::Trainer>(
      run::MakeTrainerOptions(setup_.config, setup_.sampling, setup_.window), *policy_, *ranks_);
  if (trainer_->has_pieces()) {
    OXBOW_RETURN_IF_ERROR(CheckDirectoryIsShared(*ranks_, options_.directory));
  }
  OXBOW_RETURN_IF_ERROR(RestoreTrainer());
  prompts_ = std::make_unique<PromptOrder>(setup_.train, setup_.config.run().seed(), from_.prompts);
  return absl::OkStatus();
}

// The other ranks get them from this one.
absl::Status LearnerProcess::TakeStartWeights() {
  const v1::LoraConfig& lora = setup_.config.model().lora();
  OXBOW_ASSIGN_OR_RETURN(std::optional<run::StartWeights> start,
                         run::ReadStart(options_.directory));
  if (!start.has_value() && !lora.path().empty()) {
    auto adapter = run::StartFromAdapter(setup_.config.model(), lora.path());
    if (!adapter.ok()) return Annotate(adapter.status(), "model.lora.path");
    start = *std::move(adapter);
    OXBOW_RETURN_IF_ERROR(run::WriteStart(options_.directory, *start));
  }
  if (!start.has_value()) return absl::OkStatus();
  OXBOW_LOG(Info) << "run starts from other weights"
                  << Field("from", run::StartSource(options_.directory));
  OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors weights,
                         io::AllToTorch(std::move(start->tensors)));
  return Annotate(policy_->StartFrom(weights),
                  absl::StrCat("the weights of ", start->from, " are not this model's"));
}

absl::Status LearnerProcess::RestoreTrainer() {
  model::NamedTensors state;
  if (resumed_.has_value()) {
    OXBOW_RETURN_IF_ERROR(checkpointing_.RestoreWeights(*resumed_, *policy_));
    OXBOW_ASSIGN_OR_RETURN(state, checkpointing_.TrainerState(*resumed_));
    OXBOW_RETURN_IF_ERROR(trainer_->LoadState(state));
  }
  return options_.place.size > 1 ? trainer_->TakeStateOfRankZero(std::move(state))
                                 : absl::OkStatus();
}

absl::Status LearnerProcess::ConnectPeers() {
  const v1::RewardConfig& reward = setup_.config.reward();
  const std::vector<std::string> reward_names = run::RewardNames(reward);
  OXBOW_ASSIGN_OR_RETURN(exposer_, telemetry::Metrics::Serve(options_.metrics_listen));
  exposer_->WatchDisk("run", options_.directory);
  metrics_ = std::make_unique<LearnerMetrics>(exposer_->registry());
  metrics_->StalenessBudgetIs(setup_.config.off_policy().staleness_max());
  publish_metrics_ = std::make_unique<weights::PublishMetrics>(exposer_->registry());
  OXBOW_ASSIGN_OR_RETURN(rewards_,
                         reward::RewardClient::Connect(
                             {.endpoints = options_.reward_endpoints,
                              .elsewhere = {reward.endpoints().begin(), reward.endpoints().end()},
                              .rewards = reward_names,
                              .observed = {reward.observed().begin(), reward.observed().end()},
                              .not_asked = run::RewardsNotAsked(reward, options_.reward_endpoints),
                              .tries = static_cast<int>(reward.tries()),
                              .timeout = absl::Seconds(reward.timeout_seconds()),
                              .transport = reward.transport()}));
  std::optional<int64_t> resume_after;
  // At step 0 the run begins again, with its line.
  if (resumed_.has_value()) {
    resume_after = static_cast<int64_t>(from_.committed_steps);
    if (resume_after == 0) resume_after = -1;
  }
  OXBOW_ASSIGN_OR_RETURN(log_, telemetry::RunLog::Open(options_.directory, resume_after));
  OXBOW_RETURN_IF_ERROR(
      log_->Text(std::max<int64_t>(resume_after.value_or(0), 0), "config",
                 absl::StrCat("```yaml\n", config::ResolvedYaml({setup_.config, {}}), "```\n")));
  if (!resume_after.has_value()) {
    OXBOW_RETURN_IF_ERROR(log_->HyperParameters(HyperParametersOf(setup_.config)));
  }
  OXBOW_ASSIGN_OR_RETURN(
      step_log_, StepLog::Open(options_.directory / "steps.jsonl", options_.check_directory));
  progress_ = std::make_unique<RunProgress>(Clock::Steady(), *metrics_, setup_.config.run().steps(),
                                            from_.committed_steps, from_.policy_version);
  NoticeDamage();
  return absl::OkStatus();
}

absl::Status LearnerProcess::MakeDesk() {
  const LearnerStep first_step(from_.committed_steps);
  budget_ = std::make_unique<ByteBudget>(setup_.config.services().sink_bytes_max());
  coordinator_ = std::make_unique<Coordinator>(CoordinatorOptionsOf(setup_, epoch_, first_step),
                                               Clock::Steady(), assembler_, *metrics_);
  if (!config::UsesReplayBuffer(setup_.config) || options_.buffer_endpoints.empty()) {
    return absl::OkStatus();
  }
  ReplayLink::Options link = ReplayOptionsOf(setup_, epoch_, options_.buffer_endpoints);
  link.each.run = run_uid_;
  link.each.take_from = options_.take_buffer;
  buffer_ = std::make_unique<ReplayLink>(std::move(link), *metrics_);
  buffer_->Restore(from_.buffer_checkpoint, LearnerStep(from_.committed_steps));
  return buffer_->ended();
}

absl::Status LearnerProcess::MakeCheckpointWriter() {
  const v1::CheckpointConfig& config = setup_.config.checkpoint();
  if (!config.copy_to().empty()) {
    OXBOW_ASSIGN_OR_RETURN(config::CopyTarget target, config::ParseCopyTarget(config.copy_to()));
    copier_ = std::make_unique<CheckpointCopier>(
        CheckpointCopier::Options{.checkpoints = options_.directory / "checkpoints",
                                  .target = std::move(target),
                                  .run_uid = run_uid_,
                                  .epoch = epoch_.value,
                                  .keep = config.keep(),
                                  .best = config.best(),
                                  .command_max = kCopyMax},
        [this, said = false](const absl::Status& copied) mutable {
          metrics_->CheckpointCopied(copied.ok());
          if (copied.ok() || std::exchange(said, true)) return;
          progress_->Notice(absl::StrCat("a checkpoint was not copied to checkpoint.copy_to: ",
                                         std::string(copied.message())));
        });
  }
  writer_ = std::make_unique<CheckpointWriter>();
  return absl::OkStatus();
}

// The weights are copied before the other ranks are told: none of them waits for that.
absl::Status LearnerProcess::BeginCheckpoint(RunState state) {
  OXBOW_RETURN_IF_ERROR(options_.check_directory());
  state.run_uid = run_uid_;
  state.best_reward = publisher_->best_reward();
  state.reward_identities = reward_identities_;
  state.model_sha256 = model_sha256_;
  CheckpointCopy copy = checkpointing_.CopyWeights(*policy_);
  // An evaluation beside training is owed with weights that the policy has no more.
  const std::vector<uint64_t>& owed = state.owed_evaluations;
  std::optional<weights::Snapshot> cut;
  if (evaluation_ != nullptr) cut = evaluation_->TakeCutOff();
  if (cut.has_value() && !owed.empty() && owed.front() != state.committed_steps) {
    copy.chunked.emplace(kOwedWeights, *std::move(cut));
  }
  CheckpointStore::Others others;
  if (trainer_->has_pieces()) {
    OXBOW_RETURN_IF_ERROR(checkpointing_.Prepare(state.committed_steps));
    leader_->AnnounceSave(state.committed_steps);
    others = [this] { return leader_->AwaitSaved(); };
  }
  Checkpointing::AddTrainerState(*trainer_, /*rank=*/0, ranks_->size(), copy);
  writer_->Begin([this, state = std::move(state), copy = std::move(copy),
                  others = std::move(others)]() mutable -> absl::Status {
    const absl::Duration began = Clock::Steady().Now();
    OXBOW_ASSIGN_OR_RETURN(
        const uint64_t bytes,
        checkpointing_.Write(state, std::move(copy), options_.check_directory, others));
    metrics_->CheckpointWritten(bytes, absl::ToDoubleSeconds(Clock::Steady().Now() - began));
    if (copier_ != nullptr) copier_->Copy(state.committed_steps);
    return absl::OkStatus();
  });
  return absl::OkStatus();
}

absl::Status LearnerProcess::MakeLoop() {
  const v1::RunConfig& config = setup_.config;
  OXBOW_RETURN_IF_ERROR(MakeCheckpointWriter());
  OXBOW_ASSIGN_OR_RETURN(weights::ProbeShape probe_shape,
                         weights::ProbeShapeOf(*setup_.model.architecture,
                                               setup_.model.latent_shape, setup_.negative));
  weights::JoinBroadcastGroup join_broadcast_group;
  if (config.publish().transport() == v1::TRANSPORT_BROADCAST) {
    join_broadcast_group = weights::JoinOverRanks({.device = config.model().device()});
  }
  channel_ = std::make_unique<weights::WeightChannelService>(
      weights::WeightChannelService::Options{
          .epoch = epoch_,
          .snapshots_kept = config.services().snapshots_kept(),
          .fanout = config.services().weight_fanout(),
          .content = &conditioning_->sent(),
          .join_broadcast_group = std::move(join_broadcast_group),
          .broadcast_device = config.model().device()},
      *publish_metrics_, Clock::Steady(), LogRefusal);
  publisher_ = std::make_unique<Publisher>(
      Publisher::Options{.epoch = epoch_,
                         .probe_shape = probe_shape,
                         .probe_seed = config.run().seed(),
                         .probe_tolerance = ProbeToleranceOf(setup_),
                         .gate = {.reward_floor = config.publish().reward_floor(),
                                  .staleness_max = config.off_policy().staleness_max(),
                                  .best_reward = from_.best_reward},
                         .decoder = setup_.model.autoencoder,
                         .components = setup_.model.components},
      *policy_, *coordinator_, *channel_, Publisher::Metrics{*metrics_, *publish_metrics_},
      [this](const absl::Status& why) { assembler_.Stop(why); });
  if (!setup_.held_out.empty()) MakeEvaluation(std::move(probe_shape));
  LearnerLoop::Options options = LoopOptionsOf(setup_, epoch_, LearnerStep(from_.committed_steps),
                                               log_->resumed_wall_seconds());
  const auto best = checkpointing_.Best(options.checkpoints.best_metric);
  if (best.has_value()) options.checkpoints.best_before = best->value;
  options.evaluations.directory = options_.directory;
  options.evaluations.owed = {from_.owed_evaluations.begin(), from_.owed_evaluations.end()};
  OXBOW_RETURN_IF_ERROR(ReadStopValues(options));
  report_ =
      std::make_unique<LiveReport>([this] { return WriteReport(/*live=*/true); }, kReportEvery);
  loop_ = std::make_unique<LearnerLoop>(
      std::move(options), PartsOfLoop(),
      RulesOf(setup_, from_, *prompts_, *conditioning_, buffer_.get()));
  return absl::OkStatus();
}

void LearnerProcess::MakeEvaluation(weights::ProbeShape probe_shape) {
  judge_ = std::make_unique<PictureJudge>(JudgeOptionsOf(setup_), setup_.held_out, *rewards_);
  evaluation_ = std::make_unique<Evaluation>(
      EvaluationOptionsOf(setup_, epoch_, std::move(probe_shape)), setup_.held_out,
      Evaluation::Parts{
          .policy = *policy_,
          .conditioning = *conditioning_,
          .coordinator = *coordinator_,
          .judge = *judge_,
          .published = [this](const std::string& sha256) { return channel_->Held(sha256); }});
}

// `owed`: the weights after these many steps, which may be none that the policy has.
absl::Status LearnerProcess::BeginEvaluation(std::optional<uint64_t> owed) {
  if (!owed.has_value() || *owed == from_.committed_steps) {
    return evaluation_->Begin(trainer_->version());
  }
  OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors weights, OwedWeightsOf(*resumed_, *owed));
  return evaluation_->Begin(trainer_->version(), &weights);
}

absl::StatusOr<EvaluationResult> LearnerProcess::AwaitEvaluation() {
  absl::StatusOr<EvaluationResult> result =
      evaluation_->Await([this] { return assembler_.stopped(); });
  if (result.ok()) publisher_->Evaluated(result->metrics.at(metric::kEvalRewardMean));
  return result;
}

// The values of the rules' metrics before this start, from the lines that the log has kept.
absl::Status LearnerProcess::ReadStopValues(LearnerLoop::Options& options) const {
  if (!resumed_.has_value() || options.stop_if.empty()) return absl::OkStatus();
  uint64_t offset = 0;
  return io::ReadMetricsFrom(options_.directory / io::kMetricsFile, offset, [&](const auto& line) {
    config::AddValues(options.stop_if, static_cast<uint64_t>(line.at(metric::kStep)), line,
                      options.stop_values);
  });
}

LoopParts LearnerProcess::PartsOfLoop() {
  const auto publish = [this](PolicyVersion version, LearnerStep committed) {
    return publisher_->Publish(version, committed);
  };
  std::function<uint64_t()> copies_failed;
  if (copier_ != nullptr) copies_failed = [this] { return copier_->failures(); };
  const auto cancel_scoring = [this] {
    if (evaluation_ != nullptr) evaluation_->Cancel();
    rewards_->Cancel();
  };
  const auto announce = [this](LearnerStep step, const std::vector<ReceivedGroup>& received,
                               const std::vector<PlannedGroup>& planned) {
    leader_->Announce(step, received, planned);
  };
  return {.trainer = *trainer_,
          .conditioning = *conditioning_,
          .prompts = *prompts_,
          .coordinator = *coordinator_,
          .assembler = assembler_,
          .buffer = buffer_.get(),
          .step_log = *step_log_,
          .progress = *progress_,
          .metrics = *metrics_,
          .ranges = ranges_,
          .log = *log_,
          .announce = announce,
          .publish = publish,
          .begin_evaluation = [this](auto owed) { return BeginEvaluation(owed); },
          .await_evaluation = [this] { return AwaitEvaluation(); },
          .cancel_scoring = cancel_scoring,
          .await_checkpoint = [this] { return writer_->Finish(); },
          .checkpoint_ended = [this] { return writer_->Ended(); },
          .checkpoint = [this](RunState state) { return BeginCheckpoint(std::move(state)); },
          .copies_failed = copies_failed,
          .logged = [this] { report_->Ask(); }};
}

absl::Status LearnerProcess::Serve() {
  coordinator_service_ = std::make_unique<CoordinatorService>(
      *coordinator_,
      [this](v1::StatusResponse& status) {
        progress_->FillStatus(status);
        leader_->FillStatus(status);
      },
      v1::RegisterResponse(),
      [this](const std::string& reason) { Drain(absl::StrCat("a Drain call: ", reason)); },
      [this](const std::string& worker) { return channel_->RelayOf(worker); });
  sink_service_ = std::make_unique<ExperienceSinkService>(*coordinator_, *budget_,
                                                          GroupRulesOf(setup_), *metrics_);
  leader_ = std::make_unique<RankLeader>(
      RankLeader::Options{.ranks = ranks_->size(),
                          .timeout = options_.place.operation_timeout,
                          .group_bytes_max = GroupRulesOf(setup_).GroupBytesMax(),
                          .drain = [this](const std::string& by) { Drain(by); }},
      Clock::Steady(), *coordinator_, [this](const absl::Status& why) {
        assembler_.Stop(why);
        ranks_->Abort(why);
      });
  OXBOW_ASSIGN_OR_RETURN(
      server_, rpc::Server::Start({.listen = options_.listen},
                                  {coordinator_service_.get(), sink_service_.get(), channel_.get(),
                                   leader_.get()}));
  std::string endpoint = server_->endpoint();
  OXBOW_RETURN_IF_ERROR(ranks_->BroadcastBytes(endpoint, 0));
  OXBOW_RETURN_IF_ERROR(leader_->AwaitAll(options_.place.operation_timeout));
  std::vector<std::string> sinks = leader_->sinks();
  sinks.insert(sinks.begin(), endpoint);
  registration_ = RegistrationOf(setup_, epoch_,
                                 {.learner = endpoint,
                                  .sinks = sinks,
                                  .rewards = options_.reward_endpoints,
                                  .buffers = options_.buffer_endpoints});
  OXBOW_RETURN_IF_ERROR(AddHeldOut(setup_, registration_));
  coordinator_service_->SetRegistration(registration_);
  if (!options_.supervised) OXBOW_RETURN_IF_ERROR(WriteOwnEndpoints());
  LogMemoryLimits({{"received", setup_.config.services().sink_bytes_max()},
                   {"backlog", LimitOf(kBacklogShare)},
                   {"prompts", LimitOf(kPromptsShare)},
                   {"grpc", LimitOf(kGrpcShare)}});
  rpc::AnnounceReady("learner", server_->endpoint(), exposer_->endpoint());
  return absl::OkStatus();
}

// The last checkpoint is worth a copy more than any other, but not for ever.
std::string LearnerProcess::AwaitCopies() {
  if (copier_ == nullptr) return "";
  const bool complete =
      loop_->committed() == setup_.config.run().steps() || loop_->stop_reason().has_value();
  if (copier_->Finish(complete ? kCopyMax : kCopyMaxOnDrain)) return copier_->last_error();
  OXBOW_LOG(Warning) << "the run ends before the last checkpoint was copied"
                     << Field("step", loop_->committed());
  return "the copy takes longer than the end may";
}

// Has a grey picture or video of such latents scored.
absl::Status LearnerProcess::TryGrey(std::vector<int64_t> shape) {
  const at::NoGradGuard no_grad;
  shape.insert(shape.begin(), 1);
  const at::Tensor latent = at::zeros(
      shape, at::TensorOptions(at::kFloat).device(at::Device(setup_.config.model().device())));
  const std::vector<Image8> grey = model::FramesOf(setup_.model.decoder->Decode(latent).cpu(), 0);
  progress_->Enter("rewards");
  const absl::Status status = CheckRewards(
      *rewards_, setup_.held_out.empty() ? setup_.train : setup_.held_out, grey,
      [this](const std::string& why) { coordinator_->events().NoteFailure(kRewardCheck, why); });
  progress_->Enter("plan");
  return status;
}

// Checks the rewards with what the run has them score: pictures of its size and of evaluation's.
absl::Status LearnerProcess::TryRewards() {
  OXBOW_RETURN_IF_ERROR(TryGrey(setup_.model.latent_shape));
  if (!setup_.held_out.empty() && setup_.evaluated_shape != setup_.model.latent_shape) {
    OXBOW_RETURN_IF_ERROR(
        Annotate(TryGrey(setup_.evaluated_shape), "pictures of eval.height and eval.width"));
  }
  const std::map<std::string, reward::RewardFacts> facts = rewards_->Facts();
  if (!options_.accept_reward_change) {
    OXBOW_RETURN_IF_ERROR(CheckIdentities(facts, from_.reward_identities));
  }
  std::map<std::string, reward::RewardFacts> ranged = facts;
  std::erase_if(ranged, [&](const auto& reward) {  // That protocol has no range.
    return run::ScorerOf(setup_.config.reward(), reward.first).kind() == "json";
  });
  ranges_ = RangeWatch(std::move(ranged));
  reward_identities_ = IdentitiesOf(facts, from_.reward_identities);
  PinRewards();
  for (const auto& [name, identity] : reward_identities_) {
    OXBOW_LOG(Info) << "reward" << Field("reward", name) << Field("identity", identity);
  }
  return absl::OkStatus();
}

// From here on a server whose reward is another is asked by nobody.
void LearnerProcess::PinRewards() {
  rewards_->Pin(reward_identities_);
  registration_.mutable_reward_identities()->insert(reward_identities_.begin(),
                                                    reward_identities_.end());
  coordinator_service_->SetRegistration(registration_);
}

void LearnerProcess::Drain(const std::string& by) {
  {
    absl::MutexLock lock(&drain_mutex_);
    if (drained_by_.empty()) drained_by_ = by;
  }
  loop_->RequestDrain();
}

// OK after the last step.
absl::Status LearnerProcess::EarlyEnd() const {
  const uint64_t steps = setup_.config.run().steps();
  if (loop_->stop_reason().has_value()) {
    return ErrorOf(kExitStopped, absl::StrCat("stopped at step ", loop_->committed(), " of ", steps,
                                              ": ", *loop_->stop_reason()));
  }
  if (loop_->committed() == steps) return absl::OkStatus();
  absl::MutexLock lock(&drain_mutex_);
  return ErrorOf(kExitDrained,
                 absl::StrCat("drained at step ", loop_->committed(), " of ", steps, " by ",
                              drained_by_, "; started with --resume it goes on"));
}

absl::Status LearnerProcess::Run() {
  options_.stop->Finish([this](int signal) { Drain(rpc::NameOfSignal(signal)); });
  absl::Status status = TryRewards();
  if (status.ok()) status = loop_->Run();
  if (evaluation_ != nullptr && !status.ok()) {
    evaluation_->Cancel();
    rewards_->Cancel();
  }
  absl::Status end = status.ok() ? EarlyEnd() : absl::OkStatus();
  const bool complete = status.ok() && ExitCodeOf(end) != kExitDrained;
  if (status.ok()) {
    status = loop_->disk().Persist("weights", [&]() -> absl::Status {
      OXBOW_RETURN_IF_ERROR(options_.check_directory());
      if (loop_->committed() == 0) return WriteEnd(end);  // Nothing was trained: no weights/.
      OXBOW_RETURN_IF_ERROR(WriteFinalWeights(options_.directory / "weights", *policy_,
                                              setup_.config, setup_.model.transformer_config_json,
                                              trainer_->version()));
      return WriteEnd(end);
    });
  }
  WriteLastReport();
  if (const std::string uncopied = status.ok() ? AwaitCopies() : ""; !uncopied.empty()) {
    WriteEnd(end, uncopied).IgnoreError();  // The end is written, without this.
  }
  coordinator_->Drain(complete && status.ok() ? DrainReason::kRunComplete
                                              : DrainReason::kLearnerEnds);
  channel_->Stop();
  options_.ending();
  leader_->Stop(kRanksGrace, end);
  server_->Shutdown(kShutdownGrace);
  return status.ok() ? end : status;
}

}  // namespace oxbow::learner
