// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/program.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/exported_graph/folding.h"
#include "core/model/exported_graph/fused_norms.h"
#include "core/model/exported_graph/linear_groups.h"
#include "core/model/exported_graph/operands.h"
#include "core/model/exported_graph/shared_nodes.h"

namespace oxbow::model::exported {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kBias = ".bias";

absl::Status ResolveSteps(Program& program) {
  const Graph& graph = program.graph;
  std::vector<SlotType> types(graph.slots, SlotType::kNone);
  const auto tensor = [&](Slot slot) {
    if (slot != kNoSlot) types[Index(slot)] = SlotType::kTensor;
  };
  for (const GraphInput& input : graph.inputs) tensor(input.slot);
  for (const GraphParameter& parameter : graph.parameters) tensor(parameter.slot);
  for (const GraphConstant& constant : graph.constants) tensor(constant.slot);
  const auto add = [&](auto call, size_t node) -> absl::Status {
    if (!call.ok()) return Annotate(call.status(), NameOf(graph, node));
    program.steps.emplace_back(*std::move(call));
    return absl::OkStatus();
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    OXBOW_RETURN_IF_ERROR(node.op.starts_with(kSymbolicPrefix)
                              ? add(SymbolicCall::Resolve(node, types), i)
                              : add(OperatorCall::Resolve(node, types), i));
  }
  for (const GraphOutput& output : graph.outputs) {
    if (types[Index(output.slot)] == SlotType::kTensor) continue;
    return absl::InvalidArgumentError("output: not a tensor: " + output.name);
  }
  return absl::OkStatus();
}

// Weights of linear layers are read as such, with their own biases, and by nothing else.
absl::Status FindLinears(Program& program) {
  std::map<Slot, const GraphParameter*> parameters;
  std::map<std::string, Slot> biases;
  for (const GraphParameter& parameter : program.graph.parameters) {
    if (parameter.slot != kNoSlot) parameters[parameter.slot] = &parameter;
    if (parameter.name.ends_with(kBias)) biases[parameter.name] = parameter.slot;
  }
  for (size_t i = 0; i < program.graph.nodes.size(); ++i) {
    const GraphNode& node = program.graph.nodes[i];
    for (const Slot slot : ReadsOf(node)) {
      const auto found = parameters.find(slot);
      if (found == parameters.end() || !found->second->linear) continue;
      const std::string& name = found->second->name;
      const std::string module = name.substr(0, name.size() - kWeight.size());
      const auto bias = biases.find(module + std::string(kBias));
      const bool right = node.op == "aten::linear" && SlotOf(node, "weight") == slot &&
                         SlotOf(node, "input") != slot &&
                         SlotOf(node, "bias") == (bias == biases.end() ? kNoSlot : bias->second);
      if (!right) {
        return absl::InvalidArgumentError(NameOf(program.graph, i) +
                                          " does not use a linear layer's weight as one: " + name);
      }
      program.linears[i] = {module, SlotOf(node, "input"), node.outputs[0], found->second->float32};
    }
  }
  return absl::OkStatus();
}

// Blocks, and what is before, between and after them.
std::vector<Section> Sections(const Graph& graph) {
  std::vector<Section> sections;
  size_t next = 0;
  const auto between = [&](size_t end) {
    if (next < end) sections.push_back({.first = next, .end = end});
  };
  for (const GraphBlock& block : graph.blocks) {
    between(block.first);
    sections.push_back({.first = block.first, .end = block.end, .block = true});
    next = block.end;
  }
  between(graph.nodes.size());
  return sections;
}

// Reads and writes of sections, and the node after which nobody reads a value. Requires folding.
void FindLives(Program& program) {
  const Graph& graph = program.graph;
  constexpr size_t kNever = SIZE_MAX;
  std::vector<size_t> made(graph.slots, kNever), read(graph.slots, kNever);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (program.folded[i]) continue;
    for (const Slot slot : graph.nodes[i].outputs) {
      if (slot != kNoSlot) made[Index(slot)] = read[Index(slot)] = i;
    }
    for (const Slot slot : ReadsOf(graph.nodes[i])) read[Index(slot)] = i;
  }
  for (const GraphOutput& output : graph.outputs) read[Index(output.slot)] = kNever;  // At the end.
  program.last.resize(graph.nodes.size());
  for (size_t slot = 0; slot < graph.slots; ++slot) {
    if (made[slot] != kNever && read[slot] != kNever) {
      program.last[read[slot]].push_back(static_cast<Slot>(slot));
    }
  }
  for (const GraphInput& input : graph.inputs) {
    if (read[Index(input.slot)] != kNever)
      program.last[read[Index(input.slot)]].push_back(input.slot);
  }
  std::set<Slot> weights;  // They lie in the steps themselves.
  for (const GraphParameter& parameter : graph.parameters) weights.insert(parameter.slot);
  for (const GraphConstant& constant : graph.constants) weights.insert(constant.slot);
  for (Section& section : program.sections) {
    std::set<Slot> reads;
    for (size_t i = section.first; i < section.end; ++i) {
      if (program.folded[i]) continue;
      for (const Slot slot : ReadsOf(graph.nodes[i])) {
        const bool inside = made[Index(slot)] != kNever && made[Index(slot)] >= section.first;
        if (!inside && !weights.contains(slot)) reads.insert(slot);
      }
      for (const Slot slot : graph.nodes[i].outputs) {
        if (slot == kNoSlot) continue;
        if (read[Index(slot)] == kNever || read[Index(slot)] >= section.end) {
          section.writes.push_back(slot);
        }
      }
    }
    section.reads.assign(reads.begin(), reads.end());
  }
}

// Those that run with the inputs, and make what their readers take.
void KeepFusions(const std::vector<Fusion>& fusions, Program& program) {
  for (const Fusion& fusion : fusions) {
    const std::vector<Slot> results = ResultsOf(fusion);
    const bool operand = std::all_of(results.begin(), results.end(),
                                     [&](Slot slot) { return program.operands[Index(slot)]; });
    const bool heads = fusion.kind == FusionKind::kHeads;
    bool runs = operand || !heads;
    for (size_t i = fusion.first; i < fusion.end; ++i) {
      runs = runs && !program.folded[i] && (heads || program.graph.nodes[i].autocast);
    }
    if (!runs) continue;
    Fusion& kept = program.fusions[fusion.first] = fusion;
    kept.operand = operand;
  }
}

void ReadsOf(const Value& value, std::vector<Slot>& reads) {
  if (const auto* ref = std::get_if<SlotRef>(&value.is)) {
    reads.push_back(ref->slot);
  } else if (const auto* list = std::get_if<Value::List>(&value.is)) {
    for (const Value& element : *list) ReadsOf(element, reads);
  }
}

}  // namespace

std::vector<Slot> ReadsOf(const GraphNode& node) {
  std::vector<Slot> reads;
  for (const auto& [name, value] : node.arguments) ReadsOf(value, reads);
  return reads;
}

std::map<Slot, int> ReadCounts(const Graph& graph) {
  std::map<Slot, int> counts;
  for (const GraphNode& node : graph.nodes) {
    for (const Slot slot : ReadsOf(node)) ++counts[slot];
  }
  for (const GraphOutput& output : graph.outputs) ++counts[output.slot];
  return counts;
}

Slot SlotOf(const GraphNode& node, std::string_view argument) {
  for (const auto& [name, value] : node.arguments) {
    const auto* ref = std::get_if<SlotRef>(&value.is);
    if (name == argument && ref != nullptr) return ref->slot;
  }
  return kNoSlot;
}

absl::StatusOr<std::shared_ptr<const Program>> Compile(Graph graph) {
  auto program = std::make_shared<Program>();
  program->graph = std::move(graph);
  OXBOW_RETURN_IF_ERROR(ResolveSteps(*program));  // Errors count nodes as the file does.
  program->graph = FuseRmsNorms(ShareActivations(std::move(program->graph)));
  const std::vector<Fusion> fusions = FindFusions(program->graph);
  program->steps.clear();
  OXBOW_RETURN_IF_ERROR(ResolveSteps(*program));
  OXBOW_RETURN_IF_ERROR(FindLinears(*program));
  const SharedMemory memory(*program);
  OXBOW_RETURN_IF_ERROR(CheckWrites(*program, memory));
  Fold(memory, *program);
  program->operands = OperandSlots(*program, memory);
  program->needless_casts = NeedlessCasts(*program);
  KeepFusions(fusions, *program);
  program->sections = Sections(program->graph);
  program->together = LinearGroups(*program);
  FindLives(*program);
  return program;
}

}  // namespace oxbow::model::exported
