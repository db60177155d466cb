// SPDX-License-Identifier: Apache-2.0
// A transformer at the size of its exported graph with random weights: milliseconds of a forward
// pass, launched kernel by kernel and, on a GPU, as a CUDA graph, and of a training step of a LoRA;
// the share of a device's peak that this is, and memory.
//
//   graph_bench models/graphs/SD3Transformer2DModel-sd3.5-medium.json.gz --device cuda:0
//       --compute bf16 --rows 8 --peak-tflops 989
//
// A multiplication and an addition count two, as in the peaks that vendors print (measure.h).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "bench/measure.h"
#include "core/model/cuda_graphs.h"
#include "core/model/device.h"
#include "core/model/policy.h"
#include "core/rl/adamw.h"
#include "io/graph_files.h"

namespace oxbow {
namespace {

using ArchitecturePtr = std::shared_ptr<const model::Architecture>;

struct Flags {
  std::string graph, device = "cpu", compute = "f32";
  int64_t rows = 8, prompt_tokens = 205, rank = 32;
  model::PictureSize size = {.height = 512, .width = 512};
  model::LatentFactors factors = {.time = 4, .space = 8};
  std::vector<std::string> targets;
  bool recompute = false, forward_only = false, without_adapter = false, graphs = true;
  int threads = 1;
  bench::Report report;

  at::ScalarType type() const { return compute == "bf16" ? at::kBFloat16 : at::kFloat; }
};

// On a learner's side latents are on the CPU, as a trainer's are: to take them from there and bring
// velocities back is part of a pass. Prompts are sent once for many passes.
struct Inputs {
  at::Tensor x, sigma;
  model::Conditioning prompts;
};

absl::StatusOr<ArchitecturePtr> Read(const std::string& file) {
  OXBOW_ASSIGN_OR_RETURN(const std::string json, io::ReadGraphFile(file));
  const auto graph = nlohmann::json::parse(json);
  return model::ReadArchitecture(
      {.class_name = graph["class"], .config_json = graph["config"].dump(), .graph_json = json});
}

// `graphs`: as a worker has it that replays forward passes; null: as a learner has it.
absl::StatusOr<std::unique_ptr<model::Policy>> RandomPolicy(
    const Flags& flags, const ArchitecturePtr& architecture, at::Device device,
    std::shared_ptr<model::GraphRecorder> graphs) {
  model::Policy::Options options{
      .architecture = architecture,
      .trained = model::Trained::kLora,
      .lora = {.rank = flags.rank,
               .alpha = 2.0 * static_cast<double>(flags.rank),
               .targets =
                   flags.targets.empty() ? model::LoraTargetsOf(*architecture) : flags.targets},
      .with_ema = false,
      .trainable = graphs == nullptr,
      .embedded_guidance = architecture->takes_embedded_guidance() ? 3.5 : 0,
      .compute = flags.type(),
      .device = device,
      .checkpoint_activations = flags.recompute,
      .graphs = std::move(graphs)};
  const model::Shapes shapes = architecture->shapes();
  options.read_base = [&](const std::string& name) -> absl::StatusOr<at::Tensor> {
    const bool exact = architecture->float32().contains(name);
    return at::randn(shapes.at(name),
                     at::TensorOptions(device).dtype(exact ? at::kFloat : flags.type()))
        .mul_(0.02);
  };
  return model::Policy::Create(std::move(options));
}

Inputs RandomInputs(const Flags& flags, const model::Architecture& architecture,
                    const std::vector<int64_t>& latent, at::Device device) {
  std::vector<int64_t> shape = latent;
  shape.insert(shape.begin(), flags.rows);
  Inputs in{.x = at::randn(shape), .sigma = at::rand({flags.rows}), .prompts = {}};
  for (const model::ConditioningPart& part : architecture.conditioning()) {
    const std::vector<int64_t> of_one = model::ShapeOf(part, 1, flags.prompt_tokens);
    const bool mask = part.values == model::ConditioningPart::Values::kMask;
    in.prompts[part.name] = (mask ? at::ones(of_one) : at::randn(of_one)).to(device);
  }
  return in;
}

void Forward(const std::string& what, const Flags& flags, const model::VelocityModel& network,
             const Inputs& in, at::Device device) {
  (void)bench::Measure(what, flags.report, device, [&] {
    const at::NoGradGuard no_grad;
    (void)network.Velocity(in.x, in.sigma, in.prompts);
  });
}

void RunLearner(const Flags& flags, model::Policy& policy, const Inputs& in, at::Device device) {
  Forward("forward", flags, policy.current(), in, device);
  if (flags.without_adapter) Forward("forward, no adapter", flags, policy.reference(), in, device);
  if (flags.forward_only) return;
  rl::AdamW optimizer({}, policy.parameters().flat());
  (void)bench::Measure("training step", flags.report, device, [&] {
    policy.parameters().ZeroGrad();
    policy.current().Velocity(in.x, in.sigma, in.prompts).square().mean().backward();
    (void)rl::ClipGradNorm(policy.parameters().flat_grad(), 1);
    optimizer.Step(policy.parameters().flat(), policy.parameters().flat_grad());
  });
  if (!flags.without_adapter) return;
  // As far down as an adapter's gradients go, to the first block; and to x itself.
  const at::Tensor x = in.x.clone().requires_grad_();
  (void)bench::Measure("both passes, no adapter", flags.report, device, [&] {
    x.mutable_grad() = at::Tensor();
    policy.reference().Velocity(x, in.sigma, in.prompts).square().mean().backward();
  });
}

void PrintMemory(const Flags& flags, const model::Architecture& architecture,
                 const std::vector<int64_t>& latent, at::Device device) {
  const auto activations = static_cast<double>(architecture.ActivationBytes(
      {.compute = flags.type(), .checkpoint_activations = flags.recompute},
      {.rows = flags.rows,
       .on_cpu = device.is_cpu(),
       .latent_shape = latent,
       .prompt_tokens = flags.prompt_tokens}));
  std::printf("%-22s %9.0f MiB at most, activations at most %.0f MiB of it\n", "memory",
              bench::PeakMebibytes(device), activations / (1 << 20));
}

// With weights of its own, so that the first policy's are gone.
absl::Status RunGraphs(const Flags& flags, const ArchitecturePtr& architecture, const Inputs& in,
                       at::Device device) {
  if (!model::CheckGraphs(device).ok()) {
    std::printf("%-22s not here: no GPU, or a build without CUDA\n", "forward, graph");
    return absl::OkStatus();
  }
  bench::ForgetPeak(device);
  OXBOW_ASSIGN_OR_RETURN(const auto policy, RandomPolicy(flags, architecture, device,
                                                         model::MakeCudaGraphRecorder(device)));
  // A sampler's latents are on the GPU.
  const Inputs there{.x = in.x.to(device), .sigma = in.sigma.to(device), .prompts = in.prompts};
  Forward("forward, graph", flags, policy->current(), there, device);
  std::printf("%-22s %9.0f MiB at most\n", "graph memory", bench::PeakMebibytes(device));
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  at::set_num_threads(flags.threads);
  at::manual_seed(1);
  OXBOW_ASSIGN_OR_RETURN(const at::Device device, model::DeviceNamed(flags.device));
  OXBOW_ASSIGN_OR_RETURN(const ArchitecturePtr architecture, Read(flags.graph));
  OXBOW_ASSIGN_OR_RETURN(const std::vector<int64_t> latent,
                         LatentShape(architecture->latent(), flags.factors, flags.size));
  const Inputs in = RandomInputs(flags, *architecture, latent, device);
  std::printf("%s, %ld rows of %s latents, %ld prompt tokens, %s on %s\n",
              architecture->class_name().c_str(), flags.rows, absl::StrJoin(latent, " x ").c_str(),
              flags.prompt_tokens, flags.compute.c_str(), flags.device.c_str());
  {
    OXBOW_ASSIGN_OR_RETURN(const auto policy, RandomPolicy(flags, architecture, device, nullptr));
    RunLearner(flags, *policy, in, device);
    PrintMemory(flags, *architecture, latent, device);
  }
  return flags.graphs ? RunGraphs(flags, architecture, in, device) : absl::OkStatus();
}

}  // namespace
}  // namespace oxbow

int main(int argc, char** argv) {
  oxbow::Flags flags;
  CLI::App app(
      "A transformer at its published size, with random weights and a LoRA: speed and memory.");
  app.option_defaults()->always_capture_default();
  app.add_option("graph", flags.graph, "of models/graphs, or graph.json.gz of a model")->required();
  app.add_option("--device", flags.device, "cpu or cuda:N");
  app.add_option("--compute", flags.compute)->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--rows", flags.rows)->check(CLI::Range(1, 4096));
  app.add_option("--height", flags.size.height, "in pixels");
  app.add_option("--width", flags.size.width, "in pixels");
  app.add_option("--frames", flags.size.frames, "of a video; 0: the model's own, and pictures");
  app.add_option("--pixels-per-latent", flags.factors.space, "of a side")->check(CLI::Range(1, 64));
  app.add_option("--frames-per-latent", flags.factors.time)->check(CLI::Range(1, 16));
  app.add_option("--prompt-tokens", flags.prompt_tokens);
  app.add_option("--rank", flags.rank, "of the LoRA");
  app.add_option("--targets", flags.targets, "of the LoRA; else the customary ones")
      ->delimiter(',');
  app.add_option("--repeat", flags.report.repeat)->check(CLI::Range(1, 1000));
  app.add_option("--threads", flags.threads);
  app.add_flag("--recompute", flags.recompute, "blocks, in the backward pass");
  app.add_flag("--forward-only", flags.forward_only, "no training step");
  app.add_flag("--without-adapter", flags.without_adapter, "the same without the LoRA, too");
  app.add_flag("!--no-graph", flags.graphs, "leave out the CUDA graph");
  app.add_option("--profile", flags.report.kernels,
                 "on a GPU: name so many of the longest kernels");
  app.add_option("--peak-tflops", flags.report.peak_tflops, "of the device, for the MFU");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = oxbow::Run(flags);
  if (!status.ok()) std::cerr << "graph_bench: " << status.message() << "\n";
  return oxbow::ExitCodeOf(status);
}
