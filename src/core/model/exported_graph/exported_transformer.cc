// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/exported_transformer.h"

#include <ATen/ATen.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "core/model/binding.h"

namespace oxbow::model::exported {
namespace {

// Elements that PyTorch's loops on CPUs take at once, at most: two registers of 16. Those left over
// at the end of a tensor are computed one by one, and functions such as tanh have other bits then.
constexpr int64_t kElementsAtOnce = 32;

std::string ModuleOf(const GraphParameter& linear) {
  return linear.name.substr(0, linear.name.size() - std::string_view(".weight").size());
}

std::set<std::string> NamesOf(const Graph& graph) {
  std::set<std::string> names;
  for (const GraphParameter& parameter : graph.parameters) names.insert(parameter.name);
  return names;
}

// The weights of a graph as a Binding hands them out.
struct Bound {
  NamedTensors weights;
  std::map<std::string, Linear> linears;
};

Bound BindWeights(const Graph& graph, Binding& bind) {
  const std::set<std::string> names = NamesOf(graph);
  std::set<std::string> with_layer;  // Biases that came with their layers.
  Bound bound;
  for (const GraphParameter& parameter : graph.parameters) {
    if (!parameter.linear) continue;
    const std::string module = ModuleOf(parameter);
    const bool bias = names.contains(module + ".bias");
    const Linear linear = bind.TakeLinear(module, parameter.shape[1], parameter.shape[0], bias);
    bound.linears[module] = linear;
    bound.weights[parameter.name] = linear.weight;
    if (bias) bound.weights[module + ".bias"] = linear.bias;
  }
  for (const GraphParameter& parameter : graph.parameters) {
    if (bound.weights.contains(parameter.name)) continue;
    bound.weights[parameter.name] = bind.Take(parameter.name, parameter.shape);
  }
  return bound;
}

Binding Recorded(const Graph& graph) {
  Binding bind;
  BindWeights(graph, bind);
  return bind;
}

at::Tensor WholeBlocks(const at::Tensor& x, int64_t block) {
  const int64_t rows = (x.size(0) + block - 1) / block * block;
  if (rows == x.size(0)) return x;
  return x.index_select(0, at::arange(rows, at::kLong).remainder(x.size(0)));
}

class ExportedTransformer final : public VelocityModel {
 public:
  ExportedTransformer(std::shared_ptr<const Program> program, const Bound& bound, at::Device device,
                      const Execution& execution)
      : program_(program),
        device_(device),
        guidance_(execution.embedded_guidance),
        block_(RowsOfBlock(program_->graph)),
        interpreter_(std::move(program), bound.weights, bound.linears, device, execution) {}

 private:
  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const Conditioning& conditioning) const override {
    const int64_t rows = x.size(0);
    // A row that many share is sent there once.
    const auto there = [&](const at::Tensor& input) {
      const at::Tensor all = BroadcastRows(input.to(device_), rows);
      return device_.is_cpu() ? WholeBlocks(all, block_) : all;
    };
    std::vector<at::Tensor> inputs = {there(x), there(sigma)};
    for (size_t i = 2; i < program_->graph.inputs.size(); ++i) {
      const std::string& name = program_->graph.inputs[i].name;
      const auto part = conditioning.find(name);
      const bool setting = name == kEmbeddedGuidance && part == conditioning.end();
      TORCH_CHECK(setting || part != conditioning.end(), "no conditioning of the name ", name);
      inputs.push_back(there(setting ? at::full({1}, guidance_, at::kFloat) : part->second));
    }
    const absl::Status fit = CheckInputs(program_->graph, inputs);
    OXBOW_CHECK(fit.ok()) << program_->graph.class_name << ": " << fit.message();
    const at::Tensor v = interpreter_.Run(inputs)[0].to(x.device(), at::kFloat);
    OXBOW_CHECK(v.sizes() == inputs[0].sizes())
        << "the graph's output " << v.sizes() << " is no velocity of " << inputs[0].sizes();
    return v.size(0) == rows ? v : v.narrow(0, 0, rows);
  }

  const std::shared_ptr<const Program> program_;
  const at::Device device_;
  const double guidance_;
  const int64_t block_;
  const Interpreter interpreter_;
};

absl::Status CheckRange(const std::string& symbol, const SymbolRange& range, int64_t size) {
  if (size >= range.min && (range.max == 0 || size <= range.max) && size % range.multiple == 0) {
    return absl::OkStatus();
  }
  std::string allowed = absl::StrCat("at least ", range.min);
  if (range.max != 0) absl::StrAppend(&allowed, ", at most ", range.max);
  if (range.multiple != 1) absl::StrAppend(&allowed, ", a multiple of ", range.multiple);
  return absl::InvalidArgumentError(
      absl::StrCat("size ", symbol, " of this network's inputs must be ", allowed, ": ", size));
}

}  // namespace

int64_t RowsOfBlock(const Graph& graph) {
  for (const GraphParameter& parameter : graph.parameters) {
    if (!parameter.linear) continue;
    for (const int64_t width : parameter.shape) {
      if (width * kRowsMin % kElementsAtOnce != 0) return kElementsAtOnce;
    }
  }
  return kRowsMin;
}

Shapes ShapesOf(const Graph& graph) { return Recorded(graph).shapes(); }

LinearModules LinearsOf(const Graph& graph) { return Recorded(graph).linears(); }

std::map<std::string, Linear> PlainLinears(const Graph& graph, const NamedTensors& weights) {
  std::map<std::string, Linear> linears;
  for (const auto& [module, widths] : LinearsOf(graph)) {
    const auto bias = weights.find(module + ".bias");
    linears[module] = {.weight = weights.at(module + ".weight"),
                       .bias = bias == weights.end() ? at::Tensor() : bias->second};
  }
  return linears;
}

absl::Status CheckInputs(const Graph& graph, const std::vector<at::Tensor>& inputs) {
  SymbolValues symbols;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const GraphInput& input = graph.inputs[i];
    const auto wrong = [&](const std::string& what) {
      return absl::InvalidArgumentError(absl::StrCat("input ", input.name, ": ", what));
    };
    if (inputs[i].dim() != std::ssize(input.shape)) {
      return wrong(
          absl::StrCat("dimensions: ", inputs[i].dim(), " instead of ", input.shape.size()));
    }
    for (size_t d = 0; d < input.shape.size(); ++d) {
      const int64_t size = inputs[i].size(static_cast<int64_t>(d));
      const Dimension& dimension = input.shape[d];
      int64_t expected = dimension.size;
      if (!dimension.symbol.empty()) {
        const auto [known, fresh] = symbols.emplace(dimension.symbol, size / dimension.times);
        expected = known->second * dimension.times;
        if (fresh) {
          OXBOW_RETURN_IF_ERROR(
              CheckRange(dimension.symbol, graph.symbols.at(dimension.symbol), known->second));
        }
      }
      if (size != expected) {
        return wrong(absl::StrCat("dimension ", d, " has ", size, " instead of ", expected));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<VelocityModel>> MakeExportedTransformer(
    std::shared_ptr<const Program> program, const NamedTensors& weights, const LoraAdapter* adapter,
    const Execution& execution) {
  Binding bind(weights, adapter);
  const Bound bound = BindWeights(program->graph, bind);
  OXBOW_RETURN_IF_ERROR(bind.Finish());
  const at::Device device = bound.weights.begin()->second.device();
  return std::make_unique<ExportedTransformer>(std::move(program), bound, device, execution);
}

}  // namespace oxbow::model::exported
