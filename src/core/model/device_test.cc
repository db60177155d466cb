// SPDX-License-Identifier: Apache-2.0
// Names of devices, and that a network on another device is asked and answers on the CPU.
#include "core/model/device.h"

#include <ATen/ATen.h>

#include <cstdlib>

#include "core/model/cuda_graphs.h"
#include "core/model/fused/fused_layers.h"
#include "core/model/policy.h"
#include "gtest/gtest.h"
#include "tests/testing/small_sd3.h"

namespace oxbow::model {
namespace {

TEST(DeviceTest, NamesAreCheckedBeforeAnythingIsPutThere) {
  EXPECT_EQ(*DeviceNamed("cpu"), at::Device(at::kCPU));
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0"}) {
    EXPECT_EQ(DeviceNamed(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
  const absl::Status absent = DeviceNamed("cuda:4096").status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kInvalidArgument);
  const char* const why = GpuCount() > 0    ? "no such device here"
                          : HasCudaGraphs() ? "nvidia-smi"
                                            : "build the preset cuda";
  EXPECT_NE(absent.message().find(why), std::string::npos) << absent;
}

// Promise: A GPU build without the fused kernels says so. `oxbow doctor` warns of it, and learner
// and worker say it in their first lines.
TEST(DeviceTest, ABuildWithoutFusedKernelsSaysSoOnAGpuAlone) {
  EXPECT_EQ(MissingKernelsText(at::kCPU), "");
  EXPECT_EQ(MissingKernelsText(at::kCUDA).empty(), fused::HasKernels());
}

// Promise: A deterministic run asks for deterministic algorithms. On a GPU, LibTorch takes those
// alone, in learner and workers.
TEST(DeviceTest, DeterministicAlgorithmsAreAskedForOnAGpuAlone) {
  at::Context& context = at::globalContext();
  UseDeterministicAlgorithms(at::kCPU);
  EXPECT_FALSE(context.deterministicAlgorithms());
  UseDeterministicAlgorithms(at::kCUDA);
  EXPECT_TRUE(context.deterministicAlgorithms());
  EXPECT_FALSE(context.deterministicAlgorithmsWarnOnly()) << "attention would add in any order";
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
  UseDeterministicAlgorithms(at::kCUDA, false);
  EXPECT_FALSE(context.deterministicAlgorithms()) << "a worker that serves another run";
  ::unsetenv("CUBLAS_WORKSPACE_CONFIG");
}

// On a machine without a GPU this compares the CPU with itself.
TEST(DeviceTest, ANetworkElsewhereAnswersOnTheCpuWithGradients) {
  const auto gpu = DeviceNamed("cuda");
  at::manual_seed(2);
  Policy::Options options{
      .architecture = SmallSd3(/*blocks=*/2, /*dual=*/1),
      .trained = Trained::kLora,
      .guidance = 2,
      .negative = {{kPromptTokens, at::randn({1, 5, 12})}, {kPooledPrompt, at::randn({1, 10})}}};
  options.lora = {.rank = 3, .alpha = 6, .targets = {"attn.to_q"}};
  for (const auto& [name, shape] : options.architecture->shapes())
    options.base[name] = at::randn(shape) * 0.2;
  const auto here = *Policy::Create(options);
  options.device = gpu.ok() ? *gpu : at::Device(at::kCPU);
  const auto there = *Policy::Create(options);
  EXPECT_EQ(there->parameters().flat().device(), options.device);
  const at::Tensor x = at::randn({8, 2, 8, 8}), sigma = at::rand({8});
  const Conditioning prompt{{kPromptTokens, at::randn({1, 5, 12})},
                            {kPooledPrompt, at::randn({1, 10})}};
  const at::Tensor near = here->current().Velocity(x, sigma, prompt);
  const at::Tensor far = there->current().Velocity(x, sigma, prompt);
  EXPECT_TRUE(far.is_cpu());
  EXPECT_TRUE(at::allclose(near, far, 1e-3, 1e-3));
  near.square().sum().backward();
  far.square().sum().backward();
  EXPECT_TRUE(at::allclose(here->parameters().flat_grad(), there->parameters().flat_grad().cpu(),
                           1e-2, 1e-3));
}

}  // namespace
}  // namespace oxbow::model
