// SPDX-License-Identifier: Apache-2.0
// Named tensors of a model, in one flat piece of memory.
//
// One flat float32 tensor per set makes the optimiser, EMA, gradient all-reduce, hashing and
// checkpoints single operations. Models bind views of it by their published names.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "core/model/named_tensors.h"

namespace oxbow::model {

class OffloadedWeights;
struct NarrowCopy;

Shapes ShapesOf(const NamedTensors& tensors);

// Processes that have a set in one piece of host memory: all read it whole, and each writes its
// part of the flat tensor.
struct MemoryShare {
  int place = 0;  // That of this process.
  int count = 1;  // 1: the memory is its own.
};

class ParameterSet {
 public:
  // Copies `tensors` into one flat float32 tensor on `device`, in name order. With `trainable`,
  // every view is an autograd leaf.
  ParameterSet(const NamedTensors& tensors, bool trainable, at::Device device = at::kCPU);

  // Without values, which tensors() are then given.
  ParameterSet(const Shapes& shapes, bool trainable, at::Device device = at::kCPU);

  // So, too, but the flat tensor is in host memory. The leaves are on the device of `offloaded`,
  // which outlives this, and have values while that lets them. The tensors of `narrow` are read in
  // bfloat16 alone, so a copy of that type may come in their place (narrow()).
  ParameterSet(const Shapes& shapes, bool trainable, OffloadedWeights& offloaded,
               const std::set<std::string>& narrow = {});
  ~ParameterSet();

  // Writes all tensors(). The same names and shapes are required.
  void CopyFrom(const NamedTensors& tensors);

  const at::Tensor& Get(const std::string& name) const;  // Dies if absent.
  bool Has(const std::string& name) const;
  const NamedTensors& tensors() const { return views_; }
  int64_t numel() const;

  // Tensors that networks compute with and gradients are of: the set's own, unless offloaded.
  const NamedTensors& leaves() const { return leaves_; }
  at::Device device() const { return device_; }  // Where those and gradients are.

  // To be written to by torch alone, or its version counter does not tell (offloaded_weights.h).
  at::Tensor& flat() { return flat_; }
  const at::Tensor& flat() const { return flat_; }

  // The gradient [N] on device(), made at the first call. From then on every leaf's .grad is a view
  // of it, so backward() accumulates in place. Dies unless trainable.
  at::Tensor& flat_grad();
  void ZeroGrad();  // Sets flat_grad() to 0.

  // In host memory: a place for the next weights [N], and the exchange of the two, which copies
  // nothing. Whoever fails before the exchange has changed nothing that is read.
  at::Tensor& next();
  void ExchangeWithNext();
  bool offloaded() const { return offloaded_ != nullptr; }

  // The bfloat16 copy [N] of the flat tensor; undefined where no tensor is read so. Whoever writes
  // both calls BeginNarrow before and EndNarrow after; until then, and after other writes to the
  // flat tensor, float32 values come instead. BeginNarrow waits for copies to the device that are
  // under way.
  at::Tensor narrow() const;
  void BeginNarrow();
  void EndNarrow();

  // Exchanges the values with those of a set of the same length; both are in host memory. Copies
  // nothing. A second call undoes the first.
  void ExchangeWith(ParameterSet& other);

  // Moves flat(), next() and narrow() to memory that processes share. `place` gives so many bytes
  // of it, whole pages, SharedBytes() in all. The process of place 0 copies the values there.
  using SharedPlace = std::function<at::DataPtr(size_t bytes)>;
  void MoveTo(const SharedPlace& place, MemoryShare share);
  size_t SharedBytes() const;
  MemoryShare share() const { return share_; }

  void CopyFrom(const ParameterSet& other);  // Same names and shapes required.

 private:
  ParameterSet(const Shapes& shapes, at::TensorOptions flat, at::Device device);

  at::Tensor flat_;
  at::Tensor flat_grad_, next_;  // Undefined before they are asked for.
  NamedTensors views_, leaves_;
  at::Device device_;
  OffloadedWeights* offloaded_ = nullptr;
  std::unique_ptr<NarrowCopy> narrow_;  // Null: every tensor is read as it is.
  bool narrow_is_of_other_ = false;     // It has the values that were exchanged.
  MemoryShare share_;
};

}  // namespace oxbow::model
