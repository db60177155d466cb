// SPDX-License-Identifier: Apache-2.0
#include "tests/rehearsal/dry_case.h"

#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>

#include <ctime>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "cli/plan/resource_plan.h"
#include "config/memory_parts.h"
#include "config/run_config.h"
#include "core/flow/sampler.h"
#include "core/flow/schedule.h"
#include "core/parallel/ranks.h"
#include "core/rl/trainer.h"
#include "tests/rehearsal/device_log.h"
#include "tests/rehearsal/device_memory.h"
#include "tests/rehearsal/dry_ranks.h"

namespace oxbow::rehearsal {
namespace {

// Copies of large tensors within host memory do nothing: their values are never looked at, and host
// memory that is written is needed for true.
at::Tensor& CopyWithinTheHost(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  constexpr int64_t kLarge = 1 << 18;
  if (source.is_cpu() && self.is_cpu() && self.numel() >= kLarge) return self;
  return at::native::copy_(self, source, non_blocking);
}

TORCH_LIBRARY_IMPL(aten, CPU, library) { library.impl("copy_", CopyWithinTheHost); }

constexpr int kSteps = 10;  // Nine of them are trained.
constexpr int kSamples = 2;
constexpr int64_t kRowsOfStep = kSamples * (kSteps - 1);
constexpr int kRank = 32;
const at::Device kGpu = at::Device(at::kCUDA, 0);

model::Conditioning Prompt(const DryModel& model) {
  model::Conditioning prompt;
  for (const model::ConditioningPart& part : model.architecture->conditioning()) {
    prompt[part.name] = at::zeros(model::ShapeOf(part, 1, model.prompt_tokens));
  }
  return prompt;
}

at::Tensor Latents(const DryModel& model, int64_t count) {
  std::vector<int64_t> shape = model.latent;
  shape.insert(shape.begin(), count);
  return at::zeros(shape);
}

model::Conditioning OnGpu(model::Conditioning conditioning) {
  for (auto& [name, tensor] : conditioning) tensor = tensor.to(kGpu);
  return conditioning;
}

std::unique_ptr<model::Policy> PolicyOf(const DryCase& work) {
  const bool lora = work.trained == model::Trained::kLora;
  const model::Architecture& architecture = *work.model->architecture;
  model::Policy::Options options{
      .architecture = work.model->architecture,
      .trained = work.trained,
      .with_reference = work.trains && work.pulls,
      .with_ema = work.trains,
      .average_on_host = work.offloads,
      .weights_on_host = work.offloads_weights,
      .weights_shared = work.offloads_weights && work.shards_gradients,
      .trainable = work.trains,
      .merged = work.merged,
      .guidance = work.guidance,
      .negative = work.guidance > 1 ? OnGpu(Prompt(*work.model)) : model::Conditioning(),
      .embedded_guidance = architecture.takes_embedded_guidance() ? 3.5 : 0,
      .compute = work.compute,
      .base_weights = work.base_weights,
      .device = kGpu,
      .checkpoint_activations = work.recompute,
      .inputs_on_host = work.offloads_inputs,
      .guided_apart = work.apart};
  if (lora) options.lora = {.rank = kRank, .alpha = 64, .targets = work.model->lora_targets};
  for (const auto& [name, shape] : architecture.shapes()) {
    const bool exact = !lora || architecture.float32().contains(name);
    options.base[name] =
        at::empty(shape, at::TensorOptions(kGpu).dtype(exact ? at::kFloat : work.compute));
  }
  auto policy = model::Policy::Create(std::move(options));
  OXBOW_CHECK(policy.ok()) << policy.status().ToString();
  return *std::move(policy);
}

rl::TrainerOptions OptionsOf(const DryCase& work) {
  rl::TrainerOptions options{
      .sampling = {.sigmas = flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, kSteps, 3),
                   .sde = std::vector<bool>(kSteps, true)},
      .updates = 1,
      .rows_per_pass = static_cast<int>(work.rows),
      .drift_check_every = 0,  // Ranks compare their weights once in fifty steps.
      .shard_optimizer = work.trained == model::Trained::kFull,
      .shard_gradients = work.shards_gradients,
      .moments = work.offloads ? rl::MomentPlace::kHost : rl::MomentPlace::kWithWeights};
  options.sampling.sde.back() = false;
  options.sampling.guidance = work.guidance;
  options.kl.weight = work.pulls ? 0.04 : 0;
  options.kl.all_steps = work.kl_all;
  return options;
}

// One group of policy `version` whose samples differ in their rewards.
rl::Group GroupOf(const DryCase& work, uint64_t version) {
  rl::Group group{.conditioning = Prompt(*work.model)};
  for (int i = 0; i < kSamples; ++i) {
    rl::Trajectory sample;
    sample.index = static_cast<uint32_t>(i);
    sample.latents = Latents(*work.model, kSteps + 1);
    sample.log_prob.assign(kSteps, 0);
    sample.sde.assign(kSteps, true);
    sample.sde.back() = false;
    sample.behaviour_version.assign(kSteps, version);
    sample.reward = i;
    sample.rewards = {{"reward", static_cast<double>(i)}};
    group.trajectories.push_back(std::move(sample));
  }
  return group;
}

double Gigabytes(size_t bytes) { return static_cast<double>(bytes) / 1e9; }

DryFigures Forward(const DryCase& work, const model::Policy& policy) {
  const at::Tensor x = Latents(*work.model, work.rows), sigma = at::full({work.rows}, 0.5);
  const model::Conditioning prompt = Prompt(*work.model);
  return FiguresOf([&] {
    const at::NoGradGuard no_grad;
    (void)policy.current().Velocity(x, sigma, prompt);
  });
}

// A network compares its fused kernels with its operators once; those of other cases have.
void CompareKernels(const DryCase& work, const model::Policy& policy) {
  const at::NoGradGuard no_grad;
  (void)policy.current().Velocity(Latents(*work.model, 1), at::full({1}, 0.5), Prompt(*work.model));
}

std::vector<flow::NoiseKey> Keys(int64_t count) {
  std::vector<flow::NoiseKey> keys(static_cast<size_t>(count));
  for (size_t i = 0; i < keys.size(); ++i) keys[i].sample = static_cast<uint32_t>(i);
  return keys;
}

// CPU time of this thread.
double ThreadMs() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

// A group's fresh samples, drawn where their prompt is.
DryFigures Sample(const DryCase& work, const model::Policy& policy) {
  const flow::SamplingSpec spec = OptionsOf(work).sampling;
  const std::vector<flow::NoiseKey> keys = Keys(work.rows);
  const model::Conditioning prompt = OnGpu(Prompt(*work.model));
  DryFigures figures = FiguresOf([&] {
    const c10::InferenceMode no_gradients;
    (void)flow::ContinuePaths(spec, keys, flow::DrawStarts(keys, work.model->latent).to(kGpu),
                              /*first_step=*/0, at::kFloat,
                              [&](const at::Tensor& x, const at::Tensor& sigma) {
                                return policy.current().Velocity(x, sigma, prompt);
                              });
  });
  for (double* figure :
       {&figures.traffic_gb, &figures.tflop, &figures.kernels, &figures.host_mb, &figures.waits}) {
    *figure /= spec.steps();
  }
  return figures;
}

DryFigures Step(const DryCase& work, model::Policy& policy) {
  const auto ranks = work.ranks == 1 ? parallel::MakeSingleRank() : MakeDryRanks(work.ranks);
  rl::Trainer trainer(OptionsOf(work), policy, *ranks);
  const absl::Status shared = trainer.ShareHostMemory();
  OXBOW_CHECK(shared.ok()) << shared;
  const auto step = [&](uint64_t number) {
    const std::vector<rl::Group> groups(static_cast<size_t>(work.ranks), GroupOf(work, number));
    const auto result = trainer.Step(LearnerStep(number), groups);
    OXBOW_CHECK(result.ok()) << result.status().ToString();
  };
  if (!work.shards_gradients) return FiguresOf([&] { step(0); });
  step(0);  // It finds the order in which gradients are sent.
  return FiguresOf([&] { step(1); });
}

}  // namespace

DryFigures FiguresOf(const std::function<void()>& work) {
  DeviceMemory& memory = DeviceMemory::Of(0);
  memory.ResetPeak();
  TheLog().Clear();
  DryFigures figures{.held_gb = Gigabytes(memory.Use().held)};
  work();
  const Figures log = TheLog().Of(0);
  const Work kernels = log.AllKernels(), to_device = log.All(Transfer::kHostToDevice),
             to_host = log.All(Transfer::kDeviceToHost);
  figures.peak_gb = Gigabytes(memory.Use().peak);
  figures.traffic_gb = kernels.bytes / 1e9;
  figures.tflop = kernels.flop / 1e12;
  figures.kernels = static_cast<double>(kernels.count);
  figures.host_mb = (to_device.bytes + to_host.bytes) / 1e6;
  figures.waits = static_cast<double>(log.AllWaits().count);
  return figures;
}

std::vector<DryCase> DryCases() {
  std::vector<DryCase> cases;
  for (const std::shared_ptr<const DryModel>& model : DryModels()) {
    const auto add = [&cases, &model](const std::string& mode, DryCase work) {
      work.name = model->name + "-" + mode;
      work.model = model;
      cases.push_back(std::move(work));
    };
    if (model->long_clip) {
      add("lora-step-guided-recompute",
          {.trains = true, .guidance = 5, .recompute = true, .rows = 1});
      add("lora-step-guided-recompute-apart-offload-inputs", {.trains = true,
                                                              .guidance = 5,
                                                              .recompute = true,
                                                              .apart = true,
                                                              .offloads_inputs = true,
                                                              .rows = 1});
      continue;
    }
    add("lora-forward", {.rows = model->rows});
    add("lora-forward-merged", {.merged = true, .rows = model->rows});
    add("lora-step", {.trains = true, .rows = model->rows});
    add("lora-step-recompute", {.trains = true, .recompute = true, .rows = model->rows});
    if (model->in_int8) {
      constexpr auto kInt8 = model::BaseWeights::kInt8;
      add("lora-int8-forward", {.base_weights = kInt8, .rows = model->rows});
      add("lora-int8-step-recompute",
          {.trains = true, .recompute = true, .base_weights = kInt8, .rows = model->rows});
    }
    if (model->offloaded) {
      const DryCase offloaded{
          .trains = true, .recompute = true, .offloads_weights = true, .rows = model->rows};
      add("lora-step-recompute-offload-weights", offloaded);
      DryCase int8 = offloaded;
      int8.base_weights = model::BaseWeights::kInt8;
      add("lora-int8-step-recompute-offload-weights", int8);
      // On workers; they never keep activations.
      DryCase worker{.recompute = true, .offloads_weights = true, .rows = model->rows};
      add("lora-forward-offload-weights", worker);
      worker.base_weights = model::BaseWeights::kInt8;
      add("lora-int8-forward-offload-weights", worker);
    }
    for (const int ranks : model->ranks) {
      const std::string of = "-" + std::to_string(ranks) + "-ranks";
      add("lora-step-recompute" + of,
          {.trains = true, .recompute = true, .ranks = ranks, .rows = model->rows});
      if (!model->in_full) continue;
      add("full-step-recompute" + of, {.trains = true,
                                       .trained = model::Trained::kFull,
                                       .recompute = true,
                                       .ranks = ranks,
                                       .rows = 9});
    }
    if (model->in_pieces) {
      add("full-step-recompute-no-kl-offload-8-ranks-shards", {.trains = true,
                                                               .trained = model::Trained::kFull,
                                                               .recompute = true,
                                                               .offloads = true,
                                                               .shards_gradients = true,
                                                               .pulls = false,
                                                               .ranks = 8,
                                                               .rows = model->rows});
    }
    if (model->offloaded) {
      add("full-step-recompute-no-kl-offload-weights-8-ranks-shards",
          {.trains = true,
           .trained = model::Trained::kFull,
           .recompute = true,
           .offloads = true,
           .offloads_weights = true,
           .shards_gradients = true,
           .pulls = false,
           .ranks = 8,
           .rows = kRowsOfStep});
    }
    if (!model->in_full) continue;
    add("full-step-recompute-offload-weights", {.trains = true,
                                                .trained = model::Trained::kFull,
                                                .recompute = true,
                                                .offloads = true,
                                                .offloads_weights = true,
                                                .rows = 9});
    add("full-forward", {.trained = model::Trained::kFull, .rows = model->rows});
    add("lora-forward-guided-24", {.guidance = 4.5, .rows = 24});
    add("lora-sample-guided-24", {.samples = true, .guidance = 4.5, .rows = 24});
    add("lora-step-guided", {.trains = true, .guidance = 4.5, .rows = 9});
    add("lora-int8-step-guided",
        {.trains = true, .guidance = 4.5, .base_weights = model::BaseWeights::kInt8, .rows = 9});
    add("lora-step-guided-kl-all", {.trains = true, .guidance = 4.5, .kl_all = true, .rows = 9});
    add("lora-step-guided-recompute",
        {.trains = true, .guidance = 4.5, .recompute = true, .rows = 9});
    add("lora-step-guided-recompute-apart",
        {.trains = true, .guidance = 4.5, .recompute = true, .apart = true, .rows = 9});
    add("full-step-recompute",
        {.trains = true, .trained = model::Trained::kFull, .recompute = true, .rows = 9});
    add("full-step-recompute-no-kl", {.trains = true,
                                      .trained = model::Trained::kFull,
                                      .recompute = true,
                                      .pulls = false,
                                      .rows = 9});
    add("full-step-recompute-offload", {.trains = true,
                                        .trained = model::Trained::kFull,
                                        .recompute = true,
                                        .offloads = true,
                                        .rows = 9});
    add("full-step-recompute-no-kl-offload", {.trains = true,
                                              .trained = model::Trained::kFull,
                                              .recompute = true,
                                              .offloads = true,
                                              .pulls = false,
                                              .rows = 9});
  }
  return cases;
}

double PlannedGb(const DryCase& work) {
  const bool lora = work.trained == model::Trained::kLora;
  const config::MemoryParts memory = {.recompute = work.recompute,
                                      .int8 = work.base_weights == model::BaseWeights::kInt8,
                                      .guided_apart = work.apart,
                                      .offload_inputs = work.offloads_inputs,
                                      .shard_gradients = work.shards_gradients,
                                      .offload_optimizer = work.offloads,
                                      .offload_average = work.offloads,
                                      .offload_weights = work.offloads_weights};
  std::vector<std::string> settings = {
      "recipe=sd35m-pickscore",
      "model.device=cuda",
      lora ? "model.trained=lora" : "model.trained=full",
      work.compute == at::kBFloat16 ? "model.compute_dtype=bf16" : "model.compute_dtype=f32",
      "model.memory=" + config::MemoryName(memory),
      absl::StrCat("sampling.guidance=", work.guidance),
      absl::StrCat("batch.rows_per_pass=", work.rows),
      absl::StrCat("learner.ranks=", work.ranks),
      absl::StrCat("batch.group_size=", work.rows),
      "services.groups_in_flight=1",
      work.merged ? "model.lora.merge_for_rollouts=true" : "model.lora.merge_for_rollouts=false",
      "batch.updates=1",
      "batch.passes=1",
      "ema.enabled=true",
      "method.reference_every=0",
      work.pulls ? "method.kl_weight=0.04" : "method.kl_weight=0",
      "model.encoder_device=cpu"};
  if (lora) {
    settings.push_back("model.lora.targets=[" + absl::StrJoin(work.model->lora_targets, ", ") +
                       "]");
  }
  const auto resolved = config::LoadRunConfig({}, settings, {});
  OXBOW_CHECK(resolved.ok()) << resolved.status().ToString();
  const model::Architecture& architecture = *work.model->architecture;
  run::ModelFacts facts{.architecture = work.model->architecture,
                        .guidance = work.guidance,
                        .latent_shape = work.model->latent,
                        .prompt_tokens = work.model->prompt_tokens};
  for (const auto& [name, shape] : architecture.shapes()) {
    const auto count = static_cast<uint64_t>(c10::multiply_integers(shape));
    facts.transformer_parameters += count;
    if (!lora && !architecture.buffers().contains(name)) facts.trained_parameters += count;
  }
  if (lora) {
    const model::LinearModules linears = architecture.linears();
    const auto modules = model::MatchLoraTargets(linears, work.model->lora_targets);
    OXBOW_CHECK(modules.ok()) << modules.status().ToString();
    for (const std::string& module : *modules) {
      const auto [in, out] = linears.at(module);
      facts.trained_parameters += static_cast<uint64_t>(kRank * (in + out));
      facts.adapted_parameters += static_cast<uint64_t>(in * out);
    }
  }
  const auto items = work.trains ? cli::LearnerMemory(resolved->config, facts)
                                 : cli::WorkerMemory(resolved->config, facts);
  return Gigabytes(cli::DevicePeakOf(items));
}

double HostMsOfSamplingStep() {
  constexpr int64_t kRows = 24;
  const flow::SamplingSpec spec = OptionsOf({.rows = kRows}).sampling;
  const std::vector<int64_t> shape = {16, 64, 64};
  const at::Tensor start = flow::DrawStarts(Keys(kRows), shape).to(kGpu), v = at::zeros_like(start);
  const c10::InferenceMode no_gradients;
  const double begin = ThreadMs();
  (void)flow::ContinuePaths(spec, Keys(kRows), start, /*first_step=*/0, at::kFloat,
                            [&](const at::Tensor&, const at::Tensor&) { return v; });
  return (ThreadMs() - begin) / spec.steps();
}

DryFigures Rehearse(const DryCase& work) {
  const auto policy = PolicyOf(work);
  if (!work.offloads_weights) CompareKernels(work, *policy);
  if (work.trains) return Step(work, *policy);
  return work.samples ? Sample(work, *policy) : Forward(work, *policy);
}

}  // namespace oxbow::rehearsal
