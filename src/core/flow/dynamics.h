// SPDX-License-Identifier: Apache-2.0
// One reverse step as a Gaussian kernel: x' ~ N(cx x + cv v, scale^2), scale = 0 for a
// deterministic step.
//
// All dynamics have this form; they differ in three numbers (papers in dynamics.cc):
//   ode        x' = x + v dt
//   flow_sde   Flow-GRPO, arXiv:2505.05470      dance_sde  DanceGRPO, arXiv:2505.07818
//   cps        coefficients-preserving sampling  wan_sde    flow_grpo's schedule for Wan2.1
// Coefficients are float64; tensors are float32 on device (float64 passes through for tests).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/flow/compression.h"
#include "core/flow/schedule.h"
#include "core/flow/split_tree.h"

namespace at {
class Tensor;
}  // namespace at

namespace oxbow::flow {

enum class DynamicsKind { kOde, kFlowSde, kDanceSde, kCps, kWanSde };

// How a run samples. Plain data; equal specs have equal ids.
struct SamplingSpec {
  std::vector<double> sigmas;  // T + 1
  DynamicsKind dynamics = DynamicsKind::kFlowSde;
  double eta = 0.7;
  // T flags: which steps are stochastic. The last one is false. In a run's spec these are all steps
  // that some learner step takes stochastically; each group is sampled with a window of them
  // (window.h).
  std::vector<bool> sde;
  double guidance = 1;
  SolverKind solver = SolverKind::kEuler;
  double embedded_guidance = 0;  // Resolved; 0: the network takes none.
  bool whole_timesteps = false;  // The network sees trunc(1000 sigma) / 1000; steps do not.
  SplitTree splits;              // The first steps that samples of a group share.
  Compression compression;       // How steps after the last stochastic one are left out.
  int compressed_from = -1;      // A path's first step on compressed levels; -1: none.

  int steps() const { return static_cast<int>(sigmas.size()) - 1; }
  uint64_t Id() const;  // Hash of all fields but the last; stored as schedule_id.
};

struct StepKernel {
  double sigma;       // Noise level of x.
  double sigma_next;  // Noise level of x'.
  double cx;
  double cv;
  double scale;  // S; 0: deterministic.
  double std;    // Diffusion coefficient; S = std sqrt(-dt), except for CPS, where S = std.
};

// The spec of a path that goes on from x_{first_step}: with compression, its levels after the last
// stochastic step, and so many steps fewer. What it is for another path, it is for this one up to
// there.
SamplingSpec PathSpec(const SamplingSpec& spec, int first_step);

// Kernel of step i under the spec; the ODE kernel where spec.sde[i] is false.
StepKernel KernelAt(const SamplingSpec& spec, int step);

// Kernel of one step from its noise levels only. `sigma_1` guards 1 - sigma at sigma = 1
// (flow_sde).
StepKernel MakeKernel(DynamicsKind kind, double eta, double sigma, double sigma_next,
                      double sigma_1);

// cx x + cv v in float32 for all inputs (float64 stays float64).
at::Tensor KernelMean(const StepKernel& kernel, const at::Tensor& x, const at::Tensor& v);

// mean + scale z.
at::Tensor KernelStep(const StepKernel& kernel, const at::Tensor& mean, const at::Tensor& noise);

// Log-density of x' per sample, mean over all but the first dimension: [B]. Requires kernel.scale >
// 0.
at::Tensor LogProb(const StepKernel& kernel, const at::Tensor& mean, const at::Tensor& x_next);

// Factor 2 S^2 from a difference of CPS log-densities to a difference of the published surrogate
// -mean (x' - mu)^2, which drops 1 / (2 S^2) and all constants. Clip ranges of papers that use CPS
// are on the surrogate's scale. Importance weights use the density.
double CpsSurrogateScale(const StepKernel& kernel);

// Kernels of many rows at once, one step per row. Sampling and training both use them, so that the
// same inputs give the same bits in every batch.
struct RowKernels;
std::shared_ptr<const RowKernels> GatherKernels(const SamplingSpec& spec,
                                                const std::vector<int>& steps);
at::Tensor RowMean(const RowKernels& kernels, const at::Tensor& x,
                   const at::Tensor& v);  // [R, C, H, W]
at::Tensor RowLogProb(const RowKernels& kernels, const at::Tensor& mean,
                      const at::Tensor& x_next);  // [R]

// kc_i = cv^2 / (2 S^2): how fast a change of velocity makes step i off-policy; 0 for ODE steps.
double KernelSensitivity(const StepKernel& kernel);

}  // namespace oxbow::flow
