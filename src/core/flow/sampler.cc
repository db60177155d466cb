// SPDX-License-Identifier: Apache-2.0
#include "core/flow/sampler.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/accumulate.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>

#include "base/check.h"
#include "base/philox.h"
#include "core/flow/dpmpp.h"

namespace oxbow::flow {
namespace {

constexpr size_t kAhead = 2;                    // Steps whose noise is in memory at once.
constexpr int64_t kNumbersOfAThread = 1 << 16;  // In one step; fewer take 2 ms.

// Makes `place` a pinned tensor like `there`, and copies `there` to it, not waiting.
void CopyBehind(const at::Tensor& there, at::Tensor& place) {
  if (!place.defined()) {
    place = at::empty(there.sizes(), there.options().device(at::kCPU).pinned_memory(true));
  }
  place.copy_(there, /*non_blocking=*/true);
}

// A path is new memory of many megabytes. By pages of 4 KiB, taking it costs as much time as
// filling it.
void TakeInLargePages(const at::Tensor& tensor) {
  constexpr uintptr_t kPage = 4096;
  const auto begin = reinterpret_cast<uintptr_t>(tensor.mutable_data_ptr());
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  const uintptr_t end = (begin + tensor.nbytes()) / kPage * kPage;
  if (end <= first) return;
  madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);  // A wish: may be refused.
}

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

NoiseAhead::NoiseAhead(std::vector<uint32_t> steps, std::vector<int64_t> shape, at::Device device,
                       Draw draw)
    : steps_(std::move(steps)), shape_(std::move(shape)), device_(device), draw_(std::move(draw)) {
  if (c10::multiply_integers(shape_) < kNumbersOfAThread) return;
  while (made_ < std::min(kAhead, steps_.size())) ahead_.push_back(NextStep());
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "noise");
    Run();
  });
}

NoiseAhead::~NoiseAhead() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

// By the caller's thread: memory is torch's.
std::shared_ptr<NoiseAhead::Step> NoiseAhead::NextStep() {
  OXBOW_CHECK(made_ < steps_.size()) << "noise of a step that has none";
  const auto host = at::TensorOptions(at::kCPU).pinned_memory(device_.is_cuda());
  at::Tensor noise = at::empty(shape_, host.dtype(at::kFloat));
  const std::span<float> values(noise.mutable_data_ptr<float>(),
                                static_cast<size_t>(noise.numel()));
  return std::make_shared<Step>(steps_[made_++], std::move(noise), values);
}

// False if stopped.
bool NoiseAhead::Fill(Step& step) {
  const auto rows = static_cast<size_t>(shape_[0]);
  const size_t length = rows == 0 ? 0 : step.values.size() / rows;
  for (size_t row = 0; row < rows; ++row) {
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) return false;
    }
    draw_(step.number, row, step.values.subspan(row * length, length));
  }
  return true;
}

void NoiseAhead::Run() {
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || (!ahead_.empty() && !ahead_.back()->drawn);
  };
  for (size_t done = 0; done < steps_.size(); ++done) {
    std::shared_ptr<Step> next;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&has_work));
      if (stopping_) return;
      next = *std::find_if(ahead_.begin(), ahead_.end(), [](const auto& s) { return !s->drawn; });
    }
    if (!Fill(*next)) return;
    absl::MutexLock lock(&mutex_);
    next->drawn = true;
  }
}

at::Tensor NoiseAhead::Take() {
  std::shared_ptr<Step> step;
  if (!thread_.joinable()) {
    step = NextStep();
    Fill(*step);
  } else {
    std::shared_ptr<Step> later = made_ < steps_.size() ? NextStep() : nullptr;
    const auto drawn = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return ahead_.empty() || ahead_.front()->drawn;
    };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&drawn));
    OXBOW_CHECK(!ahead_.empty()) << "noise of a step that has none";
    step = std::move(ahead_.front());
    ahead_.pop_front();
    if (later != nullptr) ahead_.push_back(std::move(later));
  }
  return step->noise.to(device_, /*non_blocking=*/true);
}

PathRecord::PathRecord(const SamplingSpec& spec, int first_step, const at::Tensor& x)
    : spec_(spec), first_step_(first_step) {
  const int64_t steps = spec.steps() - first_step;
  std::vector<int64_t> shape = x.sizes().vec();
  shape.insert(shape.begin(), steps + 1);
  latents_ = at::empty(shape, at::kFloat);
  TakeInLargePages(latents_);
  log_prob_ = at::zeros({steps, x.size(0)}, at::kFloat);
  latents_[0].copy_(x);
}

PathRecord::~PathRecord() = default;

bool PathRecord::HasDensity(int64_t n) const {
  return KernelAt(spec_, first_step_ + static_cast<int>(n)).scale > 0;
}

void PathRecord::Add(const at::Tensor& x_next, const at::Tensor& v) {
  OXBOW_CHECK(taken_ < log_prob_.size(0)) << "more steps than the path has: " << taken_;
  const int64_t n = taken_++;
  if (x_next.is_cpu()) {
    latents_[n + 1].copy_(x_next);
    Score(n, v);
    settled_ = taken_;
    return;
  }
  Send(places_[static_cast<size_t>(n % 2)], x_next, HasDensity(n) ? v : at::Tensor());
  if (n > 0) Settle(n - 1);
}

void PathRecord::Send(Place& place, const at::Tensor& x_next, const at::Tensor& v) const {
  CopyBehind(x_next, place.x_next);
  if (v.defined()) CopyBehind(v, place.v);
  place.arrived = std::make_unique<c10::Event>(x_next.device().type());
  place.arrived->record(
      c10::impl::VirtualGuardImpl(x_next.device().type()).getStream(x_next.device()));
}

void PathRecord::Settle(int64_t n) {
  const Place& place = places_[static_cast<size_t>(n % 2)];
  place.arrived->synchronize();
  latents_[n + 1].copy_(place.x_next);
  Score(n, place.v);
  settled_ = n + 1;
}

void PathRecord::Finish() {
  while (settled_ < taken_) Settle(settled_);
}

// Two rows at a time, which stay in the CPU's cache. Of one alone several threads would add the
// terms in another order.
void PathRecord::Score(int64_t n, const at::Tensor& v) {
  if (!HasDensity(n)) return;
  const int step = first_step_ + static_cast<int>(n);
  const int64_t rows = v.size(0);
  for (int64_t first = 0, count = 0; first < rows; first += count) {
    count = rows - first < 4 ? rows - first : 2;
    const auto part = [&](const at::Tensor& all) { return all.narrow(0, first, count); };
    part(log_prob_[n])
        .copy_(ScoreTransition(spec_, step, part(latents_[n]), part(latents_[n + 1]), part(v)));
  }
}

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
