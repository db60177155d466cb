// SPDX-License-Identifier: Apache-2.0
#include "services/learner/run_setup.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/memory_limits.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "config/chosen_method.h"
#include "config/memory_parts.h"
#include "config/rules.h"
#include "config/validate.h"
#include "config/yaml_message.h"
#include "core/model/device.h"
#include "core/model/lent_base.h"
#include "rpc/convert_torch.h"
#include "run/model_facts.h"
#include "run/prompt_files.h"
#include "run/sampling_spec.h"
#include "run/trainer_options.h"

namespace oxbow::learner {
namespace {

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

// A hung buffer costs a step no more, or a tenth of what the step before took.
constexpr absl::Duration kReplayOfStep = absl::Seconds(3);

constexpr int kRoomTries = 10;
constexpr absl::Duration kRoomPause = absl::Milliseconds(500);

// A deterministic run keeps a head as long as the group may fail at all: the buffer may be back.
uint32_t HeadFailuresMax(const v1::RunConfig& config) {
  return config.run().deterministic() ? lease::LeaseTable::Options().failures_max - 1
                                      : Coordinator::Options().head_failures_max;
}

absl::Status CheckPrompts(const RunSetup& setup) {
  if (setup.train.size() >= setup.config.batch().groups()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("prompts.train has ", setup.train.size(),
                                                 " prompts, batch.groups needs ",
                                                 setup.config.batch().groups()));
}

// `--ranks` and a launcher's world size come after the config was validated.
absl::Status CheckRanks(const RunSetup& setup) {
  const uint32_t ranks = setup.config.learner().ranks();
  const uint32_t groups = setup.config.batch().groups();
  if (groups % ranks == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the number of learner ranks must divide batch.groups: ", ranks, " ranks, ",
                   groups, " groups"));
}

// `config` as it was read: a shift of 0 is another one for another size.
absl::Status ReadEvaluatedSize(const v1::RunConfig& config, RunSetup& setup) {
  OXBOW_ASSIGN_OR_RETURN(run::DrawnSize size,
                         run::EvaluatedSizeOf(setup.model.components, *setup.model.architecture,
                                              setup.model.factors, config));
  setup.evaluated_shape = std::move(size.latent_shape);
  setup.evaluated_sampling = run::EvaluationSampling(config);
  run::ResolveSampling(size.schedule, setup.evaluated_sampling);
  setup.evaluated_sampling.set_guidance(setup.model.guidance);
  setup.evaluated_sampling.set_embedded_guidance(setup.model.embedded_guidance);
  return absl::OkStatus();
}

// The sink must hold every group that can be under way, or workers wait for room for ever.
absl::Status CheckSink(const RunSetup& setup) {
  const uint64_t room = setup.config.services().sink_bytes_max();
  const uint64_t needed = run::SinkBytesNeeded(setup.config, setup.model.latent_shape);
  if (room >= needed) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "services.sink_bytes_max is too small for the groups of a step: ", room, ", needs ", needed));
}

// Room for a base that workers on this GPU share; none where they cannot. Workers of a learner that
// has just ended may still hold its memory (services/rollout/lender_watch.h).
std::optional<model::LentBase> LendBase(const RunSetup& setup) {
  if (setup.lent_base.empty()) return std::nullopt;
  const auto make = [&] {
    return model::LentBase::Make(*setup.model.architecture, setup.compute, setup.device,
                                 setup.lent_base);
  };
  auto lent = make();
  for (int i = 1; i < kRoomTries && absl::IsResourceExhausted(lent.status()); ++i) {
    absl::SleepFor(kRoomPause);
    lent = make();
  }
  if (lent.ok()) return *std::move(lent);
  OXBOW_LOG(Warning) << "workers on this GPU have base weights of their own"
                     << Field("why", lent.status().message());
  return std::nullopt;
}

void PublishBase(model::LentBase lent) {
  const absl::Status published = lent.Publish();
  if (published.ok()) return;
  OXBOW_LOG(Warning) << "workers on this GPU have base weights of their own"
                     << Field("why", published.message());
}

}  // namespace

absl::StatusOr<RunSetup> ReadSetup(v1::RunConfig config) {
  RunSetup setup;
  OXBOW_ASSIGN_OR_RETURN(setup.model,
                         run::LoadModel(config.model(), config.prompts(), config.sampling()));
  OXBOW_RETURN_IF_ERROR(ReadEvaluatedSize(config, setup));
  run::FillLoraTargets(*setup.model.architecture, *config.mutable_model());
  run::ResolveSampling(setup.model.schedule, *config.mutable_sampling());
  config.mutable_sampling()->set_guidance(setup.model.guidance);
  config.mutable_sampling()->set_embedded_guidance(setup.model.embedded_guidance);
  OXBOW_ASSIGN_OR_RETURN(setup.sampling, run::SamplingSpecFromConfig(config.sampling()));
  if (setup.sampling.dynamics != flow::DynamicsKind::kOde) {
    OXBOW_ASSIGN_OR_RETURN(setup.window, run::WindowFromConfig(config.sampling()));
  }
  if (setup.sampling.guidance != 1) {
    OXBOW_ASSIGN_OR_RETURN(setup.negative,
                           setup.model.prompts->Get({config.sampling().negative_prompt()}));
  }
  OXBOW_ASSIGN_OR_RETURN(setup.device, model::DeviceNamed(config.model().device()));
  OXBOW_ASSIGN_OR_RETURN(setup.compute, run::ScalarTypeFromConfig(config.model().compute_dtype(),
                                                                  "model.compute_dtype"));
  OXBOW_RETURN_IF_ERROR(config::FirstError(run::CheckKeptSteps(config, setup.sampling), {}));
  config.mutable_method()->set_kept_steps(
      static_cast<uint32_t>(run::KeptStepsOf(config, setup.sampling)));
  OXBOW_ASSIGN_OR_RETURN(setup.train,
                         run::ReadPrompts(config.prompts().train(), run::PromptSplit::kTrain));
  if (config.eval().every() > 0) {
    OXBOW_ASSIGN_OR_RETURN(setup.held_out,
                           run::ReadPrompts(config.prompts().eval(), run::PromptSplit::kHeldOut));
  }
  setup.config = std::move(config);
  OXBOW_RETURN_IF_ERROR(CheckPrompts(setup));
  OXBOW_RETURN_IF_ERROR(CheckRanks(setup));
  OXBOW_RETURN_IF_ERROR(CheckSink(setup));
  return setup;
}

double ProbeToleranceOf(const RunSetup& setup) {
  const v1::StorageDType workers = config::RolloutType(setup.config.model());
  if (setup.compute != at::kFloat || workers != v1::STORAGE_D_TYPE_F32) return 0.25;
  const bool merged = setup.config.model().lora().merge_for_rollouts();
  return merged || !setup.device.is_cpu() ? 5e-3 : 1e-4;
}

namespace {

absl::StatusOr<std::unique_ptr<model::Policy>> CreatePolicy(const RunSetup& setup, int rank,
                                                            model::ReadTensor read_base) {
  const v1::RunConfig& config = setup.config;
  const v1::LoraConfig& lora = config.model().lora();
  const config::MemoryParts memory = config::MemoryOf(config.model());
  const bool shares = run::SharesWeights(config);
  return model::Policy::Create(
      {.architecture = setup.model.architecture,
       .read_base = std::move(read_base),
       .trained = config.model().trained() == v1::TRAINED_PART_LORA ? model::Trained::kLora
                                                                    : model::Trained::kFull,
       .lora = {.rank = lora.rank(),
                .alpha = lora.alpha(),
                .targets = {lora.targets().begin(), lora.targets().end()}},
       .lora_seed = config.run().seed(),
       .with_reference = run::ReadsReference(config.method()),
       .with_ema = config.ema().enabled(),
       .average_on_host = memory.offload_average,
       .weights_on_host = memory.offload_weights,
       .weights_shared = shares,
       .weights_come = shares && rank > 0 && !run::ReadsReference(config.method()),
       .old = run::OldPolicyOf(config.method()),
       .moving_reference = run::MovesReference(config),
       .trainable = true,
       .guidance = setup.sampling.guidance,
       .negative = setup.negative,
       .embedded_guidance = setup.sampling.embedded_guidance,
       .whole_timesteps = setup.sampling.whole_timesteps,
       .rows_per_forward = setup.config.sampling().rows_per_forward(),
       .compute = setup.compute,
       .base_weights = run::BaseWeightsOf(config.model()),
       .device = setup.device,
       .checkpoint_activations = memory.recompute,
       .inputs_on_host = memory.offload_inputs,
       .guided_apart = memory.guided_apart});
}

}  // namespace

absl::StatusOr<std::unique_ptr<model::Policy>> MakePolicy(RunSetup& setup, int rank) {
  std::optional<model::LentBase> lent = LendBase(setup);
  model::ReadTensor read = std::move(setup.model.read_transformer);
  if (lent.has_value()) read = lent->Filling(std::move(read));
  auto policy = CreatePolicy(setup, rank, std::move(read));
  if (policy.ok() && lent.has_value()) PublishBase(*std::move(lent));
  return policy;
}

std::vector<v1::Prompt> PromptsNeeded(const RunSetup& setup) {
  const v1::RunConfig& config = setup.config;
  const size_t held_out = std::min<size_t>(setup.held_out.size(), config.eval().images());
  std::vector<v1::Prompt> prompts(setup.held_out.begin(),
                                  setup.held_out.begin() + static_cast<ptrdiff_t>(held_out));
  const uint64_t groups = config.batch().groups();
  const bool all = config.prompts().choice() == v1::PROMPT_CHOICE_LEARNABLE ||
                   config.batch().dynamic_sampling_max() > 0 || groups == 0 ||
                   config.run().steps() >= setup.train.size() / groups;
  const std::vector<v1::Prompt> train =
      PromptOrder(setup.train, config.run().seed())
          .Upcoming(all ? setup.train.size() : config.run().steps() * groups);
  prompts.insert(prompts.end(), train.begin(), train.end());
  return prompts;
}

absl::StatusOr<std::unique_ptr<ConditioningCache>> WarmConditioning(RunSetup& setup, int rank,
                                                                    int ranks) {
  auto conditioning = std::make_unique<ConditioningCache>(std::move(setup.model.prompts));
  const std::vector<v1::Prompt> prompts = PromptsNeeded(setup);
  const v1::RunConfig& config = setup.config;
  if (ranks == 1 && run::EncodesBesideTraining(config)) {
    const uint64_t steps = config.off_policy().staleness_max() + 2;
    OXBOW_RETURN_IF_ERROR(conditioning->WarmFirst(
        prompts, setup.held_out.size() + static_cast<size_t>(steps * config.batch().groups())));
  } else {
    OXBOW_RETURN_IF_ERROR(conditioning->Warm(prompts, static_cast<double>(rank) / ranks));
  }
  conditioning->ReleaseEncoders();
  return conditioning;
}

std::map<std::string, std::string> PromptDigestsOf(const RunSetup& setup) {
  std::map<std::string, std::string> digests = {
      {"prompts.train", run::DigestOfPrompts(setup.train)}};
  if (!setup.held_out.empty()) digests["prompts.eval"] = run::DigestOfPrompts(setup.held_out);
  return digests;
}

std::map<std::string, io::HyperParameter> HyperParametersOf(const v1::RunConfig& config) {
  std::map<std::string, io::HyperParameter> values;
  const auto text = [&](const std::string& section, const google::protobuf::Message& message,
                        const std::string& field) {
    const auto* const found = message.GetDescriptor()->FindFieldByName(field);
    values[section + "." + field] = config::FieldText(message, *found);
  };
  const auto number = [&](const std::string& key, auto value) {
    values[key] = static_cast<double>(value);
  };
  text("model", config.model(), "trained");
  text("sampling", config.sampling(), "dynamics");
  text("method", config.method(), "name");
  text("method", config.method(), "correction");
  text("reward", config.reward(), "terms");
  number("run.seed", config.run().seed());
  number("sampling.steps", config.sampling().steps());
  number("sampling.eta", config.sampling().eta());
  number("sampling.sde_count", config.sampling().sde_count());
  number("sampling.guidance", config.sampling().guidance());
  number("batch.groups", config.batch().groups());
  number("batch.group_size", config.batch().group_size());
  number("batch.updates", config.batch().updates());
  number("method.clip_range", config.method().clip_range());
  number("method.kl_weight", config.method().kl_weight());
  number("method.anchor.weight", config.method().anchor().weight());
  number("method.diversity.weight", config.method().diversity().weight());
  number("replay.fraction", config.replay().fraction());
  number("off_policy.staleness_max", config.off_policy().staleness_max());
  number("optimizer.learning_rate", config.optimizer().learning_rate());
  number("model.lora.rank", config.model().lora().rank());
  return values;
}

GroupRules GroupRulesOf(const RunSetup& setup) {
  return {.latent_shape = setup.model.latent_shape,
          .storage = StorageDType(setup.config.sampling()),
          .schedule_id = setup.sampling.Id(),
          .sde = setup.sampling.sde,
          .latents_max = static_cast<int>(run::LatentsMax(setup.config)),
          .sent = run::SentLatentsOf(setup.config),
          .group_size = setup.config.batch().group_size(),
          .in_flight_updates = setup.config.off_policy().in_flight_updates()};
}

std::string RunIdOf(const RunSetup& setup, Epoch epoch) {
  return absl::StrCat(setup.config.run().name(), "-", epoch.value);
}

Coordinator::Options CoordinatorOptionsOf(const RunSetup& setup, Epoch epoch,
                                          LearnerStep first_step) {
  const double lease_seconds = setup.config.services().lease_seconds();
  return {.leases = {.epoch = epoch,
                     .first_step = first_step,
                     .groups_per_step = setup.config.batch().groups(),
                     .dynamic_sampling_max = setup.config.batch().dynamic_sampling_max(),
                     .staleness_max = setup.config.off_policy().staleness_max(),
                     .lease_time = absl::Seconds(lease_seconds),
                     .stragglers =
                         lease::StragglersAbove(setup.config.services().speculation_factor())},
          .patience = absl::Minutes(setup.config.services().patience_minutes()),
          .rules = GroupRulesOf(setup),
          .run_id = RunIdOf(setup, epoch),
          .head_failures_max = HeadFailuresMax(setup.config),
          .ranks = static_cast<int>(setup.config.learner().ranks()),
          .credit_max = std::max(1u, setup.config.services().groups_in_flight())};
}

ReplayLink::Options ReplayOptionsOf(const RunSetup& setup, Epoch epoch,
                                    std::vector<std::string> endpoints) {
  const GroupRules rules = GroupRulesOf(setup);
  const absl::Duration timeout = absl::Seconds(setup.config.services().rpc_timeout_seconds());
  const bool deterministic = setup.config.run().deterministic();
  return {.endpoints = std::move(endpoints),
          .each = {.timeout = timeout,
                   .await_back = deterministic ? timeout : absl::ZeroDuration(),
                   .step_budget = deterministic ? absl::InfiniteDuration() : kReplayOfStep,
                   .backlog_bytes_max =
                       std::min(setup.config.services().sink_bytes_max(), LimitOf(kBacklogShare)),
                   .epoch = epoch,
                   .start = RandomBits() | 1},  // Tells two starts of the same count apart.
          .seed = setup.config.run().seed(),
          .form = {.kept_steps = setup.config.method().kept_steps(),
                   .images = config::ChosenMethod(setup.config.method()).trains_final_latents(),
                   .schedule_id = rules.schedule_id,
                   .latent_bytes = rules.LatentBytes(),
                   .latent_shape = rules.latent_shape}};
}

LearnerLoop::Options LoopOptionsOf(const RunSetup& setup, Epoch epoch, LearnerStep first_step,
                                   double wall_seconds_before) {
  const v1::RunConfig& config = setup.config;
  const SamplingForm form = {.splits = setup.sampling.splits,
                             .group_size = config.batch().group_size(),
                             .compression = setup.sampling.compression.share};
  const std::vector<std::string> awaiting = config::KeysThatAwaitEvaluations(config);
  return {.epoch = epoch,
          .sampling = {.run_id = RunIdOf(setup, epoch),
                       .first_step = first_step,
                       .steps = config.run().steps(),
                       .groups = config.batch().groups(),
                       .dynamic_sampling_max = config.batch().dynamic_sampling_max(),
                       .staleness_max = config.off_policy().staleness_max(),
                       .run_seed = config.run().seed(),
                       .window = setup.window,
                       .sampling_steps = setup.sampling.steps(),
                       .form = form,
                       .ranks = static_cast<int>(config.learner().ranks())},
          .measure = {.form = form,
                      .reward = config.reward(),
                      .adamw_epsilon = config.optimizer().epsilon(),
                      .rows_per_step = setup.sampling.guidance == 1 ? 1 : 2},
          .evaluations = {.every = config.eval().every(),
                          .steps = config.run().steps(),
                          .beside = awaiting.empty(),
                          .awaiting = awaiting},
          .eval_before_publish = config.publish().reward_floor() > 0,
          .checkpoints = {.committed = first_step.value,
                          .every = config.checkpoint().every(),
                          .best_metric = config.checkpoint().best()},
          .checkpoints_kept = config.checkpoint().keep(),
          .publish_every = config.off_policy().publish_every(),
          .stop_if = config.run().stop_if(),
          .wall_seconds_before = wall_seconds_before,
          .patience = absl::Minutes(config.services().patience_minutes())};
}

absl::StatusOr<flow::SamplingSpec> EvaluationSpecOf(const RunSetup& setup) {
  v1::RunConfig evaluated = setup.config;
  *evaluated.mutable_sampling() = setup.evaluated_sampling;
  return run::EvaluationSpecFromConfig(evaluated);
}

Evaluation::Options EvaluationOptionsOf(const RunSetup& setup, Epoch epoch,
                                        weights::ProbeShape probe_shape) {
  const v1::RunConfig& config = setup.config;
  const model::PictureSize size = model::DecodedSize(setup.model.factors, setup.evaluated_shape);
  return {.epoch = epoch,
          .probe_shape = std::move(probe_shape),
          .probe_seed = config.run().seed(),
          .probe_tolerance = ProbeToleranceOf(setup),
          .images = config.eval().images(),
          .together = static_cast<size_t>(
              run::PicturesOfLease(config, setup.model.latent_shape, setup.evaluated_shape)),
          .size = {.height = static_cast<int>(size.height),
                   .width = static_cast<int>(size.width),
                   .frames = static_cast<size_t>(std::max<int64_t>(size.frames, 1))},
          .average = config.eval().use_ema() && config.ema().enabled()};
}

PictureJudge::Options JudgeOptionsOf(const RunSetup& setup) {
  return {.seed = setup.config.run().seed(),
          .sheet_images = setup.config.eval().grid_images(),
          .by = setup.config.eval().by(),
          .reward = setup.config.reward()};
}

absl::StatusOr<v1::RegisterResponse> RegistrationOf(const RunSetup& setup, Epoch epoch,
                                                    const RunEndpoints& endpoints) {
  v1::RegisterResponse registration;
  registration.set_epoch(epoch.value);
  registration.set_run_id(RunIdOf(setup, epoch));
  *registration.mutable_config() = setup.config;
  registration.set_transformer_config_json(setup.model.transformer_config_json);
  registration.set_transformer_graph_json(setup.model.architecture->graph_json());
  registration.set_autoencoder_config_json(setup.model.autoencoder_config_json);
  registration.set_autoencoder_graph_json(setup.model.autoencoder_graph_json);
  if (!setup.negative.empty()) {
    *registration.mutable_negative() = rpc::ToProto(setup.negative);
  }
  for (const std::string& sink : endpoints.sinks) registration.add_sink_endpoints(sink);
  registration.add_weight_endpoints(endpoints.learner);
  for (const std::string& reward : endpoints.rewards) registration.add_reward_endpoints(reward);
  for (const std::string& buffer : endpoints.buffers) registration.add_buffer_endpoints(buffer);
  registration.set_lease_seconds(setup.config.services().lease_seconds());
  for (const int64_t size : setup.model.latent_shape) registration.add_latent_shape(size);
  if (setup.held_out.empty()) return registration;
  OXBOW_ASSIGN_OR_RETURN(const flow::SamplingSpec spec, EvaluationSpecOf(setup));
  v1::HeldOutSampling& held_out = *registration.mutable_held_out();
  for (const double sigma : spec.sigmas) held_out.add_sigmas(sigma);
  held_out.set_solver(setup.config.eval().solver());
  for (const int64_t size : setup.evaluated_shape) held_out.add_latent_shape(size);
  return registration;
}

}  // namespace oxbow::learner
