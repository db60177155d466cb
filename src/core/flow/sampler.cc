// SPDX-License-Identifier: Apache-2.0
#include "core/flow/sampler.h"

#include <ATen/ATen.h>
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

// The solvers of a path's deterministic steps: the spec's, and where the path is compressed that of
// its end.
class StepSolver {
 public:
  explicit StepSolver(const SamplingSpec& path)
      : path_(path), before_(DpmppOf(path.solver)), behind_(DpmppKind::kMidpoint) {}

  at::Tensor Step(int step, const StepKernel& kernel, const at::Tensor& x, const at::Tensor& v) {
    const bool compressed = path_.compressed_from >= 0 && step >= path_.compressed_from;
    if (!compressed && path_.solver == SolverKind::kEuler) {
      Carry(step, kernel, x, v);
      return KernelMean(kernel, x, v);
    }
    const bool last = step + 1 == path_.steps();
    const at::Tensor velocity = v.to(at::kFloat);
    Carry(step, kernel, x, v);
    return (compressed ? behind_ : before_)
        .Step(x, velocity, kernel.sigma, kernel.sigma_next, last);
  }

  // A step that noise ends: the next one starts another path, unless it is to go on all the same.
  void Interrupt(int step, const StepKernel& kernel, const at::Tensor& x, const at::Tensor& v) {
    before_.Restart();
    Carry(step, kernel, x, v);
  }

 private:
  void Carry(int step, const StepKernel& kernel, const at::Tensor& x, const at::Tensor& v) {
    if (path_.compression.carry && step + 1 == path_.compressed_from) {
      behind_.Note(x, v.to(at::kFloat), kernel.sigma);
    }
  }

  const SamplingSpec& path_;
  DpmppSolver before_, behind_;
};

at::Tensor Rounded(const at::Tensor& x, at::ScalarType storage) {
  return storage == at::kFloat ? x : x.to(storage).to(at::kFloat);
}

// The rows that are computed of x_{first_step}, x_{first_step + 1}, ..: all of them.
std::vector<SharedRows> RowsApart(const SamplingSpec& spec, const std::vector<NoiseKey>& keys,
                                  int first_step) {
  SharedRows all;
  for (size_t row = 0; row < keys.size(); ++row) all.first.push_back(static_cast<int64_t>(row));
  all.node = all.first;
  return std::vector<SharedRows>(static_cast<size_t>(spec.steps() - first_step) + 1, all);
}

// One for each node.
std::vector<SharedRows> RowsShared(const SamplingSpec& spec, const std::vector<NoiseKey>& keys,
                                   int first_step) {
  std::vector<Member> members;
  for (const NoiseKey& key : keys) members.push_back({key.group, key.sample});
  std::vector<SharedRows> shared;
  for (int step = first_step - 1; step < spec.steps(); ++step) {
    shared.push_back(NodesAfter(spec.splits, members, step));
  }
  return shared;
}

// A path's places for the rows of one latent, kept where its steps are taken. They go there
// before the first step: a copy between two steps would make the host wait.
struct RowPlaces {
  at::Tensor first;    // Rows of the batch that are computed; undefined: all.
  at::Tensor node;     // Each row's place among them; undefined: its own.
  at::Tensor parents;  // Places of their parents among those of the latent before; undefined: the
                       // same ones.

  at::Tensor Gathered(const at::Tensor& batch) const {
    return first.defined() ? batch.index_select(0, first) : batch;
  }
  at::Tensor Spread(const at::Tensor& nodes) const {
    return node.defined() ? nodes.index_select(0, node) : nodes;
  }
};

std::vector<RowPlaces> PlacesOf(const std::vector<SharedRows>& rows, at::Device device) {
  const auto index = [&](const std::vector<int64_t>& values) {
    return at::tensor(values, at::kLong).to(device);
  };
  std::vector<RowPlaces> places;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i > 0 && rows[i].first.size() == rows[i - 1].first.size()) {
      places.push_back(places.back());
      places.back().parents = at::Tensor();
      continue;
    }
    RowPlaces& place = places.emplace_back();
    if (rows[i].first.size() < rows[i].node.size()) {
      place.first = index(rows[i].first);
      place.node = index(rows[i].node);
    }
    if (i == 0) continue;
    std::vector<int64_t> parents;
    for (const int64_t row : rows[i].first) {
      parents.push_back(rows[i - 1].node[static_cast<size_t>(row)]);
    }
    place.parents = index(parents);
  }
  return places;
}

// The noise of the stochastic steps, of the rows that are computed.
NoiseAhead::Draw DrawOf(const SamplingSpec& spec, const std::vector<NoiseKey>& keys,
                        const std::vector<SharedRows>& rows, int first_step) {
  return [&, first_step](uint32_t step, size_t row, std::span<float> out) {
    const SharedRows& nodes = rows[static_cast<size_t>(static_cast<int>(step) + 1 - first_step)];
    const auto node = static_cast<size_t>(nodes.node[row]);
    if (nodes.first[node] != static_cast<int64_t>(row)) return;  // Nobody reads it.
    NoiseKey key = keys[row];
    key.sample = spec.splits.FirstLeaf(key.sample, static_cast<int>(step));
    DrawRow(key, step, out);
  };
}

// `spec` is that of the path, and `rows` [steps + 1] the rows that are computed of each latent.
Paths Walk(const SamplingSpec& spec, const std::vector<NoiseKey>& keys,
           const std::vector<SharedRows>& rows, const at::Tensor& start, int first_step,
           at::ScalarType storage, const NodeVelocityFunction& velocity) {
  OXBOW_CHECK(start.dim() >= 2 && start.size(0) == static_cast<int64_t>(keys.size()))
      << "one start per key: " << keys.size();
  OXBOW_CHECK(first_step >= 0 && first_step <= spec.steps()) << "first step " << first_step;
  const at::NoGradGuard no_grad;
  NoiseAhead noise(NoisySteps(spec, first_step), start.sizes().vec(), start.device(),
                   DrawOf(spec, keys, rows, first_step));
  StepSolver solver(spec);
  at::Tensor x = Rounded(start.to(at::kFloat), storage);
  PathRecord record(spec, first_step, x);
  const std::vector<RowPlaces> places = PlacesOf(rows, x.device());
  x = places[0].Gathered(x);
  for (int step = first_step; step < spec.steps(); ++step) {
    const auto i = static_cast<size_t>(step - first_step);
    const RowPlaces& next = places[i + 1];
    const StepKernel kernel = KernelAt(spec, step);
    at::Tensor v = velocity(x, at::full({x.size(0)}, kernel.sigma, x.options()), rows[i].first);
    if (next.parents.defined()) {
      OXBOW_CHECK(kernel.scale > 0) << "a split at step " << step << ", which has no noise";
      x = x.index_select(0, next.parents);
      v = v.index_select(0, next.parents);
    }
    if (kernel.scale > 0) {
      solver.Interrupt(step, kernel, x, v);
      x = KernelStep(kernel, KernelMean(kernel, x, v), next.Gathered(noise.Take()));
    } else {
      x = solver.Step(step, kernel, x, v);
    }
    x = Rounded(x, storage);
    record.Add(next.Spread(x), next.Spread(v));
  }
  record.Finish();
  return {.latents = record.latents(), .log_prob = record.log_prob(), .first_step = first_step};
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
  std::vector<NoiseKey> roots = keys;
  for (NoiseKey& root : roots) root.sample = spec.splits.FirstLeaf(root.sample, -1);
  return ContinuePaths(spec, keys, DrawStarts(roots, shape), 0, storage, velocity);
}

Paths ContinuePaths(const SamplingSpec& spec, const std::vector<NoiseKey>& keys,
                    const at::Tensor& start, int first_step, at::ScalarType storage,
                    const VelocityFunction& velocity) {
  const SamplingSpec path = PathSpec(spec, first_step);
  return Walk(path, keys, RowsApart(path, keys, first_step), start, first_step, storage,
              [&](const at::Tensor& x, const at::Tensor& sigma, const std::vector<int64_t>&) {
                return velocity(x, sigma);
              });
}

Paths ContinueTrees(const SamplingSpec& spec, const std::vector<NoiseKey>& keys,
                    const at::Tensor& start, int first_step, at::ScalarType storage,
                    const NodeVelocityFunction& velocity) {
  const SamplingSpec path = PathSpec(spec, first_step);
  return Walk(path, keys, RowsShared(path, keys, first_step), start, first_step, storage, velocity);
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
