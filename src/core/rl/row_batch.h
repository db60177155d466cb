// The tensors of many rows (trained steps of samples), gathered for one forward pass.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/flow/dynamics.h"
#include "core/model/velocity_model.h"
#include "core/rl/experience.h"

namespace oxbow::rl {

struct RowAddress {
  size_t group = 0;
  size_t sample = 0;
  int step = 0;
};

struct RowBatch {
  at::Tensor x;                      // [R, C, H, W]
  at::Tensor x_next;                 // [R, C, H, W]
  at::Tensor sigma;                  // [R]
  model::Conditioning conditioning;  // One row each; rows of one group repeat it.
  std::vector<int> steps;
};

// Requires at least one row, and that every address has its transition.
RowBatch GatherRows(const flow::SamplingSpec& spec, const std::vector<Group>& groups,
                    const std::vector<RowAddress>& rows);

// The rows at `index` (int64 [K]) of a batch.
RowBatch SelectRows(const RowBatch& batch, const std::vector<int64_t>& index);

// Log-probs [R] of the batch's transitions under velocities `v`: the operations of the sampler.
at::Tensor ScoreRows(const flow::SamplingSpec& spec, const RowBatch& batch, const at::Tensor& v);

}  // namespace oxbow::rl
