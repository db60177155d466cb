// SPDX-License-Identifier: Apache-2.0
// The fixture of GPU tests: exact float32 products, one thread, and a skip with one line of reason
// without a GPU. Without one they run on the rehearsal device (tests/rehearsal).
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <string>

#include "base/check.h"
#include "core/model/device.h"
#include "core/model/parameters.h"
#include "core/model/policy.h"
#include "gtest/gtest.h"
#include "tests/testing/graph_architecture.h"
#include "tests/testing/initial_weights.h"

namespace oxbow::model {

// Tolerance for float32 sums in another order, relative to the whole tensor.
inline constexpr double kExactTolerance = 1e-4;
// bfloat16 has 8 bits; a random network of some blocks loses at most four of them (on a CPU).
inline constexpr double kShortTolerance = 6e-2;

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (GpuCount() == 0) GTEST_SKIP() << "no GPU on this machine";
    at::set_num_threads(1);
    // TF32 would keep only 10 bits.
    at::globalContext().setAllowTF32CuBLAS(false);
    at::globalContext().setAllowTF32CuDNN(false);
  }
  const at::Device gpu_ = at::Device(at::kCUDA, 0);
};

inline NamedTensors On(at::Device device, const NamedTensors& tensors) {
  NamedTensors moved;
  for (const auto& [name, tensor] : tensors) moved[name] = tensor.to(device);
  return moved;
}

inline double RelativeDistance(const at::Tensor& a, const at::Tensor& b) {
  return ((a.cpu() - b.cpu()).norm() / b.cpu().norm()).item<double>();
}

inline void ExpectNear(const std::string& what, const at::Tensor& ours, const at::Tensor& theirs,
                       double tolerance) {
  ASSERT_EQ(ours.sizes(), theirs.sizes()) << what;
  EXPECT_LE(RelativeDistance(ours, theirs), tolerance) << what;
}

// A random SD3 with every kind of layer and with heads of the published size, so that attention
// uses the same kernels as there.
inline std::shared_ptr<const Architecture> GpuSizedSd3() {
  return testing::GraphArchitecture("tests/testing/graphs/gpu_sized.json.gz");
}

struct PolicyKind {
  at::Device device = at::kCPU;
  Trained trained = Trained::kLora;
  at::ScalarType compute = at::kFloat;
  bool trainable = true;
  bool recompute = false;
  bool merged = false;
  double guidance = 1;
  std::shared_ptr<GraphRecorder> graphs = nullptr;
  bool average = false;  // Kept, in host memory.
  bool weights_on_host = false;
};

inline constexpr int64_t kTokensOfPrompt = 20;

inline Conditioning RandomPrompts(int64_t rows) {
  return {{kPromptTokens, at::randn({rows, kTokensOfPrompt, 96})},
          {kPooledPrompt, at::randn({rows, 80})}};
}

// The same weights for every kind, and an adapter that has an effect.
inline std::unique_ptr<Policy> GpuSizedPolicy(const PolicyKind& kind) {
  at::manual_seed(11);
  Policy::Options options{.architecture = GpuSizedSd3(),
                          .trained = kind.trained,
                          .with_ema = kind.average,
                          .average_on_host = kind.average,
                          .weights_on_host = kind.weights_on_host,
                          .trainable = kind.trainable,
                          .merged = kind.merged,
                          .guidance = kind.guidance,
                          .negative = RandomPrompts(1),
                          .compute = kind.compute,
                          .device = kind.device,
                          .checkpoint_activations = kind.recompute,
                          .graphs = kind.graphs};
  options.lora = {.rank = 4, .alpha = 8, .targets = {"attn.to_q", "attn.to_v", "ff.net.2"}};
  for (const auto& [name, shape] : options.architecture->shapes()) {
    options.base[name] = at::randn(shape) * 0.05;
  }
  auto policy = *Policy::Create(std::move(options));
  if (kind.trained == Trained::kLora) {
    NamedTensors adapter;
    for (const auto& [name, tensor] : policy->parameters().tensors()) {
      adapter[name] = at::randn(tensor.sizes()) * 0.1;
    }
    OXBOW_CHECK(policy->Load(adapter).ok()) << "an adapter of its own shapes";
  }
  return policy;
}

struct Batch {
  explicit Batch(int64_t rows, int64_t height = 16, int64_t width = 16, uint64_t seed = 5) {
    at::manual_seed(seed);
    x = at::randn({rows, 4, height, width});
    sigma = at::rand({rows});
    prompts = RandomPrompts(rows);
  }
  at::Tensor Of(const VelocityModel& model) const { return model.Velocity(x, sigma, prompts); }
  at::Tensor x, sigma;
  Conditioning prompts;
};

}  // namespace oxbow::model
