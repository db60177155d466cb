// SPDX-License-Identifier: Apache-2.0
// One transformer with an adapter as a process of its own: sampling or a training step, timed, with
// its peak memory. tools/bench_diffusers.py runs it in turn with diffusers on the same files and
// compares what both compute.
//
//   MODEL/transformer     a diffusers component with its graph.json.gz
//   MODEL/adapter.safetensors   lora_A and lora_B by PEFT's names; metadata: rank, alpha, targets
//   MODEL/inputs.safetensors    x, sigma, direction; all others are the conditioning
//
// Prints one line of JSON: seconds by the wall clock and of CPU for each repetition, and resident
// megabytes before the model was loaded and at most. Writes the last image, or the adapter after
// the last update, to --out.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "core/flow/sampler.h"
#include "core/model/image_sampler.h"
#include "core/model/policy.h"
#include "core/rl/adamw.h"
#include "io/graph_files.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"

namespace oxbow {
namespace {

struct Flags {
  std::filesystem::path model;
  std::filesystem::path out;
  std::string what;
  int threads = 1;
  int repeat = 3;
  int steps = 10;
};

// Aborts with the message where the files are not what the tool writes.
template <class T>
T Get(absl::StatusOr<T> value) {
  OXBOW_CHECK(value.ok()) << value.status().ToString();
  return *std::move(value);
}

double SecondsOf(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return SecondsOf(usage.ru_utime) + SecondsOf(usage.ru_stime);
}

// Not getrusage's: that one starts from the peak of the parent process.
double PeakMegabytes() {
  std::ifstream status("/proc/self/status");
  double kilobytes = 0;
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") status >> kilobytes;
  }
  return kilobytes / 1024;
}

// Runs `work` once unmeasured and then `repeat` times.
nlohmann::ordered_json Measured(int repeat, const std::function<void()>& work) {
  std::vector<double> wall, cpu;
  for (int i = 0; i <= repeat; ++i) {
    const double cpu_before = CpuSeconds();
    const auto before = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - before;
    if (i == 0) continue;
    wall.push_back(seconds.count());
    cpu.push_back(CpuSeconds() - cpu_before);
  }
  return {{"wall_s", wall}, {"cpu_s", cpu}};
}

std::shared_ptr<const model::Architecture> ReadArchitecture(const Flags& flags) {
  const std::filesystem::path directory = flags.model / "transformer";
  model::ArchitectureSource source{.config_json = Get(ReadFile(directory / "config.json"))};
  source.class_name = nlohmann::json::parse(source.config_json).at("_class_name");
  source.graph_json = Get(io::ReadGraphFile(directory / "graph.json.gz"));
  return Get(model::ReadArchitecture(source));
}

std::unique_ptr<model::Policy> LoadPolicy(const Flags& flags) {
  const auto adapter = Get(io::WeightFiles::OpenFile(flags.model / "adapter.safetensors"));
  model::Policy::Options options{
      .architecture = ReadArchitecture(flags),
      .base = Get(io::LoadTensors(
          Get(io::WeightFiles::Open(flags.model / "transformer", "diffusion_pytorch_model")))),
      .trained = model::Trained::kLora,
      .lora = {.rank = std::stol(adapter.metadata().at("rank")),
               .alpha = std::stod(adapter.metadata().at("alpha")),
               .targets = nlohmann::json::parse(adapter.metadata().at("targets"))},
      .with_ema = false,
      .trainable = flags.what == "training"};
  auto policy = Get(model::Policy::Create(std::move(options)));
  const absl::Status loaded = policy->Load(Get(io::LoadTensors(adapter)));
  OXBOW_CHECK(loaded.ok()) << loaded.ToString();
  return policy;
}

model::Conditioning PromptsOf(model::NamedTensors in) {
  for (const char* other : {"x", "sigma", "direction"}) in.erase(other);
  return {in.begin(), in.end()};
}

// Ten steps of the ODE from the same noise.
nlohmann::ordered_json Sample(const Flags& flags, const model::Policy& policy,
                              const model::NamedTensors& in, model::NamedTensors& out) {
  const flow::SamplingSpec spec =
      model::OdeSpec(flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, flags.steps, 3));
  const model::Conditioning conditioning = PromptsOf(in);
  const std::vector<flow::NoiseKey> keys(static_cast<size_t>(in.at("x").size(0)));
  return Measured(flags.repeat, [&] {
    const flow::Paths paths = flow::ContinuePaths(
        spec, keys, in.at("x"), 0, at::kFloat, [&](const at::Tensor& x, const at::Tensor& sigma) {
          return policy.current().Velocity(x, sigma, conditioning);
        });
    out["x"] = paths.latents[-1].clone();
  });
}

// Forward, backward, a limit to the gradient's norm, and AdamW over the adapter.
nlohmann::ordered_json Train(const Flags& flags, model::Policy& policy,
                             const model::NamedTensors& in, model::NamedTensors& out) {
  const model::Conditioning conditioning = PromptsOf(in);
  rl::AdamW optimizer({}, policy.parameters().flat());
  auto times = Measured(flags.repeat, [&] {
    policy.parameters().ZeroGrad();
    const at::Tensor v = policy.current().Velocity(in.at("x"), in.at("sigma"), conditioning);
    (v * in.at("direction")).mean().backward();
    (void)rl::ClipGradNorm(policy.parameters().flat_grad(), 1);
    optimizer.Step(policy.parameters().flat(), policy.parameters().flat_grad());
  });
  for (const auto& [name, tensor] : policy.parameters().tensors()) out[name] = tensor.detach();
  return times;
}

void Run(const Flags& flags) {
  at::set_num_threads(flags.threads);
  // The first operation makes the pools that the libraries take by themselves.
  (void)at::mm(at::ones({64, 64}), at::ones({64, 64}));
  const double before = PeakMegabytes();
  const auto policy = LoadPolicy(flags);
  const auto in =
      Get(io::LoadTensors(Get(io::WeightFiles::OpenFile(flags.model / "inputs.safetensors"))));
  model::NamedTensors out;
  nlohmann::ordered_json report =
      flags.what == "training" ? Train(flags, *policy, in, out) : Sample(flags, *policy, in, out);
  report["before_mb"] = before;
  report["peak_mb"] = PeakMegabytes();
  const absl::Status written =
      io::WriteSafetensors(flags.out, {.tensors = io::AllFromTorch(out), .metadata = {}});
  OXBOW_CHECK(written.ok()) << written.ToString();
  std::cout << report.dump() << "\n";
}

}  // namespace
}  // namespace oxbow

int main(int argc, char** argv) {
  oxbow::Flags flags;
  CLI::App app("Sampling and training of one transformer, for tools/bench_diffusers.py.");
  app.add_option("what", flags.what, "sampling or training")
      ->required()
      ->check(CLI::IsMember({"sampling", "training"}));
  app.add_option("model", flags.model, "Directory of the tool's files")->required();
  app.add_option("--out", flags.out, "What was computed")->required();
  app.add_option("--threads", flags.threads);
  app.add_option("--repeat", flags.repeat);
  app.add_option("--steps", flags.steps, "Of sampling");
  CLI11_PARSE(app, argc, argv);
  oxbow::Run(flags);
}
