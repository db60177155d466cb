// SPDX-License-Identifier: Apache-2.0
// Work at a published size, on a dry device.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/model/policy.h"
#include "tests/rehearsal/dry_models.h"

namespace oxbow::rehearsal {

struct DryCase {
  std::string name;  // "sd35m-lora-forward": a row of device_budgets.md.
  std::shared_ptr<const DryModel> model;
  bool trains = false;   // A learner step with one update, else one velocity of all rows.
  bool samples = false;  // Whole paths of all rows, as a worker draws them; figures are of a step.
  model::Trained trained = model::Trained::kLora;
  at::ScalarType compute = at::kBFloat16;
  double guidance = 1;
  bool recompute = false;
  bool apart = false;            // Guided halves one after the other,
  bool offloads_inputs = false;  // and inputs of recomputed blocks in host memory.
  bool merged = false;
  model::BaseWeights base_weights = model::BaseWeights::kCompute;
  bool offloads = false;          // Moments and average are in host memory.
  bool offloads_weights = false;  // All weights and the reference, or what is frozen of a LoRA.
  bool shards_gradients = false;
  bool pulls = true;    // A step's loss has the KL's term, so a full fine-tune keeps a reference.
  bool kl_all = false;  // The KL of every row, not of one row of each sample.
  int ranks = 1;        // A step's figures are of one of them, with a group of its own.
  int64_t rows = 8;     // In a forward pass, or a backward pass of a step; a step has 18.
};

// The work alone, without what making the policy took. For paths all but memory is divided by their
// steps.
struct DryFigures {
  double held_gb = 0;  // Before it: weights, moments, copies.
  double peak_gb = 0;
  double traffic_gb = 0;  // That kernels read and write.
  double tflop = 0;
  double kernels = 0;
  double host_mb = 0;  // To the device and back.
  double waits = 0;    // The host waits for a value or a copy, and so for all kernels before it.
};

std::vector<DryCase> DryCases();

// Figures of `work` on the device, which is a dry one.
DryFigures FiguresOf(const std::function<void()>& work);

// Requires a dry device.
DryFigures Rehearse(const DryCase& work);

// CPU time, in ms, that the calling thread spends on a step of 24 latents of 512 px beside the
// network: launches, copies, waits, log-probs. Requires a dry device.
double HostMsOfSamplingStep();

// Memory that `oxbow validate` plans for a learner step on the GPU of a rank, or for sampling on a
// worker's.
double PlannedGb(const DryCase& work);

}  // namespace oxbow::rehearsal
