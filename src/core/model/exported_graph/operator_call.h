// SPDX-License-Identifier: Apache-2.0
// One call of a PyTorch operator, resolved when a graph is loaded: the operator is found, every
// argument is checked against its schema and lies ready. A run fills in what changes and calls.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/exported_graph/graph.h"
#include "core/model/exported_graph/packed_convolution.h"

namespace oxbow::model::exported {

// The type of a slot's value.
enum class SlotType : uint8_t { kNone, kTensor, kInteger, kReal, kBool };

// By slot. None where nothing is yet, or no longer.
using SlotValues = std::vector<c10::IValue>;
inline size_t Index(Slot slot) { return static_cast<size_t>(slot); }

class OperatorCall {
 public:
  // `types` of the slots written so far; the node's outputs are added. kInvalidArgument names the
  // argument; callers add the node.
  static absl::StatusOr<OperatorCall> Resolve(const GraphNode& node, std::vector<SlotType>& types);

  // Puts weights and constants (what `fixed` has) and the device in their places for good.
  void Bind(const SlotValues& fixed, at::Device device);

  // Throws what the operator throws.
  void Run(SlotValues& values) const;

  bool autocast() const { return autocast_; }
  // The value that is written in place, or kNoSlot.
  Slot written() const { return written_; }
  // Values that results may share memory with.
  const std::vector<Slot>& aliased() const { return aliased_; }

 private:
  struct Fill {
    size_t argument = 0;
    Slot slot = kNoSlot;
    bool as_tensor = false;  // A number, for an argument that is a tensor.
  };
  enum class ListKind : uint8_t { kIntegers, kTensors, kOptionalTensors };
  struct ListElement {
    c10::IValue literal;
    Slot slot = kNoSlot;  // Or this one's value.
  };
  struct ListFill {
    size_t argument = 0;
    ListKind kind = ListKind::kIntegers;
    std::vector<ListElement> elements;
  };

  explicit OperatorCall(c10::OperatorHandle op) : op_(std::move(op)) {}

  absl::Status Arguments(const GraphNode& node, const std::vector<SlotType>& types);
  absl::Status Outputs(const GraphNode& node, std::vector<SlotType>& types);
  // The value of a schema's argument, or a fill for it.
  absl::StatusOr<c10::IValue> Filled(size_t index, const Value& value,
                                     const std::vector<SlotType>& types);
  absl::StatusOr<c10::IValue> FilledList(size_t index, const Value::List& list,
                                         c10::TypePtr element, const std::vector<SlotType>& types);
  absl::Status Aliases(const GraphNode& node, bool any);
  torch::jit::Stack Filled(const SlotValues& values) const;
  static c10::IValue Listed(const ListFill& fill, const SlotValues& values);

  c10::OperatorHandle op_;
  std::vector<c10::IValue> arguments_;  // The operator's stack, but for what is filled in.
  std::vector<Fill> fills_;
  std::vector<ListFill> list_fills_;
  std::vector<size_t> devices_;  // Arguments that are the model's device.
  std::vector<Slot> outputs_;
  bool convolution_ = false;
  bool norm_ = false;
  bool gelu_ = false;
  std::optional<PackedConvolution> packed_;
  bool list_ = false;  // Outputs are the elements of one list.
  bool autocast_ = true;
  Slot written_ = kNoSlot;
  std::vector<Slot> aliased_;
};

// A Python number where an operator takes a tensor: it does not decide the result's type.
at::Tensor NumberTensor(const c10::IValue& number);

}  // namespace oxbow::model::exported
