// SPDX-License-Identifier: Apache-2.0
// Symbols, inputs, parameters and constants of a graph file.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/exported_graph/graph_sections.h"

namespace oxbow::model::exported {
namespace {

// The largest numbers of tensors, inputs, outputs and symbols, and multiple of a symbol.
constexpr size_t kTensorsMax = 1 << 17;
constexpr size_t kInputsMax = 1024;
constexpr size_t kGraphOutputsMax = 1024;
constexpr size_t kSymbolsMax = 16;
constexpr int64_t kTimesMax = 1 << 12;

struct NamedType {
  std::string_view name;
  at::ScalarType type;
};
constexpr std::array<NamedType, 10> kTypes = {{{"float32", at::kFloat},
                                               {"float64", at::kDouble},
                                               {"float16", at::kHalf},
                                               {"bfloat16", at::kBFloat16},
                                               {"int64", at::kLong},
                                               {"int32", at::kInt},
                                               {"uint8", at::kByte},
                                               {"bool", at::kBool},
                                               {"complex64", at::kComplexFloat},
                                               {"complex128", at::kComplexDouble}}};

absl::StatusOr<std::vector<int64_t>> SizesFrom(const Field& list) {
  OXBOW_RETURN_IF_ERROR(list.ExpectList(kDimensionsMax));
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < list.size(); ++i) {
    OXBOW_ASSIGN_OR_RETURN(const int64_t size, list.Element(i).Integer(0, kSizeMax));
    sizes.push_back(size);
  }
  return sizes;
}

absl::StatusOr<Slot> SlotFrom(const Field& field, const Graph& graph) {
  OXBOW_ASSIGN_OR_RETURN(const int64_t slot,
                         field.Integer(0, static_cast<int64_t>(graph.slots) - 1));
  return static_cast<Slot>(slot);
}

absl::StatusOr<bool> FlagFrom(const Field& object, std::string_view key) {
  const std::optional<Field> flag = object.Find(key);
  if (!flag) return false;
  return flag->Bool();
}

absl::StatusOr<Dimension> DimensionFrom(const Field& field, const Graph& graph) {
  if (!field.json().is_string()) {
    OXBOW_ASSIGN_OR_RETURN(const int64_t size, field.Integer(1, kSizeMax));
    return Dimension{.size = size};
  }
  OXBOW_ASSIGN_OR_RETURN(std::string symbol, field.Text());
  int64_t times = 1;  // "2H"
  if (const size_t digits = symbol.find_first_not_of("0123456789"); digits != 0) {
    const bool number = absl::SimpleAtoi(symbol.substr(0, digits), &times);
    if (!number || times < 1 || times > kTimesMax) return field.Error("no size: " + symbol);
    symbol.erase(0, digits);
  }
  if (!graph.symbols.contains(symbol)) return field.Error("no such symbol: " + symbol);
  return Dimension{.symbol = std::move(symbol), .times = times};
}

// The model's own scale of guidance, where one is written.
absl::Status ReadScale(const Field& field, GraphInput& input) {
  const std::optional<Field> scale = field.Find("default");
  if (!scale) return absl::OkStatus();
  if (input.name != "guidance") return scale->Error("only guidance has one");
  const bool number = scale->json().is_number();
  input.scale = number ? scale->json().get<double>() : 0;
  if (input.scale > 0 && std::isfinite(input.scale)) return absl::OkStatus();
  return scale->Error("not a number above 0");
}

absl::StatusOr<GraphInput> InputFrom(const Field& field, const Graph& graph) {
  OXBOW_RETURN_IF_ERROR(field.ExpectObject({"name", "slot", "shape", "dtype", "default"}));
  GraphInput input;
  OXBOW_ASSIGN_OR_RETURN(const Field name, field.At("name"));
  OXBOW_ASSIGN_OR_RETURN(input.name, name.Text());
  OXBOW_ASSIGN_OR_RETURN(const Field slot, field.At("slot"));
  OXBOW_ASSIGN_OR_RETURN(input.slot, SlotFrom(slot, graph));
  OXBOW_ASSIGN_OR_RETURN(const Field dtype, field.At("dtype"));
  if (dtype.json() == "int64" && !graph.velocity) {
    input.type = at::kLong;
  } else if (dtype.json() != "float32") {
    return dtype.Error(graph.velocity ? "an input is not float32" : "not float32 or int64");
  }
  OXBOW_ASSIGN_OR_RETURN(const Field shape, field.At("shape"));
  OXBOW_RETURN_IF_ERROR(shape.ExpectList(kDimensionsMax));
  for (size_t i = 0; i < shape.size(); ++i) {
    OXBOW_ASSIGN_OR_RETURN(Dimension dimension, DimensionFrom(shape.Element(i), graph));
    input.shape.push_back(std::move(dimension));
  }
  if (input.shape.empty() || input.shape[0].symbol != "B" || input.shape[0].times != 1) {
    return shape.Error("an input's first dimension is not the rows, B");
  }
  OXBOW_RETURN_IF_ERROR(ReadScale(field, input));
  return input;
}

// x is [B, C, H, W] or [B, C, F, H, W], sigma [B].
absl::Status CheckGraphLatents(const Field& inputs, const Graph& graph) {
  const auto symbols = [](const GraphInput& input) {
    std::string all;
    for (const Dimension& dimension : input.shape) {
      all += dimension.symbol.empty() || dimension.times != 1 ? "." : dimension.symbol;
    }
    return all;
  };
  if (graph.inputs.size() < 2 || graph.inputs[0].name != "x" || graph.inputs[1].name != "sigma") {
    return inputs.Error("the first two are not x and sigma");
  }
  if (const std::string x = symbols(graph.inputs[0]); x != "B.HW" && x != "B.FHW") {
    return inputs.Error("x is neither [B, C, H, W] nor [B, C, F, H, W]");
  }
  if (symbols(graph.inputs[1]) != "B") return inputs.Error("sigma is not [B]");
  return absl::OkStatus();
}

absl::StatusOr<GraphParameter> ParameterFrom(const Field& field, const Graph& graph) {
  OXBOW_RETURN_IF_ERROR(
      field.ExpectObject({"name", "slot", "shape", "buffer", "linear", "float32"}));
  GraphParameter parameter;
  OXBOW_ASSIGN_OR_RETURN(const Field name, field.At("name"));
  OXBOW_ASSIGN_OR_RETURN(parameter.name, name.Text());
  OXBOW_ASSIGN_OR_RETURN(const Field slot, field.At("slot"));
  if (!slot.json().is_null()) {
    OXBOW_ASSIGN_OR_RETURN(parameter.slot, SlotFrom(slot, graph));
  }
  OXBOW_ASSIGN_OR_RETURN(const Field shape, field.At("shape"));
  OXBOW_ASSIGN_OR_RETURN(parameter.shape, SizesFrom(shape));
  OXBOW_ASSIGN_OR_RETURN(parameter.buffer, FlagFrom(field, "buffer"));
  OXBOW_ASSIGN_OR_RETURN(parameter.linear, FlagFrom(field, "linear"));
  OXBOW_ASSIGN_OR_RETURN(parameter.float32, FlagFrom(field, "float32"));
  if (parameter.linear && (parameter.shape.size() != 2 || !parameter.name.ends_with(".weight"))) {
    return field.Error("a linear layer's weight is not {module}.weight of two dimensions");
  }
  return parameter;
}

absl::StatusOr<at::Tensor> TensorFrom(const Field& field) {
  OXBOW_ASSIGN_OR_RETURN(const Field dtype, field.At("dtype"));
  OXBOW_ASSIGN_OR_RETURN(const at::ScalarType type, ScalarTypeFrom(dtype));
  OXBOW_ASSIGN_OR_RETURN(const Field shape, field.At("shape"));
  OXBOW_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, SizesFrom(shape));
  OXBOW_ASSIGN_OR_RETURN(const bool complex, FlagFrom(field, "complex"));
  OXBOW_ASSIGN_OR_RETURN(const Field data, field.At("data"));
  std::string bytes;
  if (!data.json().is_string() ||
      !absl::Base64Unescape(data.json().get_ref<const std::string&>(), &bytes)) {
    return data.Error("not base64");
  }
  uint64_t expected = c10::elementSize(type);  // Beyond the file's size it can only be wrong.
  for (const int64_t size : sizes) {
    expected = size == 0 ? 0 : expected * static_cast<uint64_t>(size);
    if (expected > kGraphBytesMax) return shape.Error("more bytes than a graph file may have");
  }
  if (bytes.size() != expected) {
    return data.Error(absl::StrCat("bytes: ", bytes.size(), " instead of ", expected));
  }
  if (type == at::kBool &&
      std::any_of(bytes.begin(), bytes.end(), [](char byte) { return byte != 0 && byte != 1; })) {
    return data.Error("a bool that is neither 0 nor 1");
  }
  at::Tensor tensor = at::empty(sizes, type);
  std::copy(bytes.begin(), bytes.end(), static_cast<char*>(tensor.mutable_data_ptr()));
  if (!complex) return tensor;
  if ((type != at::kFloat && type != at::kDouble) || sizes.empty() || sizes.back() != 2) {
    return field.Error("a complex constant is not pairs of float32 or float64");
  }
  return at::view_as_complex(tensor);
}

absl::Status AddSymbol(const Field& field, const std::string& name, Graph& graph) {
  OXBOW_RETURN_IF_ERROR(field.ExpectObject({"min", "max", "multiple"}));
  SymbolRange range;
  const auto read = [&](std::string_view key, int64_t& value) -> absl::Status {
    const std::optional<Field> bound = field.Find(key);
    if (!bound || bound->json().is_null()) return absl::OkStatus();
    OXBOW_ASSIGN_OR_RETURN(value, bound->Integer(1, kSizeMax));
    return absl::OkStatus();
  };
  OXBOW_RETURN_IF_ERROR(read("min", range.min));
  OXBOW_RETURN_IF_ERROR(read("max", range.max));
  OXBOW_RETURN_IF_ERROR(read("multiple", range.multiple));
  if (range.max != 0 && range.max < range.min) return field.Error("max is below min");
  graph.symbols[name] = range;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<at::ScalarType> ScalarTypeFrom(const Field& name) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, name.Text());
  for (const NamedType& known : kTypes) {
    if (known.name == text) return known.type;
  }
  return name.Error("unknown type: " + text);
}

absl::Status ReadSymbols(const Field& root, Graph& graph) {
  OXBOW_ASSIGN_OR_RETURN(const Field symbols, root.At("symbols"));
  if (!symbols.json().is_object() || symbols.size() > kSymbolsMax) {
    return symbols.Error(absl::StrCat("not an object of at most ", kSymbolsMax, " symbols"));
  }
  for (auto symbol = symbols.json().begin(); symbol != symbols.json().end(); ++symbol) {
    OXBOW_ASSIGN_OR_RETURN(const Field range, symbols.At(symbol.key()));
    OXBOW_RETURN_IF_ERROR(AddSymbol(range, symbol.key(), graph));
  }
  for (const char* needed : {"B", "H", "W"}) {
    if (!graph.velocity && needed != std::string_view("B")) continue;
    if (!graph.symbols.contains(needed)) return symbols.Error(absl::StrCat("no symbol ", needed));
  }
  return absl::OkStatus();
}

absl::Status ReadInputs(const Field& root, Graph& graph) {
  OXBOW_ASSIGN_OR_RETURN(const Field inputs, root.At("inputs"));
  OXBOW_RETURN_IF_ERROR(inputs.ExpectList(kInputsMax));
  std::set<std::string> names;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Field element = inputs.Element(i);
    OXBOW_ASSIGN_OR_RETURN(GraphInput input, InputFrom(element, graph));
    if (!names.insert(input.name).second) return element.Error("twice: " + input.name);
    graph.inputs.push_back(std::move(input));
  }
  return graph.velocity ? CheckGraphLatents(inputs, graph) : absl::OkStatus();
}

absl::Status ReadOutputs(const Field& root, Graph& graph) {
  if (graph.velocity) {
    OXBOW_ASSIGN_OR_RETURN(const Field output, root.At("output"));
    OXBOW_ASSIGN_OR_RETURN(const Slot slot, SlotFrom(output, graph));
    graph.outputs = {{.name = "v", .slot = slot}};
    return absl::OkStatus();
  }
  OXBOW_ASSIGN_OR_RETURN(const Field outputs, root.At("outputs"));
  OXBOW_RETURN_IF_ERROR(outputs.ExpectList(kGraphOutputsMax));
  if (outputs.size() == 0) return outputs.Error("there is none");
  std::set<std::string> names;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Field element = outputs.Element(i);
    OXBOW_RETURN_IF_ERROR(element.ExpectObject({"name", "slot"}));
    GraphOutput output;
    OXBOW_ASSIGN_OR_RETURN(const Field name, element.At("name"));
    OXBOW_ASSIGN_OR_RETURN(output.name, name.Text());
    OXBOW_ASSIGN_OR_RETURN(const Field slot, element.At("slot"));
    OXBOW_ASSIGN_OR_RETURN(output.slot, SlotFrom(slot, graph));
    if (!names.insert(output.name).second) return element.Error("twice: " + output.name);
    graph.outputs.push_back(std::move(output));
  }
  return absl::OkStatus();
}

absl::Status ReadParameters(const Field& root, Graph& graph) {
  OXBOW_ASSIGN_OR_RETURN(const Field parameters, root.At("parameters"));
  OXBOW_RETURN_IF_ERROR(parameters.ExpectList(kTensorsMax));
  std::set<std::string> names;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Field element = parameters.Element(i);
    OXBOW_ASSIGN_OR_RETURN(GraphParameter parameter, ParameterFrom(element, graph));
    if (!names.insert(parameter.name).second) return element.Error("twice: " + parameter.name);
    graph.parameters.push_back(std::move(parameter));
  }
  return absl::OkStatus();
}

absl::Status ReadConstants(const Field& root, Graph& graph) {
  const std::optional<Field> constants = root.Find("constants");
  if (!constants) return absl::OkStatus();
  OXBOW_RETURN_IF_ERROR(constants->ExpectList(kTensorsMax));
  for (size_t i = 0; i < constants->size(); ++i) {
    const Field field = constants->Element(i);
    OXBOW_RETURN_IF_ERROR(
        field.ExpectObject({"name", "slot", "dtype", "shape", "complex", "data"}));
    OXBOW_ASSIGN_OR_RETURN(const Field slot, field.At("slot"));
    GraphConstant constant;
    OXBOW_ASSIGN_OR_RETURN(constant.slot, SlotFrom(slot, graph));
    OXBOW_ASSIGN_OR_RETURN(constant.tensor, TensorFrom(field));
    graph.constants.push_back(std::move(constant));
  }
  return absl::OkStatus();
}

}  // namespace oxbow::model::exported
