// SPDX-License-Identifier: Apache-2.0
// Chains of nodes that one kernel can compute (fused_call.h). A graph keeps their nodes, so that
// they can run one by one where the kernel does not apply or a chain turns out to be another.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/exported_graph/graph.h"

namespace oxbow::model::exported {

enum class FusionKind : uint8_t {
  kNorm,   // norm(x) (1 + scale) + shift, perhaps by two scales, or layer_norm(x) weight + bias
  kGate,   // x + a b, one of which is a gate
  kJoin,   // cat([x, gelu(a)]) along the last size
  kHeads,  // Queries or keys, normalised and turned
  kGelu,   // gelu(x weight^T + a) with tanh
};

// One part of queries or keys (fused/head_layers.h).
struct HeadSlots {
  Slot x = kNoSlot;  // [B, T, heads, d], or [B, T, D] that `split` makes heads of.
  bool norm = false;
  bool whole = false;  // The norm comes before the split.
  double eps = 0;
  Slot weight = kNoSlot;
  std::vector<int64_t> split;  // Sizes, one of which may be -1. Empty: x has heads, or is one.
  Slot cos = kNoSlot, sin = kNoSlot;  // kNoSlot: nothing turns; sin alone: cos is complex.
  bool joint = false;                 // The angles are those of all parts, one after the other.
};

// Factor and shift behind a norm.
struct NormSlots {
  Slot scale = kNoSlot, shift = kNoSlot;  // kNoSlot: none.
  bool of_samples = false;                // The scale has a size less than the shift: [B, D].
  Slot result = kNoSlot;
};

struct Fusion {
  FusionKind kind = FusionKind::kNorm;
  size_t first = 0;  // Its nodes, once Arrange has moved them together: [first, end).
  size_t end = 0;
  Slot result = kNoSlot;  // Others read no value of theirs but this, and results in `by`.
  bool operand = false;   // The results may have the type of products (operands.h).

  Slot x = kNoSlot;
  std::vector<NormSlots> by;  // kNorm; the first one's result is the fusion's.
  double base = 1;            // That scale is added to.
  double eps = 0;
  bool rms = false;  // kNorm: an RMS norm instead of a layer norm.
  Slot weight =
      kNoSlot;  // kNorm: of that, unless kNoSlot. kGelu: a linear layer's, and a its bias.
  Slot a = kNoSlot, b = kNoSlot;  // kGate, kJoin, kGelu
  bool exact = false;             // kGate: a or b was float32, and so is the sum.
  bool tanh = false;              // kJoin
  std::vector<HeadSlots> parts;   // kHeads
  bool transposed = false;        // kHeads: the result is [B, heads, T, d].
};

// The slots that a fusion reads, and those that it makes.
std::vector<Slot> InputsOf(const Fusion& fusion);
std::vector<Slot> ResultsOf(const Fusion& fusion);

// Finds them, none of which overlaps another, leaves a block or has a node inside that writes in
// place, and moves the nodes of each together, to where its last one was.
std::vector<Fusion> FindFusions(Graph& graph);

}  // namespace oxbow::model::exported
