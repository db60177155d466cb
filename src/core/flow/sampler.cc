// SPDX-License-Identifier: Apache-2.0
#include "core/flow/sampler.h"

#include <ATen/core/grad_mode.h>

#include "base/check.h"
#include "base/philox.h"
#include "core/flow/dpmpp.h"
#include "core/flow/noise_ahead.h"
#include "core/flow/path_record.h"

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
  NoiseAhead noise(
      NoisySteps(spec, first_step), start.sizes().vec(), start.device(),
      [&keys](uint32_t step, size_t row, std::span<float> out) { DrawRow(keys[row], step, out); });
  DpmppSolver solver(DpmppOf(spec.solver));
  at::Tensor x = Rounded(start.to(at::kFloat), storage);
  PathRecord record(spec, first_step, x);
  for (int step = first_step; step < spec.steps(); ++step) {
    const StepKernel kernel = KernelAt(spec, step);
    const at::Tensor v = velocity(x, at::full({start.size(0)}, kernel.sigma, x.options()));
    if (kernel.scale > 0) {
      x = KernelStep(kernel, KernelMean(kernel, x, v), noise.Take());
      solver.Restart();
    } else if (spec.solver == SolverKind::kEuler) {
      x = KernelMean(kernel, x, v);
    } else {
      const bool last = step + 1 == spec.steps();
      x = solver.Step(x, v.to(at::kFloat), kernel.sigma, kernel.sigma_next, last);
    }
    x = Rounded(x, storage);
    record.Add(x, v);
  }
  record.Finish();
  return {.latents = record.latents(), .log_prob = record.log_prob(), .first_step = first_step};
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
