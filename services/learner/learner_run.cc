#include "services/learner/learner_run.h"

#include <ATen/ATen.h>
#include <pthread.h>
#include <signal.h>

#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "core/model/policy.h"
#include "core/parallel/ranks.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"
#include "rpc/convert.h"
#include "rpc/convert_torch.h"
#include "rpc/server.h"
#include "services/learner/coordinator_service.h"
#include "services/learner/experience_sink_service.h"
#include "services/learner/final_weights.h"
#include "services/learner/learner_loop.h"
#include "services/learner/loaded_model.h"
#include "services/learner/trainer_options.h"
#include "services/weights/probe.h"
#include "services/weights/weight_channel_service.h"
#include "telemetry/metrics.h"

namespace oxbow::learner {
namespace {

constexpr char kWeights[] = "weights.safetensors";
constexpr char kEma[] = "ema.safetensors";
constexpr char kOptimizer[] = "optimizer.safetensors";
// All groups are in and all weights are out; what is still open are streams that wait for more.
constexpr absl::Duration kShutdownGrace = absl::Milliseconds(300);

weights::TensorBytesByName BytesOf(const model::NamedTensors& tensors) {
  weights::TensorBytesByName bytes;
  for (const auto& [name, tensor] : tensors) bytes[name] = io::FromTorch(tensor.detach());
  return bytes;
}

std::string FileOf(const model::NamedTensors& tensors) {
  return io::SerializeSafetensors({.tensors = BytesOf(tensors), .metadata = {}});
}

absl::StatusOr<model::NamedTensors> TensorsOf(const Checkpoint& checkpoint,
                                              const std::string& file) {
  const auto found = checkpoint.files.find(file);
  if (found == checkpoint.files.end()) {
    return absl::DataLossError(absl::StrCat("checkpoint lacks a file: ", file));
  }
  OXBOW_ASSIGN_OR_RETURN(const io::Safetensors parsed, io::ParseSafetensors(found->second, file));
  model::NamedTensors tensors;
  for (const auto& [name, bytes] : parsed.tensors) {
    OXBOW_ASSIGN_OR_RETURN(tensors[name], io::ToTorch(bytes));
  }
  return tensors;
}

// What a resumed run must share with the one it goes on from: all but how long, how often and
// where.
std::string ConfigFingerprint(v1::RunConfig config) {
  config.mutable_run()->clear_steps();
  config.clear_eval();
  config.clear_checkpoint();
  config.clear_services();
  config.mutable_reward()->clear_endpoints();
  return Sha256Hex(config.DebugString());
}

v1::DType StorageDType(const v1::SamplingConfig& sampling) {
  switch (sampling.storage()) {
    case v1::STORAGE_D_TYPE_F16:
      return v1::DTYPE_F16;
    case v1::STORAGE_D_TYPE_BF16:
      return v1::DTYPE_BF16;
    default:
      return v1::DTYPE_F32;
  }
}

}  // namespace

absl::Status RunLearner(RunOptions options) {
  v1::RunConfig& config = options.config;
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);

  // What is read from disk.
  OXBOW_ASSIGN_OR_RETURN(LoadedModel loaded, LoadModel(config.model(), config.sampling()));
  if (config.sampling().shift() == 0) config.mutable_sampling()->set_shift(loaded.shift);
  OXBOW_ASSIGN_OR_RETURN(const flow::SamplingSpec sampling,
                         rpc::SamplingSpecFromConfig(config.sampling()));
  const int kept = KeptStepsOf(config, sampling);
  config.mutable_method()->set_kept_steps(static_cast<uint32_t>(kept));
  OXBOW_ASSIGN_OR_RETURN(std::vector<v1::Prompt> train, ReadPrompts(config.prompts().train()));
  if (train.size() < config.batch().groups()) {
    return absl::InvalidArgumentError(absl::StrCat("prompts.train has ", train.size(),
                                                   " prompts, batch.groups needs ",
                                                   config.batch().groups()));
  }
  std::vector<v1::Prompt> held_out;
  if (config.eval().every() > 0) {
    OXBOW_ASSIGN_OR_RETURN(held_out, ReadPrompts(config.prompts().eval()));
  }
  const CheckpointStore store(options.directory / "checkpoints", config.checkpoint().keep());
  std::optional<Checkpoint> resumed;
  if (options.resume) {
    OXBOW_ASSIGN_OR_RETURN(resumed, store.LoadNewest());
    if (resumed->state.config_sha256 != ConfigFingerprint(config)) {
      return absl::FailedPreconditionError(
          "the checkpoint is of another config: resume with the config it was made with");
    }
  }
  const RunState from = resumed.has_value() ? resumed->state : RunState{};
  OXBOW_ASSIGN_OR_RETURN(const Epoch epoch, NextEpoch(options.directory / "epoch"));

  // Model and trainer.
  OXBOW_ASSIGN_OR_RETURN(
      const std::unique_ptr<model::Policy> policy,
      model::Policy::Create({.architecture = loaded.architecture,
                             .config_json = loaded.transformer_config_json,
                             .base = std::move(loaded.transformer),
                             .trained = config.model().trained() == v1::TRAINED_PART_LORA
                                            ? model::Trained::kLora
                                            : model::Trained::kFull,
                             .lora = {.rank = config.model().lora().rank(),
                                      .alpha = config.model().lora().alpha(),
                                      .targets = {config.model().lora().targets().begin(),
                                                  config.model().lora().targets().end()}},
                             .lora_seed = config.run().seed(),
                             .with_reference = true,
                             .with_ema = config.ema().enabled(),
                             .trainable = true}));
  const std::unique_ptr<parallel::Ranks> ranks = parallel::MakeSingleRank();
  rl::Trainer trainer(MakeTrainerOptions(config, sampling), *policy, *ranks);
  if (resumed.has_value()) {
    OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors weights, TensorsOf(*resumed, kWeights));
    OXBOW_RETURN_IF_ERROR(policy->Load(weights));
    OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors state, TensorsOf(*resumed, kOptimizer));
    OXBOW_RETURN_IF_ERROR(trainer.LoadState(state));
    if (config.ema().enabled()) {
      OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors ema, TensorsOf(*resumed, kEma));
      policy->ema_parameters().CopyFrom(model::ParameterSet(ema, /*trainable=*/false));
    }
  }
  ConditioningCache conditioning(std::move(loaded.encoder));
  OXBOW_RETURN_IF_ERROR(conditioning.Warm(train));
  OXBOW_RETURN_IF_ERROR(conditioning.Warm(held_out));
  PromptOrder prompts(std::move(train), config.run().seed(), from.prompts);

  // Peers and what people read.
  std::map<std::string, double> reward_weights;
  std::vector<std::string> reward_names(config.reward().observed().begin(),
                                        config.reward().observed().end());
  for (const v1::RewardTerm& term : config.reward().terms()) {
    reward_weights[term.name()] = term.weight();
    reward_names.push_back(term.name());
  }
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<telemetry::Metrics> exposer,
                         telemetry::Metrics::Serve(options.metrics_listen));
  LearnerMetrics metrics(exposer->registry(), reward_names);
  OXBOW_ASSIGN_OR_RETURN(
      const std::unique_ptr<reward::RewardClient> rewards,
      reward::RewardClient::Create({.endpoints = options.reward_endpoints,
                                    .rewards = reward_names,
                                    .tries = static_cast<int>(config.reward().tries()),
                                    .timeout = absl::Seconds(config.reward().timeout_seconds())}));
  OXBOW_ASSIGN_OR_RETURN(
      const std::unique_ptr<telemetry::RunLog> log,
      resumed.has_value()
          ? telemetry::RunLog::Open(options.directory, static_cast<int64_t>(from.committed_steps))
          : telemetry::RunLog::Open(options.directory));
  OXBOW_ASSIGN_OR_RETURN(StepLog step_log, StepLog::Open(options.directory / "steps.jsonl"));
  const Clock& clock = Clock::Steady();
  RunBoard board(clock, metrics, config.run().steps());

  // Who works on what.
  GroupRules rules{.latent_shape = loaded.latent_shape,
                   .storage = StorageDType(config.sampling()),
                   .schedule_id = sampling.Id(),
                   .sde = sampling.sde,
                   .transitions_needed = TransitionsNeeded(config, sampling),
                   .group_size = config.batch().group_size()};
  const uint64_t bytes_needed =
      rules.GroupBytesMax() * config.batch().groups() * (config.off_policy().staleness_max() + 2);
  if (config.services().sink_bytes_max() < bytes_needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("services.sink_bytes_max is too small for the groups of a step: ",
                     config.services().sink_bytes_max(), ", needs ", bytes_needed));
  }
  GroupAssembler assembler;
  ByteBudget budget(config.services().sink_bytes_max());
  Coordinator coordinator(
      {.leases = {.epoch = epoch,
                  .first_step = LearnerStep(from.committed_steps),
                  .groups_per_step = config.batch().groups(),
                  .staleness_max = config.off_policy().staleness_max(),
                  .lease_time = absl::Seconds(config.services().lease_seconds())},
       .rules = rules,
       .departure_grace = absl::Seconds(config.services().lease_seconds() / 10)},
      clock, assembler, metrics);
  std::unique_ptr<ReplayLink> buffer;
  if (config.replay().fraction() > 0 && !options.buffer_endpoints.empty()) {
    buffer = std::make_unique<ReplayLink>(
        ReplayLink::Options{.endpoints = options.buffer_endpoints,
                            .timeout = absl::Seconds(config.services().rpc_timeout_seconds()),
                            .epoch = epoch,
                            .seed = config.run().seed(),
                            .kept_steps = static_cast<uint32_t>(kept),
                            .schedule_id = sampling.Id(),
                            .latent_bytes = rules.GroupBytesMax() / rules.group_size /
                                            static_cast<uint64_t>(rules.steps() + 1)},
        metrics);
    buffer->Restore(from.buffer_checkpoint);
  }

  // Weights that go out.
  OXBOW_ASSIGN_OR_RETURN(
      const weights::ProbeShape probe_shape,
      weights::ProbeShapeOf(loaded.transformer_config_json, loaded.latent_shape));
  weights::PublishMetrics publish_metrics(exposer->registry());
  weights::WeightChannelService channel(
      {.epoch = epoch, .snapshots_kept = config.services().snapshots_kept()}, publish_metrics,
      clock, [](const v1::ReportAppliedRequest& report) {
        if (report.failure().empty()) return;
        OXBOW_LOG(Warning) << "worker refused weights" << Field("worker", report.worker_id())
                           << Field("reason", report.failure());
      });
  const weights::TensorBytesByName frozen = BytesOf(policy->frozen());
  const auto publish = [&](PolicyVersion version, LearnerStep committed) -> absl::Status {
    weights::Snapshot snapshot =
        weights::MakeSnapshot({.epoch = epoch, .version = version, .step = committed}, frozen,
                              BytesOf(policy->parameters().tensors()));
    *snapshot.manifest.mutable_probe() =
        weights::RunProbe(policy->current(), probe_shape, config.run().seed());
    // Known before it is announced, or a quick worker would name a version nobody has heard of.
    coordinator.Published(version, committed);
    OXBOW_RETURN_IF_ERROR(channel.Publish(std::move(snapshot)));
    metrics.VersionIs(version.value, version.value);
    return absl::OkStatus();
  };

  const uint32_t eval_steps =
      config.eval().steps() > 0 ? config.eval().steps() : config.sampling().steps();
  v1::SamplingConfig eval_sampling = config.sampling();
  eval_sampling.set_steps(eval_steps);
  eval_sampling.set_dynamics(v1::DYNAMICS_KIND_ODE);
  eval_sampling.set_sde_count(0);
  eval_sampling.set_sde_first(0);
  OXBOW_ASSIGN_OR_RETURN(const flow::SamplingSpec eval_spec,
                         rpc::SamplingSpecFromConfig(eval_sampling));
  Evaluation evaluation({.images = config.eval().images(),
                         .sheet_images = config.eval().grid_images(),
                         .sigmas = eval_spec.sigmas,
                         .latent_shape = loaded.latent_shape,
                         .seed = config.run().seed(),
                         .weights = reward_weights},
                        held_out, conditioning, *loaded.decoder, *rewards);

  LearnerLoop loop({.epoch = epoch,
                    .first_step = LearnerStep(from.committed_steps),
                    .steps = config.run().steps(),
                    .groups = config.batch().groups(),
                    .fraction = config.replay().fraction(),
                    .staleness_max = config.off_policy().staleness_max(),
                    .publish_every = config.off_policy().publish_every(),
                    .eval_every = config.eval().every(),
                    .checkpoint_every = config.checkpoint().every(),
                    .checkpoints_kept = config.checkpoint().keep(),
                    .wall_seconds_before = log->resumed_wall_seconds(),
                    .offers = {.run_seed = config.run().seed(),
                               .run_fingerprint = Fingerprint64(config.run().name()),
                               .requires_std = config.replay().insert_requires_std(),
                               .transitions = TransitionsNeeded(config, sampling),
                               .sigmas = sampling.sigmas}},
                   {.trainer = trainer,
                    .conditioning = conditioning,
                    .prompts = prompts,
                    .coordinator = coordinator,
                    .assembler = assembler,
                    .buffer = buffer.get(),
                    .step_log = step_log,
                    .board = board,
                    .metrics = metrics,
                    .log = *log,
                    .publish = publish,
                    .evaluate =
                        [&] {
                          const bool ema = config.eval().use_ema() && config.ema().enabled();
                          return evaluation.Run(ema ? policy->ema() : policy->current());
                        },
                    .checkpoint = [&](RunState state) -> absl::Status {
                      state.config_sha256 = ConfigFingerprint(config);
                      Checkpoint checkpoint{.state = std::move(state), .files = {}};
                      checkpoint.files[kWeights] = FileOf(policy->parameters().tensors());
                      if (config.ema().enabled())
                        checkpoint.files[kEma] = FileOf(policy->ema_parameters().tensors());
                      checkpoint.files[kOptimizer] = FileOf(trainer.State());
                      OXBOW_ASSIGN_OR_RETURN(const uint64_t bytes, store.Write(checkpoint));
                      metrics.CheckpointWritten(bytes);
                      return absl::OkStatus();
                    }});

  // Serve, announce, run.
  CoordinatorService coordinator_service(coordinator, board, {},
                                         [&](const std::string&) { loop.RequestDrain(); });
  ExperienceSinkService sink_service(coordinator, budget, rules, metrics);
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::Server> server,
                         rpc::Server::Start({.listen = options.listen},
                                            {&coordinator_service, &sink_service, &channel}));
  v1::RegisterResponse registration;
  registration.set_epoch(epoch.value);
  registration.set_run_id(absl::StrCat(config.run().name(), "-", epoch.value));
  *registration.mutable_config() = config;
  registration.set_transformer_config_json(loaded.transformer_config_json);
  registration.set_autoencoder_config_json(loaded.autoencoder_config_json);
  registration.add_sink_endpoints(server->endpoint());
  registration.add_weight_endpoints(server->endpoint());
  for (const std::string& endpoint : options.reward_endpoints)
    registration.add_reward_endpoints(endpoint);
  for (const std::string& endpoint : options.buffer_endpoints)
    registration.add_buffer_endpoints(endpoint);
  registration.set_lease_seconds(config.services().lease_seconds());
  for (const int64_t size : loaded.latent_shape) registration.add_latent_shape(size);
  coordinator_service.SetRegistration(registration);
  rpc::AnnounceReady("learner", server->endpoint(), exposer->endpoint());

  std::thread signals([&] {
    const int signal = rpc::WaitForStopSignal();
    OXBOW_LOG(Info) << "stopping" << Field("signal", signal);
    loop.RequestDrain();
  });
  absl::Status status = loop.Run();
  if (status.ok()) {
    status = WriteFinalWeights(options.directory / "weights", *policy, config,
                               loaded.transformer_config_json, trainer.version());
  }
  coordinator.Drain();
  channel.Stop();
  server->Shutdown(kShutdownGrace);
  pthread_kill(signals.native_handle(), SIGTERM);  // Ends the wait if no signal came.
  signals.join();
  return status;
}

}  // namespace oxbow::learner
