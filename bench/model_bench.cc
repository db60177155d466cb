// SPDX-License-Identifier: Apache-2.0
// The digits model on one core: sampling (forward) and training (forward and backward).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include "benchmark/benchmark.h"
#include "core/model/parameters.h"
#include "core/model/velocity_model.h"
#include "tests/testing/graph_architecture.h"
#include "tests/testing/initial_weights.h"

namespace oxbow::model {
namespace {

struct Digits {
  explicit Digits(int64_t rows) {
    at::set_num_threads(1);
    RandomStream random({.seed = 1});
    NamedTensors weights = InitialWeights(*network, random);
    const at::Tensor table = weights.extract(kPositionTable).mapped();
    parameters = std::make_unique<ParameterSet>(weights, /*trainable=*/true);
    NamedTensors all = parameters->tensors();
    all[kPositionTable] = table;
    model = *network->Make(all, nullptr, {});
    const auto draw = [&](at::IntArrayRef shape) {
      at::Tensor tensor = at::empty(shape, at::kFloat);
      random.FillNormal(std::span<float>(tensor.mutable_data_ptr<float>(), tensor.numel()));
      return tensor;
    };
    x = draw({rows, 1, 8, 20});
    sigma = at::sigmoid(draw({rows}));
    conditioning = {{kPromptTokens, draw({rows, 6, 64})}, {kPooledPrompt, draw({rows, 64})}};
  }
  at::Tensor Forward() const { return model->Velocity(x, sigma, conditioning); }

  const std::shared_ptr<const Architecture> network =
      testing::GraphArchitecture(testing::kDigitsGraph);
  std::unique_ptr<ParameterSet> parameters;
  std::unique_ptr<VelocityModel> model;
  at::Tensor x, sigma;
  Conditioning conditioning;
};

void BM_Forward(benchmark::State& state) {
  const Digits digits(state.range(0));
  const at::NoGradGuard no_grad;
  for (auto _ : state) benchmark::DoNotOptimize(digits.Forward());
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_Forward)->Arg(8)->Arg(64)->Arg(160)->Unit(benchmark::kMillisecond);

void BM_ForwardBackward(benchmark::State& state) {
  const Digits digits(state.range(0));
  for (auto _ : state) digits.Forward().square().mean().backward();
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_ForwardBackward)->Arg(160)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace oxbow::model

BENCHMARK_MAIN();
