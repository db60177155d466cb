// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/folding.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"

namespace oxbow::model::exported {
namespace {

// By class: the nodes that write it in place, in order.
std::map<Slot, std::vector<size_t>> WritersByClass(const Program& program,
                                                   const SharedMemory& memory) {
  std::map<Slot, std::vector<size_t>> writers;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const auto* call = std::get_if<OperatorCall>(&program.steps[i]);
    if (call == nullptr || call->written() == kNoSlot) continue;
    writers[memory.ClassOf(call->written())].push_back(i);
  }
  return writers;
}

// The symbol that a node takes of an input's size; null if it does something else.
const std::string* SymbolRead(const Program& program, const GraphNode& node) {
  if (node.op != "sym::size" || node.arguments.size() != 2) return nullptr;
  const GraphInput* input = nullptr;
  int64_t dim = 0;
  for (const auto& [name, value] : node.arguments) {
    if (const auto* ref = std::get_if<SlotRef>(&value.is)) {
      const auto found = std::find_if(program.graph.inputs.begin(), program.graph.inputs.end(),
                                      [&](const auto& i) { return i.slot == ref->slot; });
      if (found != program.graph.inputs.end()) input = &*found;
    } else if (const auto* whole = std::get_if<int64_t>(&value.is)) {
      dim = *whole;
    }
  }
  if (input == nullptr) return nullptr;
  if (dim < 0) dim += std::ssize(input->shape);
  if (dim < 0 || dim >= std::ssize(input->shape)) return nullptr;
  return &input->shape[Index(static_cast<Slot>(dim))].symbol;
}

class Folder {
 public:
  Folder(const SharedMemory& memory, Program& program)
      : memory_(memory),
        program_(program),
        writers_(WritersByClass(program, memory)),
        known_(program.graph.slots, false) {}

  // A value that somebody writes in place is only foldable if its writers are, and if no other node
  // reads it before the last of them. What turns out not to be folds no more, and all begins again.
  void Run() {
    do {
      Pass();
    } while (BanMixed());
    Results();
  }

 private:
  void Pass() {
    std::fill(known_.begin(), known_.end(), false);
    for (const GraphConstant& constant : program_.graph.constants) {
      known_[Index(constant.slot)] = true;
    }
    program_.folded.assign(program_.steps.size(), false);
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      const GraphNode& node = program_.graph.nodes[i];
      if (!Foldable(node)) continue;
      program_.folded[i] = true;
      for (const Slot slot : node.outputs) {
        if (slot != kNoSlot) known_[Index(slot)] = true;
      }
    }
  }

  bool Foldable(const GraphNode& node) const {
    if (SymbolRead(program_, node) != nullptr) return true;
    const std::vector<Slot> reads = ReadsOf(node);
    return std::all_of(reads.begin(), reads.end(),
                       [&](Slot slot) {
                         return known_[Index(slot)] && !banned_.contains(memory_.ClassOf(slot));
                       }) &&
           std::none_of(node.outputs.begin(), node.outputs.end(), [&](Slot slot) {
             return slot != kNoSlot && banned_.contains(memory_.ClassOf(slot));
           });
  }

  bool BanMixed() {
    bool any = false;
    for (const auto& [memory_class, writers] : writers_) {
      if (banned_.contains(memory_class) || !Mixed(memory_class, writers)) continue;
      banned_.insert(memory_class);
      any = true;
    }
    return any;
  }

  bool Mixed(Slot memory_class, const std::vector<size_t>& writers) const {
    const auto folded =
        std::count_if(writers.begin(), writers.end(), [&](size_t i) { return program_.folded[i]; });
    if (folded != std::ssize(writers)) return true;
    for (size_t i = 0; i < writers.back(); ++i) {
      if (program_.folded[i]) continue;
      for (const Slot slot : ReadsOf(program_.graph.nodes[i])) {
        if (memory_.ClassOf(slot) == memory_class) return true;
      }
    }
    return false;
  }

  void Results() {
    std::vector<bool> made(program_.graph.slots, false), taken(program_.graph.slots, false);
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      const GraphNode& node = program_.graph.nodes[i];
      if (program_.folded[i]) {
        if (const std::string* symbol = SymbolRead(program_, node); symbol && !symbol->empty()) {
          program_.folded_symbols.insert(*symbol);
        }
        for (const Slot slot : node.outputs) {
          if (slot != kNoSlot) made[Index(slot)] = true;
        }
        continue;
      }
      for (const Slot slot : ReadsOf(node)) Take(slot, made, taken);
    }
    for (const GraphOutput& output : program_.graph.outputs) Take(output.slot, made, taken);
  }

  void Take(Slot slot, const std::vector<bool>& made, std::vector<bool>& taken) {
    if (!made[Index(slot)] || taken[Index(slot)]) return;
    taken[Index(slot)] = true;
    program_.folded_results.push_back(slot);
  }

  const SharedMemory& memory_;
  Program& program_;
  const std::map<Slot, std::vector<size_t>> writers_;
  std::vector<bool> known_;  // By slot: what folded nodes and constants make.
  std::set<Slot> banned_;    // Classes of memory.
};

}  // namespace

SharedMemory::SharedMemory(const Program& program) {
  for (size_t i = 0; i < program.graph.slots; ++i) parents_.push_back(static_cast<Slot>(i));
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const auto* call = std::get_if<OperatorCall>(&program.steps[i]);
    if (call == nullptr) continue;
    for (const Slot shared : call->aliased()) {
      for (const Slot slot : program.graph.nodes[i].outputs) {
        if (slot != kNoSlot) Join(shared, slot);
      }
    }
  }
}

Slot SharedMemory::ClassOf(Slot slot) const {
  while (parents_[Index(slot)] != slot) {
    parents_[Index(slot)] = parents_[Index(parents_[Index(slot)])];
    slot = parents_[Index(slot)];
  }
  return slot;
}

void SharedMemory::Join(Slot a, Slot b) { parents_[Index(ClassOf(a))] = ClassOf(b); }

absl::Status CheckWrites(const Program& program, const SharedMemory& memory) {
  std::set<Slot> given;  // Classes of what no node makes.
  for (const GraphInput& input : program.graph.inputs) given.insert(memory.ClassOf(input.slot));
  for (const GraphConstant& constant : program.graph.constants) {
    given.insert(memory.ClassOf(constant.slot));
  }
  for (const GraphParameter& parameter : program.graph.parameters) {
    if (parameter.slot != kNoSlot) given.insert(memory.ClassOf(parameter.slot));
  }
  std::map<Slot, size_t> made;  // By class: its first node.
  for (size_t i = 0; i < program.steps.size(); ++i) {
    for (const Slot slot : program.graph.nodes[i].outputs) {
      if (slot != kNoSlot) made.emplace(memory.ClassOf(slot), i);
    }
  }
  for (const auto& [memory_class, writers] : WritersByClass(program, memory)) {
    for (const size_t writer : writers) {
      if (given.contains(memory_class)) {
        return absl::InvalidArgumentError(NameOf(program.graph, writer) +
                                          " writes to a weight, an input or a constant");
      }
      for (const GraphBlock& block : program.graph.blocks) {
        if (writer < block.first || writer >= block.end || made[memory_class] >= block.first) {
          continue;
        }
        return absl::InvalidArgumentError(absl::StrCat(NameOf(program.graph, writer),
                                                       " writes to a value from outside its block ",
                                                       block.name));
      }
    }
  }
  return absl::OkStatus();
}

void Fold(const SharedMemory& memory, Program& program) { Folder(memory, program).Run(); }

}  // namespace oxbow::model::exported
