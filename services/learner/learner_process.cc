#include "services/learner/learner_process.h"

#include <ATen/ATen.h>
#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "core/parallel/c10d_ranks.h"
#include "metrics/step_metrics.h"
#include "run/rewards.h"
#include "run/trainer_options.h"
#include "services/learner/final_weights.h"
#include "services/learner/registration.h"
#include "services/weights/broadcast_group.h"

namespace oxbow::learner {
namespace {

// All groups are in and all weights are out; the remaining streams only wait for more.
constexpr absl::Duration kShutdownGrace = absl::Milliseconds(300);
constexpr absl::Duration kRanksGrace = absl::Seconds(5);

void LogRefusal(const v1::ReportAppliedRequest& report) {
  if (report.failure().empty()) return;
  OXBOW_LOG(Warning) << "worker refused weights" << Field("worker", report.worker_id())
                     << Field("reason", report.failure());
}

// Calls `stop` at the first stop signal. The destructor ends the wait if none came.
class StopSignal {
 public:
  explicit StopSignal(std::function<void()> stop) {
    thread_ = std::thread([stop = std::move(stop)] {
      const int signal = rpc::WaitForStopSignal();
      OXBOW_LOG(Info) << "stopping" << Field("signal", signal);
      stop();
    });
  }
  ~StopSignal() {
    pthread_kill(thread_.native_handle(), SIGTERM);
    thread_.join();
  }

 private:
  std::thread thread_;
};

}  // namespace

LearnerProcess::LearnerProcess(const RunOptions& options, RunSetup setup)
    : options_(options),
      setup_(std::move(setup)),
      checkpointing_(options_.directory, setup_.config) {}

absl::Status LearnerProcess::MakeStart() {
  // Launchers restart all ranks with the same arguments. So --resume must work without a
  // checkpoint, and if there is one, a fresh start is never intended.
  const bool used = !checkpointing_.empty();
  if (used && !options_.resume) {
    return absl::InvalidArgumentError(
        absl::StrCat("the run has checkpoints: go on from them with --resume, or choose another "
                     "--run-dir: ",
                     options_.directory.string()));
  }
  if (used) {
    OXBOW_ASSIGN_OR_RETURN(resumed_, checkpointing_.LoadNewest());
    from_ = resumed_->state;
  }
  OXBOW_ASSIGN_OR_RETURN(epoch_, NextEpoch(options_.directory / "epoch"));
  return absl::OkStatus();
}

absl::Status LearnerProcess::MakeTrainer() {
  OXBOW_ASSIGN_OR_RETURN(policy_, MakePolicy(setup_));
  OXBOW_ASSIGN_OR_RETURN(conditioning_,
                         WarmConditioning(setup_, options_.place.rank, options_.place.size));
  // All slow work is done before this point: from here on the other ranks wait no longer than for a
  // step.
  if (options_.place.size > 1) {
    OXBOW_ASSIGN_OR_RETURN(ranks_, parallel::JoinRanks(options_.place));
  } else {
    ranks_ = parallel::MakeSingleRank();
  }
  trainer_ = std::make_unique<rl::Trainer>(
      run::MakeTrainerOptions(setup_.config, setup_.sampling, setup_.window), *policy_, *ranks_);
  model::NamedTensors state;
  if (resumed_.has_value()) {
    OXBOW_ASSIGN_OR_RETURN(state, checkpointing_.TrainerState(*resumed_));
    OXBOW_RETURN_IF_ERROR(checkpointing_.Restore(*resumed_, *policy_, *trainer_));
    resumed_->files.clear();  // The files are as large as the model and no longer needed.
  }
  if (options_.place.size > 1) {
    OXBOW_RETURN_IF_ERROR(trainer_->TakeStateOfRankZero(std::move(state)));
  }
  prompts_ = std::make_unique<PromptOrder>(setup_.train, setup_.config.run().seed(), from_.prompts);
  return absl::OkStatus();
}

absl::Status LearnerProcess::ConnectPeers() {
  const v1::RewardConfig& reward = setup_.config.reward();
  const std::vector<std::string> reward_names = run::RewardNames(reward);
  OXBOW_ASSIGN_OR_RETURN(exposer_, telemetry::Metrics::Serve(options_.metrics_listen));
  exposer_->WatchDisk("run", options_.directory);
  metrics_ = std::make_unique<LearnerMetrics>(exposer_->registry(), reward_names);
  metrics_->StalenessBudgetIs(setup_.config.off_policy().staleness_max());
  publish_metrics_ = std::make_unique<weights::PublishMetrics>(exposer_->registry());
  OXBOW_ASSIGN_OR_RETURN(
      rewards_, reward::RewardClient::Create({.endpoints = options_.reward_endpoints,
                                              .rewards = reward_names,
                                              .tries = static_cast<int>(reward.tries()),
                                              .timeout = absl::Seconds(reward.timeout_seconds())}));
  std::optional<int64_t> resume_after;
  if (resumed_.has_value()) resume_after = static_cast<int64_t>(from_.committed_steps);
  OXBOW_ASSIGN_OR_RETURN(log_, telemetry::RunLog::Open(options_.directory, resume_after));
  OXBOW_ASSIGN_OR_RETURN(step_log_, StepLog::Open(options_.directory / "steps.jsonl"));
  progress_ =
      std::make_unique<RunProgress>(Clock::Steady(), *metrics_, setup_.config.run().steps());
  return absl::OkStatus();
}

void LearnerProcess::MakeDesk() {
  const LearnerStep first_step(from_.committed_steps);
  budget_ = std::make_unique<ByteBudget>(setup_.config.services().sink_bytes_max());
  coordinator_ = std::make_unique<Coordinator>(CoordinatorOptionsOf(setup_, epoch_, first_step),
                                               Clock::Steady(), assembler_, *metrics_);
  const bool keeps = setup_.config.replay().fraction() > 0 || setup_.config.adaptation().enabled();
  if (!keeps || options_.buffer_endpoints.empty()) return;
  buffer_ = std::make_unique<ReplayLink>(ReplayOptionsOf(setup_, epoch_, options_.buffer_endpoints),
                                         *metrics_);
  buffer_->Restore(from_.buffer_checkpoint);
}

absl::Status LearnerProcess::MakeLoop() {
  const v1::RunConfig& config = setup_.config;
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
                         .decoder = setup_.model.autoencoder},
      *policy_, *coordinator_, *channel_, Publisher::Metrics{*metrics_, *publish_metrics_},
      [this](const absl::Status& why) { assembler_.Stop(why); });
  OXBOW_ASSIGN_OR_RETURN(Evaluation::Options evaluation, EvaluationOptionsOf(setup_));
  evaluation_ = std::make_unique<Evaluation>(std::move(evaluation), setup_.held_out, *conditioning_,
                                             *setup_.model.decoder, *rewards_);
  loop_ = std::make_unique<LearnerLoop>(
      LoopOptionsOf(setup_, epoch_, LearnerStep(from_.committed_steps),
                    log_->resumed_wall_seconds()),
      PartsOfLoop());
  return absl::OkStatus();
}

LearnerLoop::Parts LearnerProcess::PartsOfLoop() {
  const auto publish = [this](PolicyVersion version, LearnerStep committed) {
    return publisher_->Publish(version, committed);
  };
  const auto evaluate = [this]() -> absl::StatusOr<EvaluationResult> {
    const bool ema = setup_.config.eval().use_ema() && setup_.config.ema().enabled();
    OXBOW_ASSIGN_OR_RETURN(EvaluationResult result,
                           evaluation_->Run(ema ? policy_->ema() : policy_->current()));
    publisher_->Evaluated(result.metrics.at(metric::kEvalRewardMean));
    return result;
  };
  const auto checkpoint = [this](RunState state) -> absl::Status {
    state.best_reward = publisher_->best_reward();
    leader_->AnnounceSave();
    OXBOW_ASSIGN_OR_RETURN(const uint64_t bytes,
                           checkpointing_.Write(std::move(state), *policy_, *trainer_));
    metrics_->CheckpointWritten(bytes);
    return absl::OkStatus();
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
          .log = *log_,
          .announce = announce,
          .publish = publish,
          .evaluate = evaluate,
          .checkpoint = checkpoint};
}

absl::Status LearnerProcess::Serve() {
  coordinator_service_ = std::make_unique<CoordinatorService>(
      *coordinator_,
      [this](v1::StatusResponse& status) {
        progress_->FillStatus(status);
        leader_->FillStatus(status);
      },
      v1::RegisterResponse(), [this](const std::string&) { loop_->RequestDrain(); });
  sink_service_ = std::make_unique<ExperienceSinkService>(*coordinator_, *budget_,
                                                          GroupRulesOf(setup_), *metrics_);
  leader_ = std::make_unique<RankLeader>(
      RankLeader::Options{.ranks = ranks_->size(),
                          .timeout = options_.place.operation_timeout,
                          .group_bytes_max = GroupRulesOf(setup_).GroupBytesMax()},
      Clock::Steady(), *coordinator_, [this](const absl::Status& why) {
        assembler_.Stop(why);
        ranks_->Abort(std::string(why.message()));
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
  coordinator_service_->SetRegistration(RegistrationOf(setup_, epoch_,
                                                       {.learner = endpoint,
                                                        .sinks = sinks,
                                                        .rewards = options_.reward_endpoints,
                                                        .buffers = options_.buffer_endpoints}));
  rpc::AnnounceReady("learner", server_->endpoint(), exposer_->endpoint());
  return absl::OkStatus();
}

absl::Status LearnerProcess::Run() {
  const StopSignal stop([this] { loop_->RequestDrain(); });
  absl::Status status = loop_->Run();
  if (status.ok()) {
    status = WriteFinalWeights(options_.directory / "weights", *policy_, setup_.config,
                               setup_.model.transformer_config_json, trainer_->version());
  }
  coordinator_->Drain();
  channel_->Stop();
  options_.ending();
  leader_->Stop(kRanksGrace);
  server_->Shutdown(kShutdownGrace);
  return status;
}

}  // namespace oxbow::learner
