// SPDX-License-Identifier: Apache-2.0
// Runs a program with weights: node by node through PyTorch's dispatcher, with autograd on.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/model/exported_graph/program.h"
#include "core/model/layers.h"
#include "core/model/recompute.h"
#include "core/model/velocity_model.h"

namespace oxbow::model::exported {

// The values of a graph's symbols in one run.
using SymbolValues = std::map<std::string, int64_t>;

class Interpreter {
 public:
  // `weights`: by slot, of the program's parameters; `linears` by module, perhaps with adapters.
  Interpreter(std::shared_ptr<const Program> program, const NamedTensors& weights,
              const std::map<std::string, Linear>& linears, at::Device device,
              const Execution& execution);

  // The outputs in the graph's order, of the inputs in theirs, on the device. Throws c10::Error,
  // which names the node, where an operator throws.
  // An input that is handed over is given back after the last node that reads it. `watch`, unless
  // null, sees all values after every node outside recomputed blocks.
  using Watch = std::function<void(size_t node, const SlotValues& values)>;
  std::vector<at::Tensor> Run(std::vector<at::Tensor> inputs, const Watch& watch = nullptr) const;

 private:
  // A linear layer, in place of its node's call.
  struct LinearCall {
    Linear linear;
    Slot input = kNoSlot;
    Slot output = kNoSlot;
    bool float32 = false;            // Also where other products are not.
    std::vector<size_t> companions;  // Nodes of other layers that go with it.
    bool given = false;              // It goes with an earlier one.
    int64_t matrices = 0;            // How many elements of adapters the layers have,
    int64_t matrices_begin = 0;      // and from which of all on.
  };

  void RunNodes(size_t first, size_t end, bool folded, SlotValues& values,
                const Watch& watch = nullptr) const;
  void RunNode(size_t node, SlotValues& values) const;
  void RunLinear(size_t node, SlotValues& values) const;
  // Layers of one input that are faster together than each on its own.
  void FindCompanions();
  std::vector<Linear> LinearsOf(const LinearCall& layer) const;
  // Adapters are rounded once for a pass.
  void FindMatrices();
  at::Tensor RoundedMatrices() const;
  at::Tensor MatricesOf(const LinearCall& layer, const SlotValues& values) const;
  bool FitsLayers(size_t node, const at::Tensor& input, const std::vector<Linear>& linears,
                  const std::vector<at::Tensor>& results) const;
  // Its results by one kernel; false, and nothing is done, if its nodes must run instead.
  bool RunFusion(const Fusion& fusion, SlotValues& values) const;
  bool FitsNodes(const Fusion& fusion, const std::vector<at::Tensor>& results, const TensorAt& at,
                 const SlotValues& values) const;
  void WarnOf(size_t node) const;
  // Drops what nobody reads after the node.
  void Forget(size_t node, SlotValues& values) const;
  void Recompute(size_t section, SlotValues& values) const;
  void Fold(const SymbolValues& symbols, SlotValues& values) const;
  std::vector<Tensors> TensorsOfSections(const NamedTensors& weights) const;
  std::vector<SegmentWeights> WeightsOfSections(const NamedTensors& weights) const;

  const std::shared_ptr<const Program> program_;
  const at::Device device_;
  const Execution execution_;
  std::vector<Step> steps_;  // With weights in their places.
  std::map<size_t, LinearCall> linears_;
  std::vector<at::Tensor> matrices_;     // Adapters' that are read side by side, flat.
  std::map<Slot, at::Tensor> fixed_;     // Weights and constants that fusions read.
  std::vector<SegmentWeights> weights_;  // By section.

  // Folded values by the sizes that they depend on. Recordings of forward passes read them, so none
  // is dropped.
  mutable std::mutex mutex_;
  mutable std::map<std::vector<int64_t>, std::vector<c10::IValue>> folded_;
};

}  // namespace oxbow::model::exported
