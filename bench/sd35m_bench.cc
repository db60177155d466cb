// SPDX-License-Identifier: Apache-2.0
// SD3.5-M at its published size with random weights: milliseconds of a forward pass, launched
// kernel by kernel and, on a GPU, as a CUDA graph, and of a training step of a LoRA; the share of a
// device's peak that this is, and memory.
//
//   build/release/bin/sd35m_bench --device cuda:0 --compute bf16 --rows 8 --peak-tflops 989
//
// Multiplications count twice, as in the peaks that vendors print; attention counts, norms do not.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>

#include "base/check.h"
#include "base/exit_code.h"
#include "base/statistics.h"
#include "base/status_macros.h"
#include "bench/kernel_profile.h"
#include "core/model/cuda_graphs.h"
#include "core/model/device.h"
#include "core/model/policy.h"
#include "core/rl/adamw.h"
#include "tests/testing/graph_architecture.h"

namespace oxbow {
namespace {

using ArchitecturePtr = std::shared_ptr<const model::Architecture>;

const std::vector<std::string> kTargets = {"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj",
                                           "attn.to_add_out", "attn.to_q",       "attn.to_k",
                                           "attn.to_v",       "attn.to_out.0"};

struct Flags {
  std::string device = "cpu", compute = "f32", graph = testing::kSd35MediumGraph;
  int64_t rows = 8, pixels = 512, prompt_tokens = 205, rank = 32;
  int repeat = 3, threads = 1;
  bool recompute = false;
  double peak_tflops = 0;
  size_t profile = 0;  // Kernels to print.
};

// `graphs`: as a worker has it that replays forward passes; null: as a learner has it.
std::unique_ptr<model::Policy> RandomPolicy(const Flags& flags, const ArchitecturePtr& network,
                                            at::Device device,
                                            std::shared_ptr<model::GraphRecorder> graphs) {
  model::Policy::Options options{.architecture = network,
                                 .trained = model::Trained::kLora,
                                 .lora = {.rank = flags.rank,
                                          .alpha = 2.0 * static_cast<double>(flags.rank),
                                          .targets = kTargets},
                                 .with_ema = false,
                                 .trainable = graphs == nullptr,
                                 .compute = flags.compute == "bf16" ? at::kBFloat16 : at::kFloat,
                                 .device = device,
                                 .checkpoint_activations = flags.recompute,
                                 .graphs = graphs};
  for (const auto& [name, shape] : network->shapes()) {
    options.base[name] =
        at::randn(shape, at::TensorOptions(device).dtype(options.compute)).mul_(0.02);
  }
  auto policy = model::Policy::Create(std::move(options));
  OXBOW_CHECK(policy.ok()) << policy.status().ToString();
  return *std::move(policy);
}

// For one row's forward pass: every weight meets the tokens of its stream once, or one condition.
double ForwardFlops(const model::Architecture& network, const Flags& flags) {
  const auto image = static_cast<double>((flags.pixels / 16) * (flags.pixels / 16));
  const auto prompt = static_cast<double>(flags.prompt_tokens);
  double flops = 0;
  for (const auto& [module, widths] : network.linears()) {
    const bool condition = module.find("norm") != std::string::npos ||
                           module.find("time_text_embed") != std::string::npos;
    const bool of_prompt =
        module.find("add_") != std::string::npos || module.find("context") != std::string::npos;
    const double tokens = condition ? 1 : of_prompt ? prompt : image;
    flops += 2.0 * static_cast<double>(widths.first * widths.second) * tokens;
    double attended = 0;
    if (module.ends_with("attn.to_k")) attended = image + prompt;
    if (module.ends_with("attn2.to_k")) attended = image;
    flops += 4 * static_cast<double>(widths.second) * attended * attended;
  }
  return flops;
}

double MedianMilliseconds(int repeat, at::Device device, const std::function<void()>& work) {
  const auto wait = [&] {
    if (device.is_cuda()) at::detail::getCUDAHooks().deviceSynchronize(device.index());
  };
  std::vector<double> times;
  for (int i = 0; i <= repeat; ++i) {
    wait();
    const auto start = std::chrono::steady_clock::now();
    work();
    wait();
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start;
    if (i > 0) times.push_back(spent.count());
  }
  return Quantile(times, 0.5);
}

double PeakMegabytes(at::Device device) {
  if (device.is_cuda()) {
    const auto stats = c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(device.index());
    return static_cast<double>(stats.allocated_bytes[0].peak) / (1 << 20);
  }
  std::ifstream status("/proc/self/status");
  double kilobytes = 0;
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") status >> kilobytes;
  }
  return kilobytes / 1024;
}

void Print(const char* what, double milliseconds, double flops, const Flags& flags) {
  const double tflops = flops / milliseconds / 1e9;
  std::printf("%-16s %8.1f ms  %8.3f TFLOP/s", what, milliseconds, tflops);
  if (flags.peak_tflops > 0) std::printf("  MFU %.1f %%", 100 * tflops / flags.peak_tflops);
  std::printf("\n");
}

struct Inputs {
  at::Tensor x, sigma;
  model::Conditioning prompts;
};

// The kernels that take the most time, if --profile asks for them.
void PrintKernels(const Flags& flags, const std::function<void()>& work) {
  if (flags.profile == 0) return;
  const std::vector<bench::KernelTime> kernels = bench::ProfileKernels(work);
  double all = 0;
  int64_t launches = 0;
  for (const bench::KernelTime& kernel : kernels) {
    all += kernel.milliseconds;
    launches += kernel.launches;
  }
  std::printf("    %7.2f ms in %ld kernels\n", all, launches);
  for (size_t i = 0; i < std::min<size_t>(kernels.size(), flags.profile); ++i) {
    std::printf("    %7.2f ms %5ld x %.140s\n", kernels[i].milliseconds, kernels[i].launches,
                kernels[i].name.c_str());
  }
}

// Prompts are sent once for many passes. Latents are on the CPU, as a trainer's are: what a pass
// takes there and brings back is part of its time.
Inputs RandomInputs(const Flags& flags, at::Device device) {
  const int64_t side = flags.pixels / 8;
  return {.x = at::randn({flags.rows, 16, side, side}),
          .sigma = at::rand({flags.rows}),
          .prompts = {{model::kPromptTokens, at::randn({1, flags.prompt_tokens, 4096}).to(device)},
                      {model::kPooledPrompt, at::randn({1, 2048}).to(device)}}};
}

double ForwardMilliseconds(const Flags& flags, const model::Policy& policy, const Inputs& in,
                           at::Device device) {
  return MedianMilliseconds(flags.repeat, device, [&] {
    const at::NoGradGuard no_grad;
    (void)policy.current().Velocity(in.x, in.sigma, in.prompts);
  });
}

void PrintMemory(const char* what, const Flags& flags, const model::Architecture& network,
                 at::Device device) {
  const model::Execution execution{.compute = flags.compute == "bf16" ? at::kBFloat16 : at::kFloat,
                                   .checkpoint_activations = flags.recompute};
  const int64_t side = flags.pixels / 8;
  const auto activations = static_cast<double>(
      network.ActivationBytes(execution, {.rows = flags.rows,
                                          .on_cpu = device.is_cpu(),
                                          .adapters = kTargets,
                                          .latent_shape = {16, side, side},
                                          .prompt_tokens = flags.prompt_tokens}));
  std::printf("%-16s %8.0f MiB at most, activations at most %.0f MiB of it\n", what,
              PeakMegabytes(device), activations / (1 << 20));
}

void RunLearner(const Flags& flags, const ArchitecturePtr& network, const Inputs& in, double flops,
                at::Device device) {
  const auto policy = RandomPolicy(flags, network, device, nullptr);
  Print("forward", ForwardMilliseconds(flags, *policy, in, device), flops, flags);
  PrintKernels(flags, [&] {
    const at::NoGradGuard no_grad;
    (void)policy->current().Velocity(in.x, in.sigma, in.prompts);
  });
  rl::AdamW optimizer({}, policy->parameters().flat());
  const auto step = [&] {
    policy->parameters().ZeroGrad();
    policy->current().Velocity(in.x, in.sigma, in.prompts).square().mean().backward();
    (void)rl::ClipGradNorm(policy->parameters().flat_grad(), 1);
    optimizer.Step(policy->parameters().flat(), policy->parameters().flat_grad());
  };
  // Frozen weights want no gradient: backward costs one forward more, recomputing another.
  Print("training step", MedianMilliseconds(flags.repeat, device, step),
        flops * (flags.recompute ? 3 : 2), flags);
  PrintKernels(flags, step);
  PrintMemory("training memory", flags, *network, device);
}

// With weights of its own, so that the first policy's are gone.
void RunGraphs(const Flags& flags, const ArchitecturePtr& network, const Inputs& in, double flops,
               at::Device device) {
  const absl::Status possible = model::CheckGraphs(device);
  if (!possible.ok()) {
    std::printf("%-16s not here: no GPU, or a build without CUDA\n", "forward, graph");
    return;
  }
  auto* const allocator = c10::getDeviceAllocator(at::kCUDA);
  allocator->emptyCache();
  allocator->resetPeakStats(device.index());
  const auto policy = RandomPolicy(flags, network, device, model::MakeCudaGraphRecorder(device));
  // A sampler's latents are on the GPU.
  const Inputs there{.x = in.x.to(device), .sigma = in.sigma.to(device), .prompts = in.prompts};
  Print("forward, graph", ForwardMilliseconds(flags, *policy, there, device), flops, flags);
  std::printf("%-16s %8.0f MiB at most\n", "graph memory", PeakMegabytes(device));
}

absl::Status Run(const Flags& flags) {
  at::set_num_threads(flags.threads);
  at::manual_seed(1);
  OXBOW_ASSIGN_OR_RETURN(const at::Device device, model::DeviceNamed(flags.device));
  const ArchitecturePtr network = testing::GraphArchitecture(flags.graph);
  const Inputs in = RandomInputs(flags, device);
  const double flops = ForwardFlops(*network, flags) * static_cast<double>(flags.rows);
  std::printf("%s: %ld rows of %ld px, %ld prompt tokens, %s on %s, %.1f TFLOP a forward\n",
              flags.graph.c_str(), flags.rows, flags.pixels, flags.prompt_tokens,
              flags.compute.c_str(), flags.device.c_str(), flops / 1e12);
  RunLearner(flags, network, in, flops, device);
  RunGraphs(flags, network, in, flops, device);
  return absl::OkStatus();
}

}  // namespace
}  // namespace oxbow

int main(int argc, char** argv) {
  oxbow::Flags flags;
  CLI::App app("Full-size SD3.5-M with random weights and a LoRA: speed and memory.");
  app.add_option("--device", flags.device, "cpu or cuda:N")->capture_default_str();
  app.add_option("--compute", flags.compute, "f32 or bf16")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  app.add_option("--rows", flags.rows)->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--pixels", flags.pixels, "of a side, a multiple of 16")->capture_default_str();
  app.add_option("--prompt-tokens", flags.prompt_tokens)->capture_default_str();
  app.add_option("--graph", flags.graph, "of fewer blocks, for small machines")
      ->capture_default_str();
  app.add_option("--rank", flags.rank, "of the LoRA")->capture_default_str();
  app.add_option("--repeat", flags.repeat)->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--threads", flags.threads)->capture_default_str();
  app.add_flag("--checkpoint", flags.recompute, "recompute blocks in the backward pass");
  app.add_option("--profile", flags.profile, "on a GPU: name this many of the longest kernels");
  app.add_option("--peak-tflops", flags.peak_tflops, "of the device, for the MFU");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = oxbow::Run(flags);
  if (!status.ok()) std::cerr << "sd35m_bench: " << status.message() << "\n";
  return oxbow::ExitCodeOf(status);
}
