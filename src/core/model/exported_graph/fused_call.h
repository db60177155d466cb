// SPDX-License-Identifier: Apache-2.0
// A fusion's kernel, and whether it computes what the fusion's nodes do. The first time that values
// of some shapes and types come to a fusion, its nodes run as well: where the results differ by
// more than a bound, the nodes run from then on. So a chain that only looks like another costs
// time.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "core/model/exported_graph/fusions.h"

namespace oxbow::model::exported {

// The value of a slot; undefined for kNoSlot.
using TensorAt = std::function<at::Tensor(Slot)>;

// ResultsOf(fusion) by one kernel, with gradients; none where there is no kernel for these values
// (fused/fused_layers.h and, on CPUs, fused/modulation.h).
std::vector<at::Tensor> RunFused(const Fusion& fusion, const TensorAt& at);

// Numbers that tell values apart for which other kernels run: types, and all sizes but rows.
std::vector<int64_t> SignatureOf(const Fusion& fusion, const TensorAt& at);

// Whether no value of `fused` is further from its one in `plain` than a part of the largest: 2^-16,
// or 2^-6 where a value of `shortest` or the result is shorter than float32. Types must be equal
// unless `operand`. Waits for the device.
bool Agree(const at::Tensor& fused, const at::Tensor& plain, at::ScalarType shortest, bool operand);

// The shortest type among the values that a fusion reads.
at::ScalarType ShortestTypeOf(const Fusion& fusion, const TensorAt& at);

// Thread-safe. All networks of a program share it.
class FusionVerdicts {
 public:
  // True if the fusion of this number fits values of this signature. Calls `judge` once for each.
  bool Fits(size_t fusion, const std::vector<int64_t>& signature,
            const std::function<bool()>& judge);

  // How many were judged so.
  size_t CountForTest(bool fits) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<size_t, std::vector<int64_t>>, bool> verdicts_;
};

}  // namespace oxbow::model::exported
