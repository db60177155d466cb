// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/operator_call.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/exported_graph/operators.h"
#include "core/model/exported_graph/patch_convolution.h"
#include "core/model/exported_graph/rms_norm.h"
#include "core/model/exported_graph/shape_stand_ins.h"
#include "core/model/fused/gelu.h"

namespace oxbow::model::exported {
namespace {

// aten::gelu with its arguments on the stack, if it is the one with tanh.
bool ApproximateGelu(torch::jit::Stack& stack) {
  if (stack[1].toStringRef() != "tanh") return false;
  stack.assign({fused::GeluTanh(stack[0].toTensor())});
  return true;
}

using c10::IValue;
using c10::TypeKind;
using c10::TypePtr;

absl::Status Mismatch(const TypePtr& type) {
  return absl::InvalidArgumentError("not a " + type->str());
}

TypePtr WithoutOptional(const TypePtr& type) {
  return type->kind() == TypeKind::OptionalType
             ? type->castRaw<c10::OptionalType>()->getElementType()
             : type;
}

bool IsInteger(const TypePtr& type) {
  return type->kind() == TypeKind::IntType || type->kind() == TypeKind::SymIntType;
}

bool IsTensor(const TypePtr& type) { return type->kind() == TypeKind::TensorType; }

// Whether a slot of `from` fits an argument of `to`.
bool Fits(SlotType from, const TypePtr& to) {
  switch (to->kind()) {
    case TypeKind::TensorType:
    case TypeKind::NumberType:
      return to->kind() == TypeKind::TensorType || from != SlotType::kTensor;
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return from == SlotType::kInteger;
    case TypeKind::FloatType:
      return from == SlotType::kReal;
    case TypeKind::BoolType:
      return from == SlotType::kBool;
    default:
      return false;
  }
}

bool IsNumber(const Value& value) {
  return std::holds_alternative<bool>(value.is) || std::holds_alternative<int64_t>(value.is) ||
         std::holds_alternative<double>(value.is);
}

IValue NumberOf(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value.is)) return *flag;
  if (const auto* whole = std::get_if<int64_t>(&value.is)) return *whole;
  return std::get<double>(value.is);
}

// A value that needs no slot and is no list.
absl::StatusOr<IValue> Literal(const Value& value, const TypePtr& type) {
  const bool number = IsNumber(value);
  switch (type->kind()) {
    case TypeKind::TensorType:
      if (number) return IValue(NumberTensor(NumberOf(value)));
      break;
    case TypeKind::NumberType:
      if (number) return NumberOf(value);
      break;
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      if (const auto* whole = std::get_if<int64_t>(&value.is)) return IValue(*whole);
      break;
    case TypeKind::FloatType:
      if (const auto* real = std::get_if<double>(&value.is)) return IValue(*real);
      if (const auto* whole = std::get_if<int64_t>(&value.is)) {
        return IValue(static_cast<double>(*whole));
      }
      break;
    case TypeKind::BoolType:
      if (const auto* flag = std::get_if<bool>(&value.is)) return IValue(*flag);
      break;
    case TypeKind::StringType:
      if (const auto* text = std::get_if<std::string>(&value.is)) return IValue(*text);
      break;
    case TypeKind::ScalarTypeType:
      if (const auto* dtype = std::get_if<at::ScalarType>(&value.is)) return IValue(*dtype);
      break;
    case TypeKind::LayoutType:
      if (const auto* layout = std::get_if<at::Layout>(&value.is)) return IValue(*layout);
      break;
    case TypeKind::MemoryFormatType:
      if (const auto* format = std::get_if<at::MemoryFormat>(&value.is)) return IValue(*format);
      break;
    default:
      break;
  }
  return Mismatch(type);
}

// A list of numbers without slots.
absl::StatusOr<IValue> NumberList(const std::vector<IValue>& elements, const TypePtr& element) {
  if (element->kind() == TypeKind::FloatType) {
    c10::List<double> list;
    for (const IValue& value : elements) list.push_back(value.toDouble());
    return IValue(list);
  }
  if (element->kind() == TypeKind::BoolType) {
    c10::List<bool> list;
    for (const IValue& value : elements) list.push_back(value.toBool());
    return IValue(list);
  }
  return Mismatch(element);
}

}  // namespace

at::Tensor NumberTensor(const IValue& number) {
  at::Tensor tensor = at::scalar_tensor(number.toScalar(), number.isBool()  ? at::kBool
                                                           : number.isInt() ? at::kLong
                                                                            : at::kDouble);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

absl::StatusOr<OperatorCall> OperatorCall::Resolve(const GraphNode& node,
                                                   std::vector<SlotType>& types) {
  OXBOW_ASSIGN_OR_RETURN(const OperatorName name, AllowedOperator(node.op, node.overload));
  const auto found =
      c10::Dispatcher::singleton().findSchema({name.name.c_str(), name.overload.c_str()});
  if (!found) {
    return absl::InvalidArgumentError("this LibTorch has no such operator: " + name.name);
  }
  OperatorCall call(*found);
  call.autocast_ = node.autocast;
  call.convolution_ = IsConvolution(name.name, name.overload);
  call.norm_ = name.name == "aten::rms_norm";
  call.gelu_ = name.name == "aten::gelu";
  OXBOW_RETURN_IF_ERROR(call.Arguments(node, types));
  OXBOW_RETURN_IF_ERROR(call.Aliases(node, MayReturnItsArgument(name)));
  OXBOW_RETURN_IF_ERROR(call.Outputs(node, types));
  return call;
}

absl::Status OperatorCall::Arguments(const GraphNode& node, const std::vector<SlotType>& types) {
  const std::vector<c10::Argument>& schema = op_.schema().arguments();
  for (const auto& [name, value] : node.arguments) {
    if (std::none_of(schema.begin(), schema.end(),
                     [&](const c10::Argument& argument) { return argument.name() == name; })) {
      return absl::InvalidArgumentError("no such argument: " + name);
    }
  }
  const bool factory =
      std::none_of(schema.begin(), schema.end(),
                   [](const c10::Argument& argument) { return IsTensor(argument.type()); });
  arguments_.resize(schema.size());
  for (size_t i = 0; i < schema.size(); ++i) {
    const c10::Argument& argument = schema[i];
    const auto given =
        std::find_if(node.arguments.begin(), node.arguments.end(),
                     [&](const auto& named) { return named.first == argument.name(); });
    if (given != node.arguments.end()) {
      auto filled = Filled(i, given->second, types);
      if (!filled.ok()) return Annotate(filled.status(), "argument " + argument.name());
      arguments_[i] = *std::move(filled);
    } else if (argument.default_value().has_value()) {
      arguments_[i] = *argument.default_value();
    } else {
      return absl::InvalidArgumentError("no argument " + argument.name());
    }
    if (factory && argument.name() == "device") devices_.push_back(i);
  }
  return absl::OkStatus();
}

absl::StatusOr<IValue> OperatorCall::Filled(size_t index, const Value& value,
                                            const std::vector<SlotType>& types) {
  const c10::Argument& argument = op_.schema().arguments()[index];
  const TypePtr type = WithoutOptional(argument.real_type());
  if (std::holds_alternative<std::monostate>(value.is)) {
    if (type == argument.real_type()) return Mismatch(type);
    return IValue();
  }
  if (std::holds_alternative<ModelDevice>(value.is)) {
    if (type->kind() != TypeKind::DeviceObjType) return Mismatch(type);
    devices_.push_back(index);
    return IValue(at::Device(at::kCPU));
  }
  if (argument.name() == "pin_memory" &&
      (!std::holds_alternative<bool>(value.is) || std::get<bool>(value.is))) {
    return absl::InvalidArgumentError("memory is not pinned");
  }
  if (const auto* ref = std::get_if<SlotRef>(&value.is)) {
    const SlotType from = types[static_cast<size_t>(ref->slot)];
    if (!Fits(from, type)) return Mismatch(type);
    fills_.push_back({index, ref->slot, IsTensor(type) && from != SlotType::kTensor});
    return IValue();
  }
  if (type->kind() != TypeKind::ListType) return Literal(value, type);
  const TypePtr element = type->castRaw<c10::ListType>()->getElementType();
  if (const auto* list = std::get_if<Value::List>(&value.is)) {
    return FilledList(index, *list, element, types);
  }
  // One number for a list of known length.
  if (!argument.N().has_value()) return Mismatch(type);
  return FilledList(index, Value::List(static_cast<size_t>(*argument.N()), value), element, types);
}

absl::StatusOr<IValue> OperatorCall::FilledList(size_t index, const Value::List& list,
                                                TypePtr element,
                                                const std::vector<SlotType>& types) {
  const TypePtr type = WithoutOptional(element);
  const bool optional = type != element;
  std::vector<ListElement> elements;
  bool any_slot = false;
  for (const Value& value : list) {
    ListElement& made = elements.emplace_back();
    if (optional && std::holds_alternative<std::monostate>(value.is)) continue;
    if (const auto* ref = std::get_if<SlotRef>(&value.is)) {
      // Lists of tensors hold no numbers.
      const SlotType from = types[static_cast<size_t>(ref->slot)];
      if (!Fits(from, type) || (IsTensor(type) && from != SlotType::kTensor)) return Mismatch(type);
      made.slot = ref->slot;
      any_slot = true;
      continue;
    }
    if (IsTensor(type)) return Mismatch(type);
    OXBOW_ASSIGN_OR_RETURN(made.literal, Literal(value, type));
  }
  if (!IsInteger(type) && !IsTensor(type)) {
    if (any_slot) return Mismatch(type);
    std::vector<IValue> numbers;
    for (ListElement& made : elements) numbers.push_back(std::move(made.literal));
    return NumberList(numbers, type);
  }
  ListFill fill{.argument = index,
                .kind = IsInteger(type) ? ListKind::kIntegers
                        : optional      ? ListKind::kOptionalTensors
                                        : ListKind::kTensors,
                .elements = std::move(elements)};
  if (!any_slot) return Listed(fill, {});
  list_fills_.push_back(std::move(fill));
  return IValue();
}

absl::Status OperatorCall::Aliases(const GraphNode& node, bool any) {
  const std::vector<c10::Argument>& schema = op_.schema().arguments();
  const auto slot_of = [&](const std::string& name) {
    for (const auto& [given, value] : node.arguments) {
      const auto* ref = std::get_if<SlotRef>(&value.is);
      if (given == name && ref != nullptr) return ref->slot;
    }
    return kNoSlot;
  };
  for (const c10::Argument& argument : schema) {
    const c10::AliasInfo* alias = argument.alias_info();
    if (alias != nullptr && alias->isWrite()) {
      if (written_ != kNoSlot || slot_of(argument.name()) == kNoSlot) {
        return absl::InvalidArgumentError("does not write one value in place");
      }
      written_ = slot_of(argument.name());
    }
    if (alias == nullptr && !any) continue;
    if (const Slot slot = slot_of(argument.name()); slot != kNoSlot) aliased_.push_back(slot);
  }
  if (!any) return absl::OkStatus();
  for (const ListFill& fill : list_fills_) {
    for (const ListElement& element : fill.elements) {
      if (element.slot != kNoSlot) aliased_.push_back(element.slot);
    }
  }
  return absl::OkStatus();
}

absl::Status OperatorCall::Outputs(const GraphNode& node, std::vector<SlotType>& types) {
  const std::vector<c10::Argument>& returns = op_.schema().returns();
  list_ = returns.size() == 1 && returns[0].type()->kind() == TypeKind::ListType;
  if (list_ != (node.list && returns.size() == 1) ||
      (!list_ && node.outputs.size() != returns.size())) {
    return absl::InvalidArgumentError("out: not one slot per result");
  }
  outputs_ = node.outputs;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const TypePtr type =
        list_ ? returns[0].type()->castRaw<c10::ListType>()->getElementType() : returns[i].type();
    if (!IsTensor(type)) return absl::InvalidArgumentError("a result is not a tensor");
    if (outputs_[i] != kNoSlot) types[static_cast<size_t>(outputs_[i])] = SlotType::kTensor;
  }
  return absl::OkStatus();
}

void OperatorCall::Bind(const SlotValues& fixed, at::Device device) {
  for (const size_t index : devices_) arguments_[index] = device;
  std::erase_if(fills_, [&](const Fill& fill) {
    const IValue& value = fixed[static_cast<size_t>(fill.slot)];
    if (value.isNone()) return false;
    arguments_[fill.argument] = value;
    return true;
  });
  std::erase_if(list_fills_, [&](ListFill& fill) {
    bool open = false;
    for (ListElement& element : fill.elements) {
      if (element.slot == kNoSlot) continue;
      const IValue& value = fixed[static_cast<size_t>(element.slot)];
      if (value.isNone()) {
        open = true;
      } else {
        element = {.literal = value};
      }
    }
    if (!open) arguments_[fill.argument] = Listed(fill, fixed);
    return !open;
  });
  if (convolution_) packed_ = PackedConvolution::Of(arguments_);
}

IValue OperatorCall::Listed(const ListFill& fill, const SlotValues& values) {
  const auto value = [&](const ListElement& element) -> const IValue& {
    return element.slot == kNoSlot ? element.literal : values[static_cast<size_t>(element.slot)];
  };
  switch (fill.kind) {
    case ListKind::kIntegers: {
      c10::List<int64_t> list;
      list.reserve(fill.elements.size());
      for (const ListElement& element : fill.elements) list.push_back(value(element).toInt());
      return list;
    }
    case ListKind::kTensors: {
      c10::List<at::Tensor> list;
      list.reserve(fill.elements.size());
      for (const ListElement& element : fill.elements) list.push_back(value(element).toTensor());
      return list;
    }
    case ListKind::kOptionalTensors:
      break;
  }
  c10::List<std::optional<at::Tensor>> list;
  for (const ListElement& element : fill.elements) {
    list.push_back(value(element).toOptional<at::Tensor>());
  }
  return list;
}

torch::jit::Stack OperatorCall::Filled(const SlotValues& values) const {
  torch::jit::Stack stack = arguments_;
  for (const Fill& fill : fills_) {
    const IValue& value = values[static_cast<size_t>(fill.slot)];
    stack[fill.argument] = fill.as_tensor ? IValue(NumberTensor(value)) : value;
  }
  for (const ListFill& fill : list_fills_) stack[fill.argument] = Listed(fill, values);
  return stack;
}

void OperatorCall::Run(SlotValues& values) const {
  torch::jit::Stack stack = Filled(values);
  try {
    if (packed_.has_value()) {
      stack.assign({(*packed_)(stack[0].toTensor())});
    } else if ((norm_ && NormalizeRms(stack)) || (gelu_ && ApproximateGelu(stack))) {
      // Done.
    } else if (!convolution_ || !ConvolvePatches(stack)) {
      op_.callBoxed(stack);
    }
  } catch (const c10::NotImplementedError&) {
    stack = Filled(values);
    if (!stack[0].isTensor() || !stack[0].toTensor().is_meta()) throw;
    if (!StandIn(op_.schema().name(), stack)) throw;
  }
  if (!list_) {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs_[i] != kNoSlot) values[static_cast<size_t>(outputs_[i])] = std::move(stack[i]);
    }
    return;
  }
  const c10::List<at::Tensor> list = stack[0].toTensorList();
  TORCH_CHECK(list.size() == outputs_.size(), "results: ", list.size(), " instead of ",
              outputs_.size());
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i] != kNoSlot) {
      values[static_cast<size_t>(outputs_[i])] = IValue(list.get(i));
    }
  }
}

}  // namespace oxbow::model::exported
