// SPDX-License-Identifier: Apache-2.0
#include "core/flow/sampler.h"

#include <ATen/core/grad_mode.h>

#include "base/check.h"
#include "base/philox.h"
#include "core/flow/dpmpp.h"
#include "core/flow/noise_ahead.h"

namespace oxbow::flow {
namespace {

std::vector<int64_t> BatchShape(size_t batch, at::IntArrayRef shape) {
  std::vector<int64_t> full = {static_cast<int64_t>(batch)};
  full.insert(full.end(), shape.begin(), shape.end());
  return full;
}

// From the stream of this key and step.
void DrawRow(const NoiseKey& key, uint32_t step, std::span<float> out) {
  RandomStream({.seed = key.run_seed, .group = key.group, .sample = key.sample, .step = step})
      .FillNormal(out);
}

// One row per key.
at::Tensor DrawRows(const std::vector<NoiseKey>& keys, uint32_t step, at::IntArrayRef shape) {
  at::Tensor noise = at::empty(BatchShape(keys.size(), shape), at::kFloat);
  const size_t row = keys.empty() ? 0 : static_cast<size_t>(noise.numel()) / keys.size();
  float* out = noise.data_ptr<float>();
  for (const NoiseKey& key : keys) {
    DrawRow(key, step, {out, row});
    out += row;
  }
  return noise;
}

// The stochastic steps from `first_step` on.
std::vector<uint32_t> NoisySteps(const SamplingSpec& spec, int first_step) {
  std::vector<uint32_t> steps;
  for (int step = first_step; step < spec.steps(); ++step) {
    if (KernelAt(spec, step).scale > 0) steps.push_back(static_cast<uint32_t>(step));
  }
  return steps;
}

DpmppKind DpmppOf(SolverKind solver) {
  return solver == SolverKind::kDpmppHeun ? DpmppKind::kHeun : DpmppKind::kMidpoint;
}

at::Tensor Rounded(const at::Tensor& x, at::ScalarType storage) {
  return storage == at::kFloat ? x : x.to(storage).to(at::kFloat);
}

}  // namespace

at::Tensor DrawNoise(const NoiseKey& key, uint32_t step, at::IntArrayRef shape) {
  return DrawRows({key}, step, shape)[0];
}

at::Tensor DrawStarts(const std::vector<NoiseKey>& keys, at::IntArrayRef shape) {
  return DrawRows(keys, kInitialLatent, shape);
}

Paths SamplePaths(const SamplingSpec& spec, const std::vector<NoiseKey>& keys,
                  at::IntArrayRef shape, at::ScalarType storage, const VelocityFunction& velocity) {
  return ContinuePaths(spec, keys, DrawStarts(keys, shape), 0, storage, velocity);
}

Paths ContinuePaths(const SamplingSpec& spec, const std::vector<NoiseKey>& keys,
                    const at::Tensor& start, int first_step, at::ScalarType storage,
                    const VelocityFunction& velocity) {
  OXBOW_CHECK(start.dim() >= 2 && start.size(0) == static_cast<int64_t>(keys.size()))
      << "one start per key: " << keys.size();
  OXBOW_CHECK(first_step >= 0 && first_step <= spec.steps()) << "first step " << first_step;
  const at::NoGradGuard no_grad;
  const int64_t batch = start.size(0);
  const int64_t count = spec.steps() - first_step;
  const at::IntArrayRef shape = start.sizes().slice(1);

  Paths paths{.first_step = first_step};
  std::vector<int64_t> path_shape = BatchShape(static_cast<size_t>(batch), shape);
  path_shape.insert(path_shape.begin(), count + 1);
  paths.latents = at::empty(path_shape, start.options().dtype(at::kFloat));
  paths.log_prob = at::zeros({count, batch}, at::kFloat);

  NoiseAhead noise(
      NoisySteps(spec, first_step), start.sizes().vec(), start.device(),
      [&keys](uint32_t step, size_t row, std::span<float> out) { DrawRow(keys[row], step, out); });
  std::vector<at::Tensor> unscored(static_cast<size_t>(count));  // Velocities, on a GPU.
  DpmppSolver solver(DpmppOf(spec.solver));
  at::Tensor x = Rounded(start.to(at::kFloat), storage);
  paths.latents[0].copy_(x);
  for (int64_t n = 0; n < count; ++n) {
    const int step = first_step + static_cast<int>(n);
    const StepKernel kernel = KernelAt(spec, step);
    const auto rows = GatherKernels(spec, std::vector<int>(static_cast<size_t>(batch), step));
    const at::Tensor v = velocity(x, at::full({batch}, kernel.sigma, x.options()));
    if (kernel.scale > 0) {
      const at::Tensor mean = RowMean(*rows, x, v);
      x = Rounded(KernelStep(kernel, mean, noise.Take()), storage);
      if (x.is_cpu()) {
        paths.log_prob[n].copy_(RowLogProb(*rows, mean, x));
      } else {
        unscored[static_cast<size_t>(n)] = v;
      }
      solver.Restart();
    } else if (spec.solver == SolverKind::kEuler) {
      x = Rounded(RowMean(*rows, x, v), storage);
    } else {
      const bool last = step + 1 == spec.steps();
      x = Rounded(solver.Step(x, v.to(at::kFloat), kernel.sigma, kernel.sigma_next, last), storage);
    }
    paths.latents[n + 1].copy_(x);
  }
  paths.latents = paths.latents.cpu();
  for (int64_t n = 0; n < count; ++n) {
    const at::Tensor& v = unscored[static_cast<size_t>(n)];
    if (!v.defined()) continue;
    paths.log_prob[n].copy_(ScoreTransition(spec, first_step + static_cast<int>(n),
                                            paths.latents[n], paths.latents[n + 1], v.cpu()));
  }
  return paths;
}

at::Tensor ScoreTransition(const SamplingSpec& spec, int step, const at::Tensor& x,
                           const at::Tensor& x_next, const at::Tensor& velocity) {
  const auto rows = GatherKernels(spec, std::vector<int>(static_cast<size_t>(x.size(0)), step));
  return RowLogProb(*rows, RowMean(*rows, x, velocity), x_next);
}

std::vector<double> SensitivityTable(const SamplingSpec& spec) {
  std::vector<double> table;
  table.reserve(static_cast<size_t>(spec.steps()));
  for (int i = 0; i < spec.steps(); ++i) table.push_back(KernelSensitivity(KernelAt(spec, i)));
  return table;
}

int KeptSteps(const SamplingSpec& spec, double kc_max) {
  int kept = 0;
  for (int i = 0; i < spec.steps(); ++i) {
    const StepKernel kernel = KernelAt(spec, i);
    if (kernel.scale <= 0) continue;
    if (KernelSensitivity(kernel) >= kc_max) break;
    kept = i + 1;
  }
  return kept;
}

}  // namespace oxbow::flow
