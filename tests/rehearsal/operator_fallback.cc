// SPDX-License-Identifier: Apache-2.0
// Every operator that has no kernel of its own here: CPU LibTorch's kernel runs on the kernel side
// of the device's memory, and counts as one kernel of the device.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/rehearsal/device_log.h"
#include "tests/rehearsal/device_memory.h"
#include "tests/rehearsal/floating_point_operations.h"
#include "tests/rehearsal/kernel_view.h"
#include "tests/rehearsal/launch.h"
#include "tests/rehearsal/settings.h"

namespace oxbow::rehearsal {
namespace {

using c10::IValue;
using c10::OperatorHandle;
using torch::jit::Stack;
using Replace = std::function<at::Tensor(const at::Tensor&)>;

// Results have as many elements as the values say: the host waits, on CUDA as well.
const std::set<std::string> kShapedByValues = {
    "aten::nonzero",           "aten::masked_select",      "aten::_unique2",
    "aten::unique_dim",        "aten::unique_consecutive", "aten::bincount",
    "aten::repeat_interleave", "aten::nonzero.out",        "aten::masked_select.out"};

// The argument with every tensor in it replaced, and a device by the tensors'.
IValue Replaced(const IValue& value, const Replace& replace, at::Device device) {
  if (value.isTensor()) return replace(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(replace(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional(replace(*tensor)) : std::nullopt);
    }
    return list;
  }
  if (value.isDevice()) return device;
  return value;
}

void ForEachTensor(const IValue& value, const std::function<void(const at::Tensor&)>& see) {
  (void)Replaced(
      value,
      [&](const at::Tensor& tensor) {
        if (tensor.defined()) see(tensor);
        return tensor;
      },
      at::kCPU);
}

// One call of an operator.
class Call {
 public:
  Call(const OperatorHandle& op, Stack& stack)
      : op_(op),
        schema_(op.schema()),
        name_(schema_.name() +
              (schema_.overload_name().empty() ? "" : "." + schema_.overload_name())),
        stack_(stack),
        arguments_(torch::jit::last(stack, schema_.arguments().size()).vec()) {
    FindDevice();
    GiveGenerator();
  }

  void Run() {
    if (IsView()) return Return(OnMetaTensors());
    if (WaitsForValues()) return ReadByTheHost();
    if (LaunchesAreDeferred()) return Deferred();
    RunNow();
  }

 private:
  void FindDevice();
  void GiveGenerator();
  bool IsView() const;
  bool IsUnsized(size_t argument) const;
  Stack ArgumentsOn(at::Device device, const Replace& replace) const;
  void TakeSizes(const Stack& arguments);
  bool WaitsForValues() const;
  void ReadByTheHost();
  void RunNow();
  void Deferred();
  Stack OnMetaTensors();
  bool FindShapes(Stack& stack) const;
  Stack OnZeros();
  at::Tensor Adopted(const at::Tensor& made) const;
  Launch LaunchOf(const Stack& results) const;
  std::optional<size_t> WrittenArgument(size_t result) const;
  Stack ResultsOf(const Stack& raw, const Replace& adopt) const;
  void Return(Stack results) {
    torch::jit::drop(stack_, arguments_.size());
    for (IValue& result : results) stack_.push_back(std::move(result));
  }

  const OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  const std::string name_;
  Stack& stack_;
  std::vector<IValue> arguments_;
  at::Device device_ = at::kCPU;
};

// CUDA takes numbers of the CPU beside tensors of one GPU, and nothing else.
void Call::FindDevice() {
  std::optional<at::Device> device, asked;
  std::optional<at::Device> host;
  for (const IValue& argument : arguments_) {
    if (argument.isDevice()) asked = argument.toDevice();
    ForEachTensor(argument, [&](const at::Tensor& tensor) {
      if (!tensor.is_cuda()) {
        if (tensor.dim() > 0) host = tensor.device();
      } else if (!device) {
        device = tensor.device();
      } else if (*device != tensor.device()) {
        RefuseTwoDevices(name_, *device, tensor.device());
      }
    });
  }
  if (device && host) RefuseTwoDevices(name_, *device, *host);
  device_ = device.value_or(asked.value_or(CurrentDevice()));
}

// Draws on a device take its own numbers.
void Call::GiveGenerator() {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const auto optional = schema_.arguments()[i].type()->cast<c10::OptionalType>();
    if (optional && optional->getElementType()->kind() == c10::TypeKind::GeneratorType &&
        arguments_[i].isNone()) {
      arguments_[i] = at::globalContext().defaultGenerator(device_);
    }
  }
}

bool Call::IsView() const {
  const auto& returns = schema_.returns();
  return !returns.empty() && returns[0].alias_info() != nullptr &&
         !returns[0].alias_info()->isWrite();
}

bool Call::WaitsForValues() const {
  if (kShapedByValues.contains(name_)) return true;
  for (const c10::Argument& result : schema_.returns()) {
    const auto kind = result.type()->kind();
    if (kind != c10::TypeKind::TensorType && kind != c10::TypeKind::ListType) return true;
  }
  return false;
}

// The argument that a result is, if the operator writes it in place.
std::optional<size_t> Call::WrittenArgument(size_t result) const {
  const auto* const alias = schema_.returns()[result].alias_info();
  if (alias == nullptr || !alias->isWrite()) return std::nullopt;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const auto* const other = schema_.arguments()[i].alias_info();
    if (other != nullptr && other->beforeSets() == alias->beforeSets()) return i;
  }
  return std::nullopt;
}

Stack Call::ResultsOf(const Stack& raw, const Replace& adopt) const {
  Stack results;
  for (size_t i = 0; i < raw.size(); ++i) {
    const auto written = WrittenArgument(i);
    results.push_back(written ? arguments_[*written] : Replaced(raw[i], adopt, device_));
  }
  return results;
}

Launch Call::LaunchOf(const Stack& results) const {
  Launch launch{.name = name_, .reads = {}, .writes = {}};
  const auto collect = [](std::vector<at::Tensor>& to) {
    return [&to](const at::Tensor& tensor) {
      if (tensor.is_cuda()) to.push_back(tensor);
    };
  };
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const auto* const alias = schema_.arguments()[i].alias_info();
    // The former content of `out` is not read.
    if (alias != nullptr && schema_.arguments()[i].is_out()) continue;
    ForEachTensor(arguments_[i], collect(launch.reads));
  }
  for (const IValue& result : results) ForEachTensor(result, collect(launch.writes));
  launch.flop = FlopOf(name_, launch.reads, launch.writes);
  return launch;
}

// A fresh device tensor with the values of a CPU's, or the view that a CPU kernel made of one.
at::Tensor Call::Adopted(const at::Tensor& made) const {
  if (!made.defined()) return made;
  at::Tensor whole;
  for (const IValue& argument : arguments_) {
    ForEachTensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.is_cuda() && made.storage().data() != nullptr &&
          tensor.storage().data() != nullptr &&
          DeviceMemory::Of(tensor.device().index()).KernelSide(tensor.storage().data()) ==
              made.storage().data()) {
        whole = tensor;
      }
    });
  }
  if (whole.defined()) return ViewOf(whole, made, made.storage_offset());
  at::Tensor adopted = EmptyLike(made, device_);
  KernelView(adopted).Tensor().copy_(made);
  return adopted;
}

void CallOnCpu(const OperatorHandle& op, Stack& stack) {
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
}

at::Tensor KernelTensor(const at::Tensor& tensor) {
  return IsOnDevice(tensor) ? KernelView(tensor).Tensor() : tensor;
}

// A result whose size the operator is to find.
bool Call::IsUnsized(size_t argument) const {
  return schema_.arguments()[argument].is_out() && arguments_[argument].isTensor() &&
         arguments_[argument].toTensor().numel() == 0;
}

// The arguments of a kernel, or of the finding of shapes.
Stack Call::ArgumentsOn(at::Device device, const Replace& replace) const {
  Stack stack;
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const auto unsized = [&](const at::Tensor& tensor) {
      return at::empty({0}, at::TensorOptions(device).dtype(tensor.dtype()));
    };
    stack.push_back(Replaced(arguments_[i], IsUnsized(i) ? Replace(unsized) : replace, device));
  }
  return stack;
}

// Gives the device's unsized results the sizes that the operator found.
void Call::TakeSizes(const Stack& arguments) {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (!IsUnsized(i)) continue;
    const at::Tensor& found = arguments[i].toTensor();
    arguments_[i].toTensor().resize_(found.sizes());
    if (found.is_cpu() && !LaunchesAreDeferred()) {
      KernelTensor(arguments_[i].toTensor()).copy_(found);
    }
  }
}

void Call::RunNow() {
  const Stack arguments = ArgumentsOn(at::kCPU, KernelTensor);
  Stack stack = arguments, results;
  {
    const KernelScope scope;
    CallOnCpu(op_, stack);
    TakeSizes(arguments);
    results = ResultsOf(stack, [&](const at::Tensor& made) { return Adopted(made); });
  }
  Count(LaunchOf(results));
  Return(std::move(results));
}

void Call::ReadByTheHost() {
  TheLog().Moved(device_.index(), Transfer::kValue, 8, /*waits=*/true);
  if (TheSettings().mode == Mode::kDry) {
    Stack results;
    for (const c10::Argument& result : schema_.returns()) {
      TORCH_CHECK(result.type()->kind() == c10::TypeKind::BoolType, name_,
                  ": a dry device has no values");
      results.emplace_back(true);
    }
    return Return(std::move(results));
  }
  Synchronize(CurrentStream(device_.index()));
  RunNow();
}

// Runs the operator on meta tensors; false if it has no kernel for them.
bool Call::FindShapes(Stack& stack) const {
  static std::mutex mutex;
  static auto* const without = new std::set<std::string>;
  {
    const std::scoped_lock lock(mutex);
    if (without->contains(name_)) return false;
  }
  try {
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
    return true;
  } catch (const c10::NotImplementedError&) {
    const std::scoped_lock lock(mutex);
    without->insert(name_);
    return false;
  }
}

// Shapes of what the operator makes of zeros: for those that have no kernel for meta tensors.
Stack Call::OnZeros() {
  const Stack arguments = ArgumentsOn(at::kCPU, [](const at::Tensor& tensor) {
    if (!IsOnDevice(tensor)) return tensor;
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.scalar_type()).zero_();
  });
  Stack stack = arguments;
  CallOnCpu(op_, stack);
  TakeSizes(arguments);
  return ResultsOf(stack, [&](const at::Tensor& shaped) {
    return shaped.defined() ? EmptyLike(shaped, device_) : shaped;
  });
}

// The operator's results for meta tensors. Views are views of the device's tensors.
Stack Call::OnMetaTensors() {
  std::vector<std::pair<at::Tensor, at::Tensor>> metas;  // Shapes of device tensors.
  const Stack arguments = ArgumentsOn(at::kMeta, [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    metas.emplace_back(OnMeta(tensor), tensor);
    return metas.back().first;
  });
  Stack stack = arguments;
  const KernelScope scope;
  if (!FindShapes(stack)) return OnZeros();
  TakeSizes(arguments);
  return ResultsOf(stack, [&](const at::Tensor& shaped) {
    if (!shaped.defined()) return shaped;
    for (const auto& [meta, tensor] : metas) {
      if (shaped.is_alias_of(meta)) {
        return ViewOf(tensor, shaped, tensor.storage_offset() + shaped.storage_offset());
      }
    }
    return EmptyLike(shaped, device_);
  });
}

// A deferred kernel's argument: a view of the device's tensor, or a number as it is now.
at::Tensor Frozen(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.is_cuda() ? KernelTensor(tensor) : tensor.clone();
}

void Call::Deferred() {
  Stack results = OnMetaTensors();
  const Launch launch = LaunchOf(results);
  if (TheSettings().mode == Mode::kDry) {
    Count(launch);
    return Return(std::move(results));
  }
  Stack frozen;
  for (const IValue& argument : arguments_) frozen.push_back(Replaced(argument, Frozen, at::kCPU));
  std::vector<std::vector<at::Tensor>> made(results.size());  // On the kernel side, if fresh.
  for (size_t i = 0; i < results.size(); ++i) {
    if (WrittenArgument(i)) continue;
    ForEachTensor(results[i],
                  [&](const at::Tensor& tensor) { made[i].push_back(KernelTensor(tensor)); });
  }
  rehearsal::Run(launch, [op = op_, frozen = std::move(frozen), made = std::move(made)] {
    Stack stack = frozen;
    CallOnCpu(op, stack);
    for (size_t i = 0; i < made.size(); ++i) {
      size_t next = 0;
      if (made[i].empty()) continue;
      ForEachTensor(stack[i], [&](const at::Tensor& result) { made[i][next++].copy_(result); });
    }
  });
  Return(std::move(results));
}

void RunOperator(const OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  try {
    Call(op, *stack).Run();
  } catch (c10::Error& error) {
    error.add_context(c10::str("in ", op.operator_name(), " on the rehearsal device"));
    throw;
  }
}

// Operators that CUDA has a kernel for, and that would be taken apart into others here.
constexpr const char* kOneKernel[] = {"addr", "addr.out", "native_group_norm", "_chunk_cat",
                                      "split_with_sizes_copy.out"};

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&RunOperator>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  for (const char* name : kOneKernel) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&RunOperator>());
  }
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (!name.name.starts_with("aten::_foreach_") || name.overload_name.ends_with("out")) continue;
    const std::string full = name.name.substr(6);
    library.impl((name.overload_name.empty() ? full : full + "." + name.overload_name).c_str(),
                 torch::CppFunction::makeFromBoxedFunction<&RunOperator>());
  }
}

}  // namespace
}  // namespace oxbow::rehearsal
