// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/symbolic_call.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace oxbow::model::exported {
namespace {

using c10::IValue;
using Result = absl::StatusOr<IValue>;

enum class Kind : uint8_t { kAny, kTensor, kInteger, kBool };

// The type of an operation's result: one of its own, or the operands' common one.
enum class Made : uint8_t { kInteger, kReal, kBool, kCommon };

absl::Status TooLarge() { return absl::InvalidArgumentError("a number beyond 64 bits"); }

double Real(const IValue& value) {
  return value.isDouble() ? value.toDouble() : static_cast<double>(value.toInt());
}

// A whole number rounded down, as Python divides.
Result FloorDivide(int64_t a, int64_t b) {
  if (b == 0) return absl::InvalidArgumentError("a division by zero");
  if (a == std::numeric_limits<int64_t>::min() && b == -1) return TooLarge();
  const int64_t quotient = a / b;
  return IValue(a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient);
}

Result Modulo(int64_t a, int64_t b) {
  if (b == 0) return absl::InvalidArgumentError("a division by zero");
  if (b == -1) return IValue(int64_t{0});
  const int64_t rest = a % b;
  return IValue(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

Result Power(int64_t base, int64_t exponent) {
  if (exponent < 0) return absl::InvalidArgumentError("a negative power of a size");
  int64_t power = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(power, base, &power)) return TooLarge();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return TooLarge();
  }
  return IValue(power);
}

Result Whole(double value) {
  constexpr double kLimit = 9.2e18;
  if (!(std::abs(value) < kLimit)) return TooLarge();
  return IValue(static_cast<int64_t>(value));
}

bool BothWhole(const IValue& a, const IValue& b) { return a.isInt() && b.isInt(); }

Result Add(const IValue& a, const IValue& b) {
  if (!BothWhole(a, b)) return IValue(Real(a) + Real(b));
  int64_t sum = 0;
  return __builtin_add_overflow(a.toInt(), b.toInt(), &sum) ? Result(TooLarge()) : IValue(sum);
}

Result Subtract(const IValue& a, const IValue& b) {
  if (!BothWhole(a, b)) return IValue(Real(a) - Real(b));
  int64_t sum = 0;
  return __builtin_sub_overflow(a.toInt(), b.toInt(), &sum) ? Result(TooLarge()) : IValue(sum);
}

Result Multiply(const IValue& a, const IValue& b) {
  if (!BothWhole(a, b)) return IValue(Real(a) * Real(b));
  int64_t product = 0;
  return __builtin_mul_overflow(a.toInt(), b.toInt(), &product) ? Result(TooLarge())
                                                                : IValue(product);
}

// Less than zero, zero or more, as a - b.
int Order(const IValue& a, const IValue& b) {
  if (BothWhole(a, b)) return a.toInt() < b.toInt() ? -1 : a.toInt() > b.toInt() ? 1 : 0;
  return Real(a) < Real(b) ? -1 : Real(a) > Real(b) ? 1 : 0;
}

Result SizeOf(const IValue& x, const IValue& dim) {
  const at::Tensor& tensor = x.toTensor();
  const int64_t at = dim.toInt() < 0 ? dim.toInt() + tensor.dim() : dim.toInt();
  if (at < 0 || at >= tensor.dim()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no dimension ", dim.toInt(), " of ", tensor.dim()));
  }
  return IValue(tensor.size(at));
}

struct Operation {
  std::string_view name;
  std::array<Kind, 3> operands;
  size_t count;
  Made made;
  Result (*run)(const IValue* operands);
};

constexpr Kind kAny = Kind::kAny, kTensor = Kind::kTensor, kWhole = Kind::kInteger,
               kFlag = Kind::kBool;
using In = const IValue*;

constexpr Operation kOperations[] = {
    {"size", {kTensor, kWhole}, 2, Made::kInteger, [](In o) { return SizeOf(o[0], o[1]); }},
    {"numel", {kTensor}, 1, Made::kInteger, [](In o) -> Result { return o[0].toTensor().numel(); }},
    {"add", {kAny, kAny}, 2, Made::kCommon, [](In o) { return Add(o[0], o[1]); }},
    {"sub", {kAny, kAny}, 2, Made::kCommon, [](In o) { return Subtract(o[0], o[1]); }},
    {"mul", {kAny, kAny}, 2, Made::kCommon, [](In o) { return Multiply(o[0], o[1]); }},
    {"neg", {kAny}, 1, Made::kCommon, [](In o) { return Subtract(int64_t{0}, o[0]); }},
    {"min",
     {kAny, kAny},
     2,
     Made::kCommon,
     [](In o) -> Result { return Order(o[0], o[1]) <= 0 ? o[0] : o[1]; }},
    {"max",
     {kAny, kAny},
     2,
     Made::kCommon,
     [](In o) -> Result { return Order(o[0], o[1]) >= 0 ? o[0] : o[1]; }},
    {"floordiv",
     {kWhole, kWhole},
     2,
     Made::kInteger,
     [](In o) { return FloorDivide(o[0].toInt(), o[1].toInt()); }},
    {"mod",
     {kWhole, kWhole},
     2,
     Made::kInteger,
     [](In o) { return Modulo(o[0].toInt(), o[1].toInt()); }},
    {"pow",
     {kWhole, kWhole},
     2,
     Made::kInteger,
     [](In o) { return Power(o[0].toInt(), o[1].toInt()); }},
    {"truediv",
     {kAny, kAny},
     2,
     Made::kReal,
     [](In o) -> Result { return Real(o[0]) / Real(o[1]); }},
    {"float", {kAny}, 1, Made::kReal, [](In o) -> Result { return Real(o[0]); }},
    {"int",
     {kAny},
     1,
     Made::kInteger,
     [](In o) { return o[0].isInt() ? o[0] : Whole(Real(o[0])); }},
    {"eq", {kAny, kAny}, 2, Made::kBool, [](In o) -> Result { return Order(o[0], o[1]) == 0; }},
    {"ne", {kAny, kAny}, 2, Made::kBool, [](In o) -> Result { return Order(o[0], o[1]) != 0; }},
    {"lt", {kAny, kAny}, 2, Made::kBool, [](In o) -> Result { return Order(o[0], o[1]) < 0; }},
    {"le", {kAny, kAny}, 2, Made::kBool, [](In o) -> Result { return Order(o[0], o[1]) <= 0; }},
    {"gt", {kAny, kAny}, 2, Made::kBool, [](In o) -> Result { return Order(o[0], o[1]) > 0; }},
    {"ge", {kAny, kAny}, 2, Made::kBool, [](In o) -> Result { return Order(o[0], o[1]) >= 0; }},
    {"and",
     {kFlag, kFlag},
     2,
     Made::kBool,
     [](In o) -> Result { return o[0].toBool() && o[1].toBool(); }},
    {"or",
     {kFlag, kFlag},
     2,
     Made::kBool,
     [](In o) -> Result { return o[0].toBool() || o[1].toBool(); }},
    {"not", {kFlag}, 1, Made::kBool, [](In o) -> Result { return !o[0].toBool(); }},
    {"ite",
     {kFlag, kAny, kAny},
     3,
     Made::kCommon,
     [](In o) -> Result { return o[0].toBool() ? o[1] : o[2]; }},
};

// The names of an operation's operands, in order.
std::vector<std::string_view> OperandNames(const Operation& operation) {
  if (operation.operands[0] == kTensor) return {"x", "dim"};
  if (operation.count == 3) return {"cond", "a", "b"};
  return {"a", "b"};
}

bool ShapeFits(SlotType type, Kind kind) {
  switch (kind) {
    case Kind::kTensor:
      return type == SlotType::kTensor;
    case Kind::kInteger:
      return type == SlotType::kInteger;
    case Kind::kBool:
      return type == SlotType::kBool;
    case Kind::kAny:
      return type == SlotType::kInteger || type == SlotType::kReal;
  }
  return false;
}

struct TypedOperand {
  IValue literal;
  Slot slot = kNoSlot;
  SlotType type = SlotType::kNone;
};

TypedOperand OperandOf(const Value& value, const std::vector<SlotType>& types) {
  if (const auto* ref = std::get_if<SlotRef>(&value.is)) {
    return {.slot = ref->slot, .type = types[static_cast<size_t>(ref->slot)]};
  }
  if (const auto* whole = std::get_if<int64_t>(&value.is)) {
    return {.literal = *whole, .type = SlotType::kInteger};
  }
  if (const auto* real = std::get_if<double>(&value.is)) {
    return {.literal = *real, .type = SlotType::kReal};
  }
  if (const auto* flag = std::get_if<bool>(&value.is)) {
    return {.literal = *flag, .type = SlotType::kBool};
  }
  return {};
}

SlotType TypeMade(Made made, bool all_whole) {
  switch (made) {
    case Made::kInteger:
      return SlotType::kInteger;
    case Made::kReal:
      return SlotType::kReal;
    case Made::kBool:
      return SlotType::kBool;
    case Made::kCommon:
      return all_whole ? SlotType::kInteger : SlotType::kReal;
  }
  return SlotType::kNone;
}

}  // namespace

absl::StatusOr<SymbolicCall> SymbolicCall::Resolve(const GraphNode& node,
                                                   std::vector<SlotType>& types) {
  const auto* operation =
      std::find_if(std::begin(kOperations), std::end(kOperations), [&](const Operation& known) {
        return node.overload.empty() && node.op == kSymbolicPrefix + std::string(known.name);
      });
  if (operation == std::end(kOperations)) {
    return absl::InvalidArgumentError("an operator that is not allowed: " + node.op);
  }
  SymbolicCall call;
  call.operation_ = static_cast<size_t>(operation - std::begin(kOperations));
  if (node.arguments.size() != operation->count) {
    return absl::InvalidArgumentError(absl::StrCat("not ", operation->count, " arguments"));
  }
  bool all_whole = true;
  for (size_t i = 0; i < operation->count; ++i) {
    const std::string_view name = OperandNames(*operation)[i];
    const auto given = std::find_if(node.arguments.begin(), node.arguments.end(),
                                    [&](const auto& named) { return named.first == name; });
    const TypedOperand operand =
        given == node.arguments.end() ? TypedOperand{} : OperandOf(given->second, types);
    if (!ShapeFits(operand.type, operation->operands[i])) {
      return absl::InvalidArgumentError(
          absl::StrCat("not what it takes: argument ", std::string(name)));
    }
    if (operation->operands[i] == kAny) {
      all_whole = all_whole && operand.type == SlotType::kInteger;
    }
    call.operands_.push_back({operand.literal, operand.slot});
  }
  if (node.list || node.outputs[0] == kNoSlot) {
    return absl::InvalidArgumentError("out: not one slot");
  }
  call.output_ = node.outputs[0];
  const SlotType made = TypeMade(operation->made, all_whole);
  call.real_ = made == SlotType::kReal;
  types[static_cast<size_t>(call.output_)] = made;
  return call;
}

void SymbolicCall::Bind(const SlotValues& fixed) {
  for (Operand& operand : operands_) {
    if (operand.slot == kNoSlot || fixed[static_cast<size_t>(operand.slot)].isNone()) continue;
    operand = {fixed[static_cast<size_t>(operand.slot)], kNoSlot};
  }
}

absl::Status SymbolicCall::Run(SlotValues& values) const {
  std::array<IValue, 3> operands;
  for (size_t i = 0; i < operands_.size(); ++i) operands[i] = operands_[i].In(values);
  OXBOW_ASSIGN_OR_RETURN(IValue result, kOperations[operation_].run(operands.data()));
  // Either of a whole and a real number may be the larger.
  if (real_ && result.isInt()) result = Real(result);
  values[static_cast<size_t>(output_)] = std::move(result);
  return absl::OkStatus();
}

}  // namespace oxbow::model::exported
