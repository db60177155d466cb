// SPDX-License-Identifier: Apache-2.0
// An exported graph as its file says it (docs/formats.md, exported graphs): what a network of one
// config computes, node by node, with its weights named and not included. It is a velocity of x,
// sigma and parts, or any other function of named tensors (exported_network.h).
//
// ParseGraph checks all that needs no operator: sizes, slots (each written once, and before it is
// read), blocks, shapes. What a node's arguments mean is checked when operators are resolved
// (operator_call.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::model::exported {

// Values of a run are numbered.
using Slot = int32_t;
inline constexpr Slot kNoSlot = -1;

struct SlotRef {
  Slot slot = kNoSlot;
};
struct ModelDevice {};  // The device that the weights are on.

// An argument of a node.
struct Value {
  using List = std::vector<Value>;
  std::variant<std::monostate, bool, int64_t, double, std::string, SlotRef, at::ScalarType,
               ModelDevice, at::Layout, at::MemoryFormat, List>
      is;
};

// A size that a graph leaves open, by its name: "B", "H", "W", "F" or "S".
struct SymbolRange {
  int64_t min = 1;
  int64_t max = 0;  // 0: no limit.
  int64_t multiple = 1;
};

struct Dimension {
  int64_t size = 0;    // Where there is no symbol.
  std::string symbol;  // Empty: `size`.
  int64_t times = 1;   // The size is so many times the symbol's.
  bool operator==(const Dimension& other) const = default;
};

struct GraphInput {
  std::string name;
  Slot slot = kNoSlot;
  std::vector<Dimension> shape;
  at::ScalarType type = at::kFloat;  // Or kLong, of a network that is no velocity.
  double scale = 0;  // The default of an input that scales guidance; 0: none is named.
};

struct GraphOutput {
  std::string name;
  Slot slot = kNoSlot;
};

// A tensor of the checkpoint.
struct GraphParameter {
  std::string name;
  Slot slot = kNoSlot;  // kNoSlot: the graph does not read it.
  std::vector<int64_t> shape;
  bool buffer = false;  // Never trains.
  bool linear = false;  // The weight of a linear layer, read by nothing else.
  // Stays float32 whatever type products are taken in; so do the products of a linear layer.
  bool float32 = false;
};

struct GraphConstant {
  Slot slot = kNoSlot;
  at::Tensor tensor;  // On the CPU.
};

struct GraphNode {
  std::string op;        // "aten::linear", "sym::size"
  std::string overload;  // "Tensor", or empty
  std::vector<std::pair<std::string, Value>> arguments;
  std::vector<Slot> outputs;  // kNoSlot: unused.
  bool list = false;          // Outputs are several returns, or the elements of one list.
  bool autocast = true;       // False: autocast is off here.
};

// Nodes [first, end) of one repeated piece of the network.
struct GraphBlock {
  std::string name;
  size_t first = 0;
  size_t end = 0;
};

// How the pixels that a decoder makes fit its latents.
struct GraphDecoder {
  int64_t time = 1;   // Frames per latent frame but the first.
  int64_t space = 1;  // Pixels of a side per latent.
  // A longer video is cut along time: tiles of tile_frames + 1 latent frames begin tile_stride
  // apart. 0: it is not cut.
  int64_t tile_frames = 0;
  int64_t tile_stride = 0;
};

struct Graph {
  std::string class_name;     // "FluxTransformer2DModel"
  std::string config_json;    // Every key of the class with its value.
  std::string defaults_json;  // Meanings of the keys that a config leaves out.
  std::map<std::string, SymbolRange> symbols;
  bool velocity = false;
  std::vector<GraphInput> inputs;    // "x" and "sigma" first in a velocity.
  std::vector<GraphOutput> outputs;  // "v" alone in a velocity.
  std::vector<GraphParameter> parameters;
  std::vector<GraphConstant> constants;
  std::vector<GraphNode> nodes;
  std::vector<GraphBlock> blocks;  // In order; none overlaps another.
  size_t slots = 0;
  // For a velocity:
  int64_t side = 0;    // Height and width by default, in latents.
  int64_t frames = 0;  // By default, in latents; 0: images.
  bool guidance_norm = false;
  // For an autoencoder's decoder: latents [B, C, H, W] or [B, C, F, H, W] are its only input,
  // pixels its only output, or the first beside states.
  std::optional<GraphDecoder> decoder;
  // For a decoder that takes one latent frame after another, [B, C, 1, H, W]: the graph of each but
  // the first. Its inputs after the latents are the outputs after the pixels, of both graphs, under
  // the same names. Config, symbols and tensors are those of this graph. Null: there is none.
  std::shared_ptr<const Graph> next;
};

inline constexpr size_t kGraphBytesMax = size_t{64} << 20;

// kInvalidArgument names the key that is wrong.
absl::StatusOr<Graph> ParseGraph(std::string_view json);

// The name of a node in errors: "node 12 (aten::add.Tensor)".
std::string NameOf(const Graph& graph, size_t node);

}  // namespace oxbow::model::exported
