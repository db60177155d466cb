// SPDX-License-Identifier: Apache-2.0
// Weights in host memory of networks that compute on a device: the device holds those of two blocks
// at a time, and what belongs to no block. As FSDP and ZeRO-Infinity (arXiv:2104.07857) have it,
// but the weights come over the bus and from no other rank, so ranks may run different passes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/model/recompute.h"

namespace oxbow::model {

// The bfloat16 copy of a flat float32 tensor [N] in host memory, for products that round their
// weights to that type anyway: half as many bytes cross the bus.
struct NarrowCopy {
  at::Tensor values;                // bfloat16 [N]
  std::optional<uint32_t> version;  // The flat tensor's when it was copied; none: it never was.
};

// A network is bound to leaves: tensors of the device whose memory comes and goes.
//
//   at::Tensor leaf = weights.Leaf(source, trainable);    // for every parameter
//   size_t block = weights.AddBlock({leaf, ...});         // for every block of the network
//   weights.EndNetwork();
//   ...
//   weights.BringRest();                                  // before each pass through a network
//   { const auto hold = weights.Use(block); ... }         // forward, and again backward
//
// While one block computes, the next one that will be asked for comes, in a stream of its own. So
// the bus hides behind the kernels where a block computes for longer than its weights travel. What
// came is kept until its place is needed, and comes again only if its source has changed, which the
// version counter of torch says.
//
// For one thread at a time. Outlives the networks and their backward passes.
class OffloadedWeights {
 public:
  // Without `pins` host_options() are those of plain memory.
  explicit OffloadedWeights(at::Device device, bool pins = true);
  ~OffloadedWeights();
  OffloadedWeights(const OffloadedWeights&) = delete;
  OffloadedWeights& operator=(const OffloadedWeights&) = delete;

  at::Device device() const { return device_; }
  // Host memory that the device reads without a copy in between: pinned, where it is a GPU.
  at::TensorOptions host_options() const;
  // A copy of `tensor` there, of this type, in one piece of memory with those before and after it.
  at::Tensor Kept(const at::Tensor& tensor, at::ScalarType type);

  // A leaf for `source`, contiguous in host memory, whose values it has while it is held. Several
  // leaves may have one source. With `narrow`, the copy of the flat float32 tensor that `source` is
  // a part of, values come rounded to bfloat16 while that copy is up to date; it outlives this.
  // Leaves beside it without one come as they are.
  at::Tensor Leaf(const at::Tensor& source, bool trainable, const NarrowCopy* narrow = nullptr);

  // A block computes with the leaves among `tensors`; others are left alone. Dies if one
  // is in a block already: such a leaf belongs to no block.
  size_t AddBlock(const std::vector<at::Tensor>& tensors);
  // The blocks since the last call follow one another in a pass.
  void EndNetwork();

  // The leaves of `block` have their values until the result is gone. Kernels that were queued by
  // then still read them. At most two blocks are held at a time.
  using Hold = std::shared_ptr<const void>;
  Hold Use(size_t block);
  // The leaves of no block have their values from now on, until their sources change.
  void BringRest();

  // Call this before you write to sources, unless the device has finished all passes: a copy that
  // is queued reads its source later.
  void WaitUntilRead();

  // Bytes that came to the device so far.
  uint64_t brought_bytes() const { return brought_bytes_; }

 private:
  struct Streams;
  // Leaves whose sources are neighbours in memory: one copy.
  struct Run {
    at::Tensor source;  // Bytes [n], of the version counter of the first leaf's source.
    int64_t begin = 0;  // In the place's memory.
    const NarrowCopy* narrow = nullptr;  // A copy that has the leaf; null: none.
    int64_t element = 0;                 // Where the run begins in the flat tensor.
  };
  struct PlacedLeaf {
    at::Tensor leaf;
    at::Tensor source;
    int64_t begin = 0;
    const NarrowCopy* narrow = nullptr;
  };
  struct Block {
    std::vector<PlacedLeaf> leaves;
    std::vector<Run> runs;
    int64_t length = 0;          // Bytes, with what aligns the runs.
    size_t first = 0, last = 0;  // The blocks of its network.
  };
  // Where the weights of a block are on the device.
  struct Place {
    at::Tensor memory;  // Bytes.
    std::optional<size_t> block;
    uint32_t version = 0;
    int users = 0;
  };

  static bool Continues(const Run& run, const at::Tensor& source);
  static Block Arranged(std::vector<PlacedLeaf> leaves);
  static uint32_t VersionOf(const Block& block);
  static void Point(const Block& block, const at::Tensor& memory);
  size_t Bring(size_t block);
  void Load(size_t place, size_t block);
  void Copy(const Block& block, const at::Tensor& memory);
  void Send(const at::Tensor& source, const at::Tensor& to);
  bool ComesNarrow(const Run& run) const;
  void Release(size_t place);
  std::optional<size_t> NextAfter(size_t block) const;
  std::vector<PlacedLeaf> TakePending(std::span<const at::Tensor> tensors);

  const at::Device device_;
  const bool pins_;
  at::Tensor kept_;  // Bytes in host memory, whose first are taken.
  int64_t kept_end_ = 0;
  std::vector<PlacedLeaf> pending_;  // In no block.
  std::vector<Block> blocks_;
  size_t first_of_network_ = 0;
  std::array<Place, 2> places_;
  size_t latest_ = 0;               // The place used last.
  std::optional<size_t> previous_;  // The block used last.
  std::optional<Block> rest_;       // Weights in no block, as if they were one.
  Place rest_place_;
  uint64_t brought_bytes_ = 0;
  at::Tensor narrow_;  // Where bfloat16 values come to, on their way to a place.
  const std::unique_ptr<Streams> streams_;  // Null on a CPU.
};

// The weights of a block that computes with `tensors`. Where those are leaves of `offloaded`,
// unless it is null, they are a block of it.
SegmentWeights WeightsOfBlock(const Tensors& tensors, OffloadedWeights* offloaded);

}  // namespace oxbow::model
