// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/dry_run.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/model/exported_graph/exported_transformer.h"

namespace oxbow::model::exported {
namespace {

at::Device Nowhere() { return at::kMeta; }

at::Tensor Empty(at::IntArrayRef shape) {
  return at::empty(shape, at::TensorOptions().dtype(at::kFloat).device(Nowhere()));
}

NamedTensors Weights(const Graph& graph, bool train) {
  NamedTensors weights;
  for (const GraphParameter& parameter : graph.parameters) {
    weights[parameter.name] = Empty(parameter.shape).requires_grad_(train && !parameter.buffer);
  }
  return weights;
}

// The layers of weights, those of `adapted` with an adapter of rank 1 that trains.
std::map<std::string, Linear> Linears(const Graph& graph, const NamedTensors& weights,
                                      const std::vector<std::string>& adapted) {
  std::map<std::string, Linear> linears = PlainLinears(graph, weights);
  for (const std::string& module : adapted) {
    Linear& linear = linears.at(module);
    linear.lora_a = Empty({1, linear.weight.size(1)}).requires_grad_(true);
    linear.lora_b = Empty({linear.weight.size(0), 1}).requires_grad_(true);
  }
  return linears;
}

std::vector<at::Tensor> Inputs(const Graph& graph, const SymbolValues& sizes) {
  std::vector<at::Tensor> inputs;
  for (const GraphInput& input : graph.inputs) inputs.push_back(Empty(ShapeOf(input, sizes)));
  return inputs;
}

// The memory that nodes made, and who of it is still there when their values are gone.
class Ledger {
 public:
  explicit Ledger(const Program& program) : program_(program), made_(program.sections.size()) {}

  // Memory that no node made, of which they may make views.
  void Ignore(const at::Tensor& given) { known_.insert(given.storage().unsafeGetStorageImpl()); }

  void Watch(size_t node, const SlotValues& values) {
    while (node >= program_.sections[section_].end) ++section_;
    for (const Slot slot : program_.graph.nodes[node].outputs) {
      if (slot == kNoSlot || !values[static_cast<size_t>(slot)].isTensor()) continue;
      const c10::Storage& storage = values[static_cast<size_t>(slot)].toTensor().storage();
      if (known_.insert(storage.unsafeGetStorageImpl()).second) {
        made_[section_].emplace_back(storage.getWeakStorageImpl(), storage.nbytes());
      }
    }
    for (const Slot slot : program_.sections[section_].writes) Crosses(node, slot, values);
  }

  KeptBytes Count() const {
    KeptBytes kept{.between = between_};
    for (size_t i = 0; i < made_.size(); ++i) {
      uint64_t bytes = 0;
      for (const auto& [storage, size] : made_[i]) bytes += storage.expired() ? 0 : size;
      if (program_.sections[i].block) {
        kept.blocks += bytes;
        kept.largest_block = std::max(kept.largest_block, bytes);
      } else {
        kept.outside += bytes;
      }
    }
    return kept;
  }

 private:
  using Storage = std::pair<c10::weak_intrusive_ptr<c10::StorageImpl>, uint64_t>;

  void Crosses(size_t node, Slot slot, const SlotValues& values) {
    const std::vector<Slot>& made = program_.graph.nodes[node].outputs;
    const c10::IValue& value = values[static_cast<size_t>(slot)];
    if (!program_.sections[section_].block || !value.isTensor()) return;
    if (std::find(made.begin(), made.end(), slot) != made.end())
      between_ += value.toTensor().nbytes();
  }

  const Program& program_;
  size_t section_ = 0;
  std::set<const c10::StorageImpl*>
      known_;                               // Weak references keep addresses from being used again.
  std::vector<std::vector<Storage>> made_;  // By section.
  uint64_t between_ = 0;
};

// The memory that nodes made and that is still there, and the most of it that there was.
class Held {
 public:
  // Memory that no node made, of which they may make views.
  void Ignore(const at::Tensor& given) {
    const c10::Storage& storage = given.storage();
    ignored_.emplace(storage.unsafeGetStorageImpl(), storage.getWeakStorageImpl());
  }
  // Memory that counts although no node made it.
  void Hold(const at::Tensor& given) { Add(given.storage()); }

  // After a node that made `outputs`, before what it read last is given back.
  void Watch(const std::vector<Slot>& outputs, const SlotValues& values) {
    std::erase_if(storages_, [](const auto& held) { return held.second.storage.expired(); });
    for (const Slot slot : outputs) {
      if (slot == kNoSlot || !values[static_cast<size_t>(slot)].isTensor()) continue;
      const c10::Storage& storage = values[static_cast<size_t>(slot)].toTensor().storage();
      if (!ignored_.contains(storage.unsafeGetStorageImpl())) Add(storage);
    }
    uint64_t bytes = 0;
    for (const auto& [address, held] : storages_) bytes += held.bytes;
    peak_ = std::max(peak_, bytes);
  }

  uint64_t peak() const { return peak_; }

 private:
  using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;  // No other gets its address.
  struct Memory {
    Weak storage;
    uint64_t bytes;
  };

  void Add(const c10::Storage& storage) {
    storages_.try_emplace(storage.unsafeGetStorageImpl(),
                          Memory{storage.getWeakStorageImpl(), storage.nbytes()});
  }

  std::map<const c10::StorageImpl*, Weak> ignored_;
  std::map<const c10::StorageImpl*, Memory> storages_;
  uint64_t peak_ = 0;
};

absl::Status Plain(const std::exception& error) {
  const std::string what = error.what();
  return absl::InvalidArgumentError(what.substr(0, what.find('\n')));
}

// The result of `run`, or its exception as a status.
template <typename Run>
auto Guarded(const Run& run) -> decltype(run()) {
  try {
    return run();
  } catch (const c10::NotImplementedError& error) {
    return absl::UnimplementedError(Plain(error).message());
  } catch (const c10::Error& error) {
    // The node is the last thing that was added.
    const std::string what = error.what_without_backtrace();
    return Plain(std::runtime_error(what));
  } catch (const std::exception& error) {
    return Plain(error);
  }
}

absl::StatusOr<KeptBytes> Counted(const std::shared_ptr<const Program>& program,
                                  const SymbolValues& sizes,
                                  const std::vector<std::string>& adapted) {
  const Graph& graph = program->graph;
  const NamedTensors weights = Weights(graph, /*train=*/adapted.empty());
  const std::vector<at::Tensor> inputs = Inputs(graph, sizes);
  if (const absl::Status fit = CheckInputs(graph, inputs); !fit.ok()) return fit;
  const Interpreter interpreter(program, weights, Linears(graph, weights, adapted), Nowhere(), {});
  Ledger ledger(*program);
  for (const auto& [name, weight] : weights) ledger.Ignore(weight);
  for (const at::Tensor& input : inputs) ledger.Ignore(input);
  const at::Tensor v = interpreter.Run(
      inputs, [&](size_t node, const SlotValues& values) { ledger.Watch(node, values); })[0];
  if (v.sizes() != inputs[0].sizes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("output: not of x's shape but [", absl::StrJoin(v.sizes(), ", "), "]"));
  }
  return ledger.Count();
}

// The outputs, without values. `held`, unless null, is told of weights and inputs; it counts the
// states of a decoder, which are inputs after the first.
absl::StatusOr<std::vector<at::Tensor>> RunWithoutGradients(
    const std::shared_ptr<const Program>& program, const SymbolValues& sizes,
    const Interpreter::Watch& watch, Held* held) {
  const at::NoGradGuard no_gradients;
  return Guarded([&]() -> absl::StatusOr<std::vector<at::Tensor>> {
    const Graph& graph = program->graph;
    const NamedTensors weights = Weights(graph, /*train=*/false);
    std::vector<at::Tensor> inputs = Inputs(graph, sizes);
    if (const absl::Status fit = CheckInputs(graph, inputs); !fit.ok()) return fit;
    for (size_t i = 0; held != nullptr && i < inputs.size(); ++i) {
      graph.decoder&& i > 0 ? held->Hold(inputs[i]) : held->Ignore(inputs[i]);
    }
    if (held != nullptr) {
      for (const auto& [name, weight] : weights) held->Ignore(weight);
    }
    const Interpreter interpreter(program, weights, PlainLinears(graph, weights), Nowhere(), {});
    return interpreter.Run(std::move(inputs), watch);
  });
}

}  // namespace

absl::StatusOr<KeptBytes> DryRun(const std::shared_ptr<const Program>& program,
                                 const SymbolValues& sizes,
                                 const std::vector<std::string>& adapted) {
  const at::AutoGradMode with_gradients(true);
  return Guarded([&] { return Counted(program, sizes, adapted); });
}

absl::StatusOr<uint64_t> PeakBytes(const std::shared_ptr<const Program>& program,
                                   const SymbolValues& sizes) {
  Held held;
  const Interpreter::Watch watch = [&](size_t node, const SlotValues& values) {
    held.Watch(program->graph.nodes[node].outputs, values);
  };
  const auto outputs = RunWithoutGradients(program, sizes, watch, &held);
  if (!outputs.ok()) return outputs.status();
  return held.peak();
}

std::vector<int64_t> ShapeOf(const GraphInput& input, const SymbolValues& sizes) {
  std::vector<int64_t> shape;
  for (const Dimension& dimension : input.shape) {
    const bool number = dimension.symbol.empty();
    shape.push_back(number ? dimension.size : sizes.at(dimension.symbol) * dimension.times);
  }
  return shape;
}

absl::StatusOr<std::vector<std::vector<int64_t>>> OutputShapes(
    const std::shared_ptr<const Program>& program, const SymbolValues& sizes) {
  const auto outputs = RunWithoutGradients(program, sizes, nullptr, nullptr);
  if (!outputs.ok()) return outputs.status();
  std::vector<std::vector<int64_t>> shapes;
  for (const at::Tensor& output : *outputs) shapes.push_back(output.sizes().vec());
  return shapes;
}

}  // namespace oxbow::model::exported
