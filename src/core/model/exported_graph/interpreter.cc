// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/interpreter.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/log.h"
#include "core/model/adapted_linears.h"
#include "core/model/device.h"
#include "core/model/offloaded_weights.h"

namespace oxbow::model::exported {
namespace {

// Values that gradients may flow through.
bool Differentiable(const c10::IValue& value) {
  if (!value.isTensor()) return false;
  const at::ScalarType type = value.toTensor().scalar_type();
  return at::isFloatingType(type) || at::isComplexType(type);
}

// A tensor that is none of `inputs`: a segment returns none of them.
at::Tensor Apart(const at::Tensor& tensor, const Tensors& inputs) {
  for (const at::Tensor& input : inputs) {
    if (tensor.is_same(input)) return at::alias(tensor);
  }
  return tensor;
}

// Whether a flat view of its adapter is one of its memory.
bool IsFlat(const Linear& linear) {
  return !linear.lora_a.defined() ||
         (linear.lora_a.is_contiguous() && linear.lora_b.is_contiguous());
}

// Passes on a value that has the type of products, and a longer one not.
bool PassRounded(const GraphNode& cast, SlotValues& values) {
  const c10::IValue& value = values[Index(SlotOf(cast, "self"))];
  if (!value.isTensor()) return false;
  const at::Tensor& tensor = value.toTensor();
  if (!tensor.is_cuda() || !at::isReducedFloatingType(tensor.scalar_type()) ||
      tensor.scalar_type() != OperandType(tensor)) {
    return false;
  }
  values[Index(cast.outputs[0])] = tensor;
  return true;
}

SlotValues FixedValues(const Program& program, const NamedTensors& weights, at::Device device) {
  SlotValues fixed(program.graph.slots);
  for (const GraphParameter& parameter : program.graph.parameters) {
    if (parameter.slot != kNoSlot) fixed[Index(parameter.slot)] = weights.at(parameter.name);
  }
  for (const GraphConstant& constant : program.graph.constants) {
    fixed[Index(constant.slot)] = constant.tensor.to(device);
  }
  return fixed;
}

}  // namespace

Interpreter::Interpreter(std::shared_ptr<const Program> program, const NamedTensors& weights,
                         const std::map<std::string, Linear>& linears, at::Device device,
                         const Execution& execution)
    : program_(std::move(program)),
      device_(device),
      execution_(execution),
      steps_(program_->steps) {
  const SlotValues fixed = FixedValues(*program_, weights, device);
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (auto* call = std::get_if<OperatorCall>(&steps_[i])) {
      call->Bind(fixed, device);
    } else {
      std::get<SymbolicCall>(steps_[i]).Bind(fixed);
    }
  }
  for (const auto& [node, layer] : program_->linears) {
    linears_[node] = {.linear = linears.at(layer.module),
                      .input = layer.input,
                      .output = layer.output,
                      .float32 = layer.float32};
  }
  for (const auto& [node, fusion] : program_->fusions) {
    for (const Slot slot : InputsOf(fusion)) {
      if (fixed[Index(slot)].isTensor()) fixed_[slot] = fixed[Index(slot)].toTensor();
    }
  }
  FindCompanions();
  FindMatrices();
  weights_ = WeightsOfSections(weights);
}

std::vector<Tensors> Interpreter::TensorsOfSections(const NamedTensors& weights) const {
  std::map<Slot, at::Tensor> by_slot;
  for (const GraphParameter& parameter : program_->graph.parameters) {
    if (parameter.slot != kNoSlot) by_slot[parameter.slot] = weights.at(parameter.name);
  }
  std::vector<Tensors> tensors;
  for (const Section& section : program_->sections) {
    Tensors& all = tensors.emplace_back();
    std::set<const c10::TensorImpl*> known;
    const auto add = [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      if (known.insert(tensor.unsafeGetTensorImpl()).second) all.push_back(tensor);
    };
    for (size_t i = section.first; i < section.end; ++i) {
      for (const Slot slot : ReadsOf(program_->graph.nodes[i])) {
        if (const auto found = by_slot.find(slot); found != by_slot.end()) add(found->second);
      }
      if (const auto linear = linears_.find(i); linear != linears_.end()) {
        const Linear& of = linear->second.linear;
        for (const at::Tensor& tensor : {of.weight, of.scale, of.bias, of.lora_a, of.lora_b}) {
          add(tensor);
        }
      }
    }
  }
  return tensors;
}

std::vector<SegmentWeights> Interpreter::WeightsOfSections(const NamedTensors& weights) const {
  const std::vector<Tensors> tensors = TensorsOfSections(weights);
  std::map<const c10::TensorImpl*, int> sections;  // That read it.
  for (const Tensors& of : tensors) {
    for (const at::Tensor& tensor : of) ++sections[tensor.unsafeGetTensorImpl()];
  }
  std::vector<SegmentWeights> all;
  for (size_t i = 0; i < tensors.size(); ++i) {
    SegmentWeights& section = all.emplace_back(WeightsOfBlock(tensors[i], /*offloaded=*/nullptr));
    if (execution_.offloaded == nullptr || !program_->sections[i].block) continue;
    Tensors alone = tensors[i];
    std::erase_if(alone,
                  [&](const at::Tensor& t) { return sections[t.unsafeGetTensorImpl()] > 1; });
    section.hold = WeightsOfBlock(alone, execution_.offloaded).hold;
  }
  if (execution_.offloaded != nullptr) execution_.offloaded->EndNetwork();
  return all;
}

void Interpreter::FindCompanions() {
  if (!device_.is_cuda()) return;
  for (const std::vector<size_t>& group : program_->together) {
    std::vector<Linear> all;
    for (const size_t node : group) all.push_back(linears_.at(node).linear);
    const bool one = GoSideBySide(all);
    std::vector<size_t> firsts;
    for (const size_t node : group) {
      const auto first = std::ranges::find_if(firsts, [&](size_t other) {
        return one || AreAlike(linears_.at(other).linear, linears_.at(node).linear);
      });
      if (first == firsts.end()) {
        firsts.push_back(node);
      } else {
        linears_.at(*first).companions.push_back(node);
        linears_.at(node).given = true;
      }
    }
  }
}

std::vector<Linear> Interpreter::LinearsOf(const LinearCall& layer) const {
  std::vector<Linear> linears = {layer.linear};
  for (const size_t other : layer.companions) linears.push_back(linears_.at(other).linear);
  return linears;
}

void Interpreter::FindMatrices() {
  if (!device_.is_cuda()) return;
  const at::NoGradGuard no_gradients;
  int64_t begin = 0;
  for (auto& [node, layer] : linears_) {
    if (layer.given || layer.float32 || !program_->graph.nodes[node].autocast) continue;
    layer.matrices_begin = begin;
    const std::vector<Linear> linears = LinearsOf(layer);
    if (!std::ranges::all_of(linears, IsFlat)) continue;  // Copies would not follow them.
    for (const at::Tensor& matrix : FlatMatrices(linears)) {
      layer.matrices += matrix.numel();
      matrices_.push_back(matrix);
    }
    begin += layer.matrices;
  }
}

at::Tensor Interpreter::RoundedMatrices() const {
  if (matrices_.empty()) return {};
  const at::NoGradGuard no_gradients;
  return at::cat(matrices_).to(execution_.compute);
}

at::Tensor Interpreter::MatricesOf(const LinearCall& layer, const SlotValues& values) const {
  if (layer.matrices == 0) return {};
  return values.back().toTensor().narrow(0, layer.matrices_begin, layer.matrices);
}

void Interpreter::RunLinear(size_t node, SlotValues& values) const {
  const LinearCall& layer = linears_.at(node);
  if (layer.given) return;
  at::Tensor input = values[Index(layer.input)].toTensor();
  if (layer.float32) {
    input = input.to(at::kFloat);
  } else if (execution_.compute != at::kFloat && input.is_cuda() &&
             program_->graph.nodes[node].autocast) {
    // Once for all that read it. A CPU keeps the bits of a cast each, whose gradients are exact.
    input = AsOperand(input);
    if (program_->operands[Index(layer.input)]) values[Index(layer.input)] = input;
  }
  const std::vector<Linear> linears = LinearsOf(layer);
  std::vector<at::Tensor> results = ApplyFrozen(input, linears, MatricesOf(layer, values));
  if (results.empty() || (linears.size() > 1 && !FitsLayers(node, input, linears, results))) {
    results.clear();
    for (const Linear& linear : linears) results.push_back(linear(input));
  }
  values[Index(layer.output)] = std::move(results[0]);
  for (size_t i = 0; i < layer.companions.size(); ++i) {
    values[Index(linears_.at(layer.companions[i]).output)] = std::move(results[i + 1]);
  }
}

bool Interpreter::FitsLayers(size_t node, const at::Tensor& input,
                             const std::vector<Linear>& linears,
                             const std::vector<at::Tensor>& results) const {
  const std::vector<int64_t> signature = {static_cast<int64_t>(input.scalar_type()), input.dim()};
  return program_->verdicts->Fits(node, signature, [&] {
    const at::NoGradGuard no_gradients;
    bool fits = true;
    for (size_t i = 0; i < linears.size(); ++i) {
      fits = fits && Agree(results[i], linears[i](input), input.scalar_type(), /*operand=*/false);
    }
    if (!fits) WarnOf(node);
    return fits;
  });
}

void Interpreter::WarnOf(size_t node) const {
  OXBOW_LOG(Warning) << "a fused kernel is not this network's: its operators run instead"
                     << oxbow::Field("model", program_->graph.class_name)
                     << oxbow::Field("node", NameOf(program_->graph, node));
}

void Interpreter::RunNode(size_t node, SlotValues& values) const {
  const auto linear = linears_.find(node);
  const auto* call = std::get_if<OperatorCall>(&steps_[node]);
  std::optional<c10::impl::ExcludeDispatchKeyGuard> exact;
  const bool float32 = linear != linears_.end() && linear->second.float32;
  if (float32 || (call != nullptr && !call->autocast())) {
    exact.emplace(c10::autocast_dispatch_keyset);
  }
  if (linear != linears_.end()) {
    RunLinear(node, values);
  } else if (call != nullptr) {
    if (!program_->needless_casts[node] || !PassRounded(program_->graph.nodes[node], values)) {
      call->Run(values);
    }
  } else {
    const absl::Status status = std::get<SymbolicCall>(steps_[node]).Run(values);
    TORCH_CHECK(status.ok(), std::string(status.message()));
  }
}

bool Interpreter::RunFusion(const Fusion& fusion, SlotValues& values) const {
  if (fusion.kind == FusionKind::kGelu) {
    const auto layer = linears_.find(fusion.first);
    if (layer == linears_.end() || layer->second.linear.lora_a.defined()) return false;
  }
  const TensorAt at = [&](Slot slot) {
    if (slot == kNoSlot) return at::Tensor();
    const auto fixed = fixed_.find(slot);
    return fixed != fixed_.end() ? fixed->second : values[Index(slot)].toTensor();
  };
  const std::vector<at::Tensor> results = RunFused(fusion, at);
  if (results.empty() || !FitsNodes(fusion, results, at, values)) return false;
  const std::vector<Slot> slots = ResultsOf(fusion);
  for (size_t i = 0; i < slots.size(); ++i) values[Index(slots[i])] = results[i];
  return true;
}

bool Interpreter::FitsNodes(const Fusion& fusion, const std::vector<at::Tensor>& results,
                            const TensorAt& at, const SlotValues& values) const {
  return program_->verdicts->Fits(fusion.first, SignatureOf(fusion, at), [&] {
    const at::NoGradGuard no_gradients;
    SlotValues plain = values;
    for (size_t i = fusion.first; i < fusion.end; ++i) RunNode(i, plain);
    const std::vector<Slot> slots = ResultsOf(fusion);
    bool fits = true;
    for (size_t i = 0; i < slots.size(); ++i) {
      fits = fits && Agree(results[i], plain[Index(slots[i])].toTensor(),
                           ShortestTypeOf(fusion, at), fusion.operand);
    }
    if (!fits) WarnOf(fusion.first);
    return fits;
  });
}

void Interpreter::Forget(size_t node, SlotValues& values) const {
  for (const Slot slot : program_->last[node]) values[Index(slot)] = c10::IValue();
}

void Interpreter::RunNodes(size_t first, size_t end, bool folded, SlotValues& values,
                           const Watch& watch) const {
  size_t node = first;
  try {
    for (; node < end; ++node) {
      if (program_->folded[node] != folded) continue;
      const auto fusion = program_->fusions.find(node);
      if (fusion != program_->fusions.end() && RunFusion(fusion->second, values)) {
        for (; node + 1 < fusion->second.end; ++node) Forget(node, values);
      } else {
        RunNode(node, values);
      }
      if (watch) watch(node, values);
      Forget(node, values);
    }
  } catch (c10::Error& error) {
    error.add_context(NameOf(program_->graph, node));
    throw;
  }
}

void Interpreter::Recompute(size_t index, SlotValues& values) const {
  const Section& section = program_->sections[index];
  Tensors inputs;
  std::vector<Slot> input_slots;
  std::vector<std::pair<Slot, c10::IValue>> given;  // Sizes, masks: no gradients flow through them.
  for (const Slot slot : section.reads) {
    const c10::IValue& value = values[Index(slot)];
    if (Differentiable(value)) {
      inputs.push_back(value.toTensor());
      input_slots.push_back(slot);
    } else {
      given.emplace_back(slot, value);
    }
  }
  given.emplace_back(static_cast<Slot>(program_->graph.slots), values.back());
  struct Results {
    std::vector<Slot> tensors;
    std::vector<std::pair<Slot, c10::IValue>> others;
  };
  const auto results = std::make_shared<Results>();
  const Segment segment = [this, &section, input_slots, given, results](const Tensors& in) {
    const AutocastScope autocast(device_.type(), execution_.compute);
    SlotValues inside(program_->graph.slots + 1);
    for (size_t i = 0; i < in.size(); ++i) inside[Index(input_slots[i])] = in[i];
    for (const auto& [slot, value] : given) inside[Index(slot)] = value;
    RunNodes(section.first, section.end, /*folded=*/false, inside);
    *results = {};
    Tensors out;
    for (const Slot slot : section.writes) {
      c10::IValue& value = inside[Index(slot)];
      if (Differentiable(value)) {
        results->tensors.push_back(slot);
        out.push_back(Apart(value.toTensor(), in));
      } else {
        results->others.emplace_back(slot, value);
      }
    }
    return out;
  };
  const Tensors out = Recomputed(segment, inputs, weights_[index]);
  for (size_t i = 0; i < out.size(); ++i) values[Index(results->tensors[i])] = out[i];
  for (const auto& [slot, value] : results->others) values[Index(slot)] = value;
  for (size_t node = section.first; node < section.end; ++node) Forget(node, values);
}

void Interpreter::Fold(const SymbolValues& symbols, SlotValues& values) const {
  std::vector<int64_t> sizes;
  for (const std::string& symbol : program_->folded_symbols) sizes.push_back(symbols.at(symbol));
  const std::lock_guard lock(mutex_);
  auto found = folded_.find(sizes);
  if (found == folded_.end()) {
    // Values for all runs to come, with gradients or without.
    const c10::InferenceMode ordinary(false);
    const at::NoGradGuard no_grad;
    SlotValues all = values;
    RunNodes(0, steps_.size(), /*folded=*/true, all);
    std::vector<c10::IValue> results;
    for (const Slot slot : program_->folded_results) results.push_back(all[Index(slot)]);
    found = folded_.emplace(sizes, std::move(results)).first;
  }
  for (size_t i = 0; i < program_->folded_results.size(); ++i) {
    values[Index(program_->folded_results[i])] = found->second[i];
  }
}

std::vector<at::Tensor> Interpreter::Run(std::vector<at::Tensor> inputs, const Watch& watch) const {
  SlotValues values(program_->graph.slots + 1);  // The last: rounded matrices.
  SymbolValues symbols;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const GraphInput& input = program_->graph.inputs[i];
    for (size_t d = 0; d < input.shape.size(); ++d) {
      const Dimension& dimension = input.shape[d];
      symbols[dimension.symbol] = inputs[i].size(static_cast<int64_t>(d)) / dimension.times;
    }
    values[Index(input.slot)] = std::move(inputs[i]);
  }
  const AutocastScope autocast(device_.type(), execution_.compute);
  values.back() = RoundedMatrices();
  Fold(symbols, values);
  for (size_t i = 0; i < program_->sections.size(); ++i) {
    const Section& section = program_->sections[i];
    if (section.block && execution_.checkpoint_activations) {
      Recompute(i, values);
    } else {
      RunNodes(section.first, section.end, /*folded=*/false, values, watch);
    }
  }
  std::vector<at::Tensor> outputs;
  for (const GraphOutput& output : program_->graph.outputs) {
    outputs.push_back(values[Index(output.slot)].toTensor());
  }
  return outputs;
}

}  // namespace oxbow::model::exported
