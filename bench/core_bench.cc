// SPDX-License-Identifier: Apache-2.0
// The computation of one learner step on a transformer of the digits size with random weights, on
// one thread.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <c10/core/InferenceMode.h>
#include <time.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/check.h"
#include "core/flow/sampler.h"
#include "core/model/policy.h"
#include "core/parallel/ranks.h"
#include "core/rl/adamw.h"
#include "core/rl/trainer.h"
#include "tests/testing/graph_architecture.h"
#include "tests/testing/initial_weights.h"

namespace oxbow {
namespace {

constexpr int kGroups = 8;
constexpr int kGroupSize = 8;
const std::vector<int64_t> kLatentShape = {1, 8, 20};

std::unique_ptr<model::Policy> MakePolicy() {
  RandomStream random({.seed = 1, .step = kWeightInit});
  const auto network = testing::GraphArchitecture(testing::kDigitsGraph);
  model::NamedTensors weights = model::InitialWeights(*network, random);
  // Zero output layers would make every velocity zero and every gradient trivial.
  for (auto& [name, tensor] : weights) tensor.add_(at::randn_like(tensor) * 0.02);
  auto policy = model::Policy::Create({.architecture = network, .base = weights});
  OXBOW_CHECK(policy.ok()) << policy.status().ToString();
  return *std::move(policy);
}

flow::SamplingSpec Spec() {
  flow::SamplingSpec spec;
  spec.sigmas = flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, 10, 1.0);
  spec.sde.assign(10, false);
  for (int i = 0; i < 5; ++i) spec.sde[static_cast<size_t>(i)] = true;
  return spec;
}

flow::Paths SampleAll(const model::Policy& policy, const flow::SamplingSpec& spec,
                      const model::Conditioning& conditioning) {
  std::vector<flow::NoiseKey> keys;
  for (uint64_t group = 0; group < kGroups; ++group) {
    for (uint32_t sample = 0; sample < kGroupSize; ++sample) keys.push_back({0, group, sample});
  }
  const c10::InferenceMode no_gradients;
  return flow::SamplePaths(spec, keys, kLatentShape, at::kFloat,
                           [&](const at::Tensor& x, const at::Tensor& sigma) {
                             return policy.current().Velocity(x, sigma, conditioning);
                           });
}

model::Conditioning RandomConditioning() {
  return {{model::kPromptTokens, at::randn({kGroups * kGroupSize, 6, 64})},
          {model::kPooledPrompt, at::randn({kGroups * kGroupSize, 64})}};
}

// Groups with invented rewards: half of each group is right.
std::vector<rl::Group> GroupsOf(const flow::Paths& paths, const flow::SamplingSpec& spec,
                                const model::Conditioning& conditioning) {
  std::vector<rl::Group> groups;
  for (int g = 0; g < kGroups; ++g) {
    rl::Group group{.id = GroupId(static_cast<uint64_t>(g)),
                    .prompt_id = PromptId(static_cast<uint64_t>(g))};
    group.conditioning = model::NarrowRows(conditioning, g * kGroupSize, 1);
    for (int s = 0; s < kGroupSize; ++s) {
      const int64_t row = g * kGroupSize + s;
      rl::Trajectory sample{.index = static_cast<uint32_t>(s),
                            .latents = paths.latents.narrow(0, 0, 6).select(1, row).clone()};
      sample.log_prob.resize(10);
      for (int64_t i = 0; i < 5; ++i)
        sample.log_prob[static_cast<size_t>(i)] = paths.log_prob[i][row].item<float>();
      sample.sde = spec.sde;
      sample.behaviour_version.assign(10, 0);
      sample.reward = s % 2;
      group.trajectories.push_back(std::move(sample));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

void RolloutOf64(benchmark::State& state) {
  const auto policy = MakePolicy();
  const flow::SamplingSpec spec = Spec();
  const model::Conditioning conditioning = RandomConditioning();
  for (auto _ : state)
    benchmark::DoNotOptimize(SampleAll(*policy, spec, conditioning).latents.data_ptr());
}
BENCHMARK(RolloutOf64)->Unit(benchmark::kMillisecond);

void TrainerStepOf64(benchmark::State& state) {
  const auto ranks = parallel::MakeSingleRank();
  const flow::SamplingSpec spec = Spec();
  for (auto _ : state) {
    state.PauseTiming();
    const auto policy = MakePolicy();
    // One conditioning per group, as in a run.
    const at::Tensor first_of_group =
        at::arange(kGroups, at::kLong).mul(kGroupSize).repeat_interleave(kGroupSize);
    const model::Conditioning conditioning =
        model::SelectRows(RandomConditioning(), first_of_group);
    const std::vector<rl::Group> groups =
        GroupsOf(SampleAll(*policy, spec, conditioning), spec, conditioning);
    rl::TrainerOptions options;
    options.sampling = spec;
    options.clip_range = 2e-3;
    options.kl.weight = 1e-3;
    rl::Trainer trainer(options, *policy, *ranks);
    state.ResumeTiming();
    OXBOW_CHECK(trainer.Step(LearnerStep(0), groups).ok());
  }
}
BENCHMARK(TrainerStepOf64)->Unit(benchmark::kMillisecond);

// CPU time of this thread, in seconds.
double ThreadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

const std::vector<int64_t> kLatentAt512 = {16, 64, 64};

std::vector<flow::NoiseKey> KeysOf24() {
  std::vector<flow::NoiseKey> keys;
  for (uint32_t sample = 0; sample < 24; ++sample) keys.push_back({0, 1, sample});
  return keys;
}

// The time that a stochastic step of 24 pictures of 512 px costs the sampling thread besides the
// network, which computes elsewhere for `wait`.
void SamplerStepOf24At512(benchmark::State& state) {
  const flow::SamplingSpec spec = [] {
    flow::SamplingSpec all = Spec();
    all.sde.assign(10, true);
    return all;
  }();
  const at::Tensor v = at::randn({24, 16, 64, 64}) * 0.1;
  const auto wait = std::chrono::milliseconds(state.range(0));
  const c10::InferenceMode no_gradients;
  for (auto _ : state) {
    const double begin = ThreadSeconds();
    const flow::Paths paths = flow::SamplePaths(spec, KeysOf24(), kLatentAt512, at::kFloat,
                                                [&](const at::Tensor&, const at::Tensor&) {
                                                  std::this_thread::sleep_for(wait);
                                                  return v;
                                                });
    benchmark::DoNotOptimize(paths.latents.data_ptr());
    state.SetIterationTime((ThreadSeconds() - begin) / spec.steps());
  }
}
BENCHMARK(SamplerStepOf24At512)->Arg(150)->UseManualTime()->Unit(benchmark::kMillisecond);

// The noise of such a step.
void NoiseOf24At512(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(flow::DrawStarts(KeysOf24(), kLatentAt512));
}
BENCHMARK(NoiseOf24At512)->Unit(benchmark::kMillisecond);

void AdamWFlat(benchmark::State& state) {
  at::Tensor weights = at::randn({437'776});
  const at::Tensor grad = at::randn_like(weights);
  rl::AdamW optimizer({}, weights);
  for (auto _ : state) optimizer.Step(weights, grad);
}
BENCHMARK(AdamWFlat)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace oxbow

int main(int argc, char** argv) {
  at::set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
