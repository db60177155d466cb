// SPDX-License-Identifier: Apache-2.0
// Coefficients come from expanding each published step in x and v:
//
//   sde   std^2 / 2 times the score, written with v, joins the drift: Flow-GRPO eq. 9. Flow,
//         Dance and Wan differ only in std: eta sqrt(s / (1 - s)), eta, and s sigma_1.
//   cps   x' = (1 - s') x0hat + sqrt(s'^2 - std^2) x1hat + std z with std = s' sin(eta pi / 2),
//         x0hat = x - s v, x1hat = x + (1 - s) v.
#include "core/flow/dynamics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/sha256.h"

namespace oxbow::flow {

// One value per row of each coefficient, in both precisions; `score` and `offset` are those of
// log-prob = score mean((x' - mean)^2) + offset, both 0 for a deterministic row.
struct RowKernels {
  struct Columns {
    at::Tensor cx;
    at::Tensor cv;
    at::Tensor score;
    at::Tensor offset;
  };
  Columns narrow;  // float32 [R]
  Columns wide;    // float64 [R]
};

namespace {

const double kLogSqrtTwoPi = 0.5 * std::log(2 * std::numbers::pi);

void AppendWord(uint64_t word, std::string& bytes) {
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(word >> shift));
}

void AppendDouble(double value, std::string& bytes) {
  AppendWord(std::bit_cast<uint64_t>(value), bytes);
}

// 1 - sigma is computed from at most the second noise level, because std is infinite at sigma = 1.
// Wan's grid starts just below 1, where an equality test would let std reach 49.
double FlowStd(double eta, double sigma, double sigma_1) {
  return eta * std::sqrt(sigma / (1 - std::min(sigma, sigma_1)));
}

StepKernel OdeKernel(double sigma, double sigma_next) {
  return {.sigma = sigma,
          .sigma_next = sigma_next,
          .cx = 1,
          .cv = sigma_next - sigma,
          .scale = 0,
          .std = 0};
}

StepKernel SdeKernel(double std, double sigma, double sigma_next) {
  const double dt = sigma_next - sigma;
  const double pull = std * std / (2 * sigma);
  return {.sigma = sigma,
          .sigma_next = sigma_next,
          .cx = 1 + pull * dt,
          .cv = (1 + pull * (1 - sigma)) * dt,
          .scale = std * std::sqrt(-dt),
          .std = std};
}

StepKernel CpsKernel(double eta, double sigma, double sigma_next) {
  const double std = sigma_next * std::sin(eta * std::numbers::pi / 2);
  const double clean = 1 - sigma_next;
  const double noise = std::sqrt(sigma_next * sigma_next - std * std);
  return {.sigma = sigma,
          .sigma_next = sigma_next,
          .cx = clean + noise,
          .cv = noise * (1 - sigma) - clean * sigma,
          .scale = std,
          .std = std};
}

RowKernels::Columns ToColumns(const at::Tensor& table, at::ScalarType dtype) {
  const at::Tensor columns = table.to(dtype);
  return {.cx = columns[0], .cv = columns[1], .score = columns[2], .offset = columns[3]};
}

RowKernels MakeRows(const std::vector<StepKernel>& kernels) {
  const auto rows = static_cast<int64_t>(kernels.size());
  at::Tensor table = at::zeros({4, rows}, at::kDouble);
  auto cells = table.accessor<double, 2>();
  for (int64_t r = 0; r < rows; ++r) {
    const StepKernel& kernel = kernels[static_cast<size_t>(r)];
    cells[0][r] = kernel.cx;
    cells[1][r] = kernel.cv;
    if (kernel.scale > 0) {
      cells[2][r] = -1 / (2 * kernel.scale * kernel.scale);
      cells[3][r] = -std::log(kernel.scale) - kLogSqrtTwoPi;
    }
  }
  return {.narrow = ToColumns(table, at::kFloat), .wide = ToColumns(table, at::kDouble)};
}

const RowKernels::Columns& ColumnsFor(const RowKernels& kernels, const at::Tensor& like) {
  return like.scalar_type() == at::kDouble ? kernels.wide : kernels.narrow;
}

at::Tensor Upcast(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

// Reshapes [R] to [R, 1, 1, ..], to multiply the rows of `like`.
at::Tensor OverRows(const at::Tensor& column, const at::Tensor& like) {
  std::vector<int64_t> shape(static_cast<size_t>(like.dim()), 1);
  shape[0] = -1;
  return column.to(like.device()).view(shape);
}

}  // namespace

uint64_t SamplingSpec::Id() const {
  std::string bytes = "oxbow.sampling.1";
  AppendWord(static_cast<uint64_t>(dynamics), bytes);
  AppendDouble(eta, bytes);
  AppendDouble(guidance, bytes);
  AppendWord(sigmas.size(), bytes);
  for (const double sigma : sigmas) AppendDouble(sigma, bytes);
  AppendWord(sde.size(), bytes);
  for (const bool stochastic : sde) bytes.push_back(stochastic ? 1 : 0);
  // Later additions are written only where they are not the default: stored ids keep their value.
  if (solver != SolverKind::kEuler) AppendWord(static_cast<uint64_t>(solver), bytes);
  // For the same reason, only for networks that take it. The name keeps it apart from a solver.
  if (embedded_guidance != 0) {
    bytes += "embedded_guidance";
    AppendDouble(embedded_guidance, bytes);
  }
  if (whole_timesteps) bytes.append("whole_timesteps");
  if (!splits.empty()) {
    bytes.append("splits");
    AppendWord(splits.width, bytes);
    for (const int step : splits.steps) AppendWord(static_cast<uint64_t>(step), bytes);
  }
  if (compression.on()) {
    bytes.append("compression");
    AppendDouble(compression.share, bytes);
    AppendDouble(compression.shift, bytes);
    AppendWord(static_cast<uint64_t>(SolverKind::kDpmpp2m), bytes);
    bytes.push_back(compression.carry ? 1 : 0);
  }
  return Fingerprint64(bytes);
}

SamplingSpec PathSpec(const SamplingSpec& spec, int first_step) {
  if (!spec.compression.on() || spec.compressed_from >= 0) return spec;
  const int first = FirstFreeLatent(spec.sde, first_step);
  if (first >= spec.steps() - 1) return spec;
  SamplingSpec path = spec;
  const std::vector<double> levels = CompressedLevels(spec.compression, spec.sigmas, first);
  path.sigmas.resize(static_cast<size_t>(first) + 1);
  path.sigmas.insert(path.sigmas.end(), levels.begin(), levels.end());
  path.sde.resize(path.sigmas.size() - 1);  // Steps that are cut off are not stochastic.
  path.compressed_from = first;
  return path;
}

StepKernel MakeKernel(DynamicsKind kind, double eta, double sigma, double sigma_next,
                      double sigma_1) {
  OXBOW_CHECK(sigma > sigma_next && sigma_next >= 0 && sigma <= 1)
      << "step from sigma " << sigma << " to " << sigma_next;
  switch (kind) {
    case DynamicsKind::kOde:
      return OdeKernel(sigma, sigma_next);
    case DynamicsKind::kFlowSde:
      return SdeKernel(FlowStd(eta, sigma, sigma_1), sigma, sigma_next);
    case DynamicsKind::kDanceSde:
      return SdeKernel(eta, sigma, sigma_next);
    case DynamicsKind::kCps:
      return CpsKernel(eta, sigma, sigma_next);
    case DynamicsKind::kWanSde:
      return SdeKernel(sigma_1 * sigma, sigma, sigma_next);
  }
  OXBOW_CHECK(false) << "dynamics " << static_cast<int>(kind);
}

// The last step is deterministic, whatever the flags say: its density is too sharp to train on.
StepKernel KernelAt(const SamplingSpec& spec, int step) {
  OXBOW_CHECK(step >= 0 && step < spec.steps() && spec.sde.size() + 1 == spec.sigmas.size())
      << "step " << step << " of " << spec.steps() << ", sde flags " << spec.sde.size();
  const auto i = static_cast<size_t>(step);
  const bool stochastic = spec.sde[i] && step + 1 < spec.steps();
  return MakeKernel(stochastic ? spec.dynamics : DynamicsKind::kOde, spec.eta, spec.sigmas[i],
                    spec.sigmas[i + 1], spec.sigmas[1]);
}

// With numbers, not with columns: the same products, and nothing goes to a GPU that the host would
// wait for.
at::Tensor KernelMean(const StepKernel& kernel, const at::Tensor& x, const at::Tensor& v) {
  return Upcast(x) * kernel.cx + Upcast(v) * kernel.cv;
}

at::Tensor KernelStep(const StepKernel& kernel, const at::Tensor& mean, const at::Tensor& noise) {
  return mean + noise * kernel.scale;
}

at::Tensor LogProb(const StepKernel& kernel, const at::Tensor& mean, const at::Tensor& x_next) {
  OXBOW_CHECK(kernel.scale > 0) << "a deterministic step has no density; sigma " << kernel.sigma;
  return RowLogProb(MakeRows({kernel}), mean, x_next);
}

std::shared_ptr<const RowKernels> GatherKernels(const SamplingSpec& spec,
                                                const std::vector<int>& steps) {
  std::vector<StepKernel> kernels;
  kernels.reserve(steps.size());
  for (const int step : steps) kernels.push_back(KernelAt(spec, step));
  return std::make_shared<const RowKernels>(MakeRows(kernels));
}

at::Tensor RowMean(const RowKernels& kernels, const at::Tensor& x, const at::Tensor& v) {
  const at::Tensor state = Upcast(x);
  const RowKernels::Columns& columns = ColumnsFor(kernels, state);
  return state * OverRows(columns.cx, state) + Upcast(v) * OverRows(columns.cv, state);
}

// The reduction runs over contiguous rows of one shape, so that the terms of a row are added in the
// same order in every batch.
at::Tensor RowLogProb(const RowKernels& kernels, const at::Tensor& mean, const at::Tensor& x_next) {
  const RowKernels::Columns& columns = ColumnsFor(kernels, mean);
  const at::Tensor error = (Upcast(x_next) - mean).square().flatten(1).mean(1);  // [R]
  return error * columns.score.to(error.device()) + columns.offset.to(error.device());
}

double CpsSurrogateScale(const StepKernel& kernel) { return 2 * kernel.scale * kernel.scale; }

double KernelSensitivity(const StepKernel& kernel) {
  if (kernel.scale <= 0) return 0;
  return kernel.cv * kernel.cv / (2 * kernel.scale * kernel.scale);
}

}  // namespace oxbow::flow
