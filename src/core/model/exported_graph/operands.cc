// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/operands.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "core/model/exported_graph/graph_links.h"

namespace oxbow::model::exported {
namespace {

// Results have the values of `self`, or of `tensors`, in other shapes.
constexpr std::array<std::string_view, 15> kMoves = {
    "aten::unflatten", "aten::flatten", "aten::permute",   "aten::transpose",
    "aten::reshape",   "aten::view",    "aten::slice",     "aten::split_with_sizes",
    "aten::chunk",     "aten::unbind",  "aten::unsqueeze", "aten::squeeze",
    "aten::select",    "aten::cat",     "aten::contiguous"};

bool IsMove(const GraphNode& node) {
  return std::find(kMoves.begin(), kMoves.end(), node.op) != kMoves.end();
}

bool ReadsOperands(const Program& program, size_t i) {
  const GraphNode& node = program.graph.nodes[i];
  if (!node.autocast) return false;
  if (const auto linear = program.linears.find(i); linear != program.linears.end()) {
    return !linear->second.float32;
  }
  return node.op == "aten::scaled_dot_product_attention";
}

}  // namespace

std::vector<bool> OperandSlots(const Program& program, const SharedMemory& memory) {
  std::set<Slot> written;  // Classes of memory.
  for (const Step& step : program.steps) {
    const auto* call = std::get_if<OperatorCall>(&step);
    if (call != nullptr && call->written() != kNoSlot) {
      written.insert(memory.ClassOf(call->written()));
    }
  }
  std::vector<bool> operand(program.graph.slots, true);
  for (const GraphOutput& output : program.graph.outputs) operand[Index(output.slot)] = false;
  for (size_t slot = 0; slot < operand.size(); ++slot) {
    if (written.contains(memory.ClassOf(static_cast<Slot>(slot)))) operand[slot] = false;
  }
  for (size_t i = program.graph.nodes.size(); i-- > 0;) {  // Readers before makers.
    const GraphNode& node = program.graph.nodes[i];
    if (node.op.starts_with(kSymbolicPrefix)) continue;  // Sizes alone.
    const bool passes = (IsMove(node) || IsCastToFloat(node)) &&
                        std::all_of(node.outputs.begin(), node.outputs.end(), [&](Slot made) {
                          return made == kNoSlot || operand[Index(made)];
                        });
    if (passes || ReadsOperands(program, i)) continue;
    for (const Slot slot : ReadsOf(node)) operand[Index(slot)] = false;
  }
  return operand;
}

std::vector<bool> NeedlessCasts(const Program& program) {
  std::vector<bool> needless;
  for (const GraphNode& node : program.graph.nodes) {
    needless.push_back(IsCastToFloat(node) && node.outputs.size() == 1 &&
                       node.outputs[0] != kNoSlot && program.operands[Index(node.outputs[0])]);
  }
  return needless;
}

}  // namespace oxbow::model::exported
