// SPDX-License-Identifier: Apache-2.0
#include "core/model/policy.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "core/model/binding.h"
#include "core/model/int8_weights.h"
#include "core/model/offloaded_weights.h"
#include "core/model/side_by_side.h"

namespace oxbow::model {
namespace {

constexpr int64_t kExchangedAtOnce = int64_t{1} << 24;  // Elements.

NamedTensors Merged(const NamedTensors& a, const NamedTensors& b) {
  NamedTensors all = a;
  all.insert(b.begin(), b.end());
  return all;
}

std::vector<at::Tensor> Handles(const NamedTensors& tensors) {
  std::vector<at::Tensor> handles;
  for (const auto& [name, tensor] : tensors) handles.push_back(tensor);
  return handles;
}

// Gives each tensor of `base` away, so that a model is not in memory twice.
ReadTensor Emptying(NamedTensors& base) {
  return [&base](const std::string& name) -> absl::StatusOr<at::Tensor> {
    return std::move(base.extract(name).mapped());
  };
}

// A tensor of `read`, of the shape that `name` has.
absl::StatusOr<at::Tensor> ReadOne(const ReadTensor& read, const Shapes& shapes,
                                   const std::string& name) {
  OXBOW_ASSIGN_OR_RETURN(at::Tensor tensor, read(name));
  OXBOW_RETURN_IF_ERROR(CheckFit(Shapes{{name, shapes.at(name)}}, NamedTensors{{name, tensor}}));
  return tensor.detach();
}

std::set<std::string> Int8Of(const Policy::Options& options) {
  const bool int8 = options.base_weights == BaseWeights::kInt8;
  OXBOW_CHECK(!int8 || (options.trained == Trained::kLora && !options.merged))
      << "int8 weights neither train nor change";
  return int8 ? Int8Names(*options.architecture) : std::set<std::string>();
}

}  // namespace

at::ScalarType FrozenType(const Architecture& architecture, at::ScalarType compute,
                          const std::string& name) {
  return architecture.float32().contains(name) ? at::kFloat : compute;
}

NetworkBinder::NetworkBinder(const PolicyOptions& options)
    : architecture_(options.architecture),
      trained_(options.trained),
      lora_scale_(options.lora.alpha / static_cast<double>(options.lora.rank)),
      execution_{.compute = options.compute,
                 .checkpoint_activations = options.checkpoint_activations,
                 .inputs_on_host = options.inputs_on_host,
                 .embedded_guidance = options.embedded_guidance},
      device_(options.device),
      graphs_(options.graphs),
      guidance_(options.guidance),
      negative_(MovedTo(options.negative, options.device)),
      guided_apart_(options.guided_apart),
      whole_timesteps_(options.whole_timesteps),
      rows_per_forward_(options.rows_per_forward) {
  if (!options.weights_on_host) return;
  OXBOW_CHECK(execution_.checkpoint_activations && graphs_ == nullptr &&
              (lora() ? !options.merged : options.average_on_host || !options.with_ema))
      << "these weights cannot be offloaded";
  offloaded_ = std::make_shared<OffloadedWeights>(device_, /*pins=*/!options.weights_shared);
  execution_.offloaded = offloaded_.get();
}

// Names of frozen weights that a LoRA's GPU reads together, by each of them.
std::map<std::string, std::vector<std::string>> NetworkBinder::Neighbours(
    const std::set<std::string>& int8) const {
  std::map<std::string, std::vector<std::string>> neighbours;
  if (!lora() || !device_.is_cuda() || offloaded_ != nullptr) return neighbours;
  for (const std::vector<std::string>& group : architecture_->side_by_side()) {
    const bool other = std::ranges::any_of(group, [&](const std::string& name) {
      return int8.contains(name) || architecture_->float32().contains(name);
    });
    for (const std::string& name : group) {
      if (!other) neighbours[name] = group;
    }
  }
  return neighbours;
}

// On the device, or where offloaded weights are kept. Of a LoRA that is the base. Copies, so that
// no other owner can change what must not change; what is read for the policy has no other owner.
absl::Status NetworkBinder::ReadFrozen(const ReadTensor& read, const PolicyOptions& options) {
  const Shapes shapes = architecture_->shapes();
  const std::set<std::string> int8 = Int8Of(options);
  const auto neighbours = Neighbours(int8);
  NamedTensors places;
  // A tensor that is read on the device has its place: a lent block has neighbours, too.
  const auto placed = [&](const std::string& name, const at::Tensor& tensor, at::ScalarType type) {
    const auto group = neighbours.find(name);
    if (group == neighbours.end()) return false;
    if (options.read_base && tensor.device() == device_ && tensor.scalar_type() == type)
      return false;
    if (!places.contains(name)) {
      places.merge(PlacedSideBySide({group->second}, shapes,
                                    at::TensorOptions(device_).dtype(execution_.compute)));
    }
    return true;
  };
  const auto keep = [&](const std::string& name, const at::Tensor& tensor, at::ScalarType type) {
    const bool kept = offloaded_ != nullptr && lora();
    if (placed(name, tensor, type)) {
      frozen_[name] = places.at(name).copy_(tensor);
    } else {
      frozen_[name] =
          kept ? offloaded_->Kept(tensor, type)
               : tensor.to(device_, type, /*non_blocking=*/false, /*copy=*/!options.read_base)
                     .contiguous();
    }
    if (options.on_kept) options.on_kept(name, frozen_[name]);
  };
  for (const auto& [name, shape] : shapes) {
    if (!lora() && !architecture_->buffers().contains(name)) continue;
    OXBOW_ASSIGN_OR_RETURN(const at::Tensor tensor, ReadOne(read, shapes, name));
    if (!int8.contains(name)) {
      if (tensor.scalar_type() == at::kChar) {
        return absl::InvalidArgumentError(
            absl::StrCat("weight is int8, and should not be: ", name));
      }
      keep(name, tensor, lora() ? FrozenType(*architecture_, options.compute, name) : at::kFloat);
    } else if (tensor.scalar_type() == at::kChar) {
      const std::string scale_name = ScaleNameOf(name);
      OXBOW_ASSIGN_OR_RETURN(const at::Tensor scale,
                             ReadOne(read, {{scale_name, {shape[0], 1}}}, scale_name));
      keep(name, tensor, at::kChar);
      keep(scale_name, scale, options.compute);
    } else {
      const Int8Weight weight = ToInt8(tensor.to(device_), options.compute);
      keep(name, weight.values, at::kChar);
      keep(ScaleNameOf(name), weight.scale, options.compute);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<BoundNetwork> NetworkBinder::ReadFull(const ReadTensor& read,
                                                     const PolicyOptions& options) const {
  Shapes shapes = architecture_->shapes();
  for (const std::string& name : architecture_->buffers()) shapes.erase(name);
  std::unique_ptr<ParameterSet> parameters = SetOf(shapes, options.trainable);
  if (options.weights_come) return BindTo(std::move(parameters));
  for (const auto& [name, view] : parameters->tensors()) {
    OXBOW_ASSIGN_OR_RETURN(const at::Tensor tensor, ReadOne(read, shapes, name));
    const at::NoGradGuard no_grad;
    at::Tensor(view).copy_(tensor);
  }
  return BindTo(std::move(parameters));
}

// Frozen tensors that a LoRA's network is bound to beside its adapter: each has leaves of its own.
NamedTensors NetworkBinder::FrozenLeaves() const {
  if (offloaded_ == nullptr) return frozen_;
  NamedTensors leaves;
  for (const auto& [name, tensor] : frozen_) {
    leaves[name] = offloaded_->Leaf(tensor, /*trainable=*/false);
  }
  return leaves;
}

std::unique_ptr<ParameterSet> NetworkBinder::SetOf(const Shapes& shapes, bool trainable) const {
  if (offloaded_ != nullptr && !lora()) {
    const bool narrow = trainable && execution_.compute == at::kBFloat16;
    return std::make_unique<ParameterSet>(
        shapes, trainable, *offloaded_,
        narrow ? Int8Names(*architecture_) : std::set<std::string>());
  }
  return std::make_unique<ParameterSet>(shapes, trainable, device_);
}

BoundNetwork NetworkBinder::Bind(const NamedTensors& trained, bool trainable) const {
  std::unique_ptr<ParameterSet> parameters = SetOf(ShapesOf(trained), trainable);
  parameters->CopyFrom(trained);
  return BindTo(std::move(parameters));
}

BoundNetwork NetworkBinder::BindTo(std::unique_ptr<ParameterSet> parameters) const {
  const NamedTensors& views = parameters->leaves();
  BoundNetwork network;
  if (lora()) {
    const LoraAdapter adapter{.tensors = views, .scale = lora_scale_};
    network.model = MakeNetwork(FrozenLeaves(), &adapter);
  } else {
    network.model = MakeNetwork(Merged(frozen_, views), nullptr);
  }
  network.parameters = std::move(parameters);
  return network;
}

// Shapes were checked by Create.
std::unique_ptr<VelocityModel> NetworkBinder::MakeNetwork(const NamedTensors& tensors,
                                                          const LoraAdapter* adapter) const {
  auto model = architecture_->Make(tensors, adapter, execution_);
  OXBOW_CHECK(model.ok()) << model.status().ToString();
  std::unique_ptr<VelocityModel> network = *std::move(model);
  if (graphs_ != nullptr) {
    std::vector<at::Tensor> weights = Handles(tensors);
    if (adapter != nullptr) {
      const std::vector<at::Tensor> matrices = Handles(adapter->tensors);
      weights.insert(weights.end(), matrices.begin(), matrices.end());
    }
    network = MakeRecorded(std::move(network), std::move(weights), graphs_);
  }
  if (execution_.inputs_on_host) network = MakeInputsOnHost(std::move(network), device_);
  if (offloaded_ != nullptr) network = MakeOffloaded(std::move(network), *offloaded_);
  if (whole_timesteps_) network = MakeWholeTimesteps(std::move(network));
  network = MakeBounded(std::move(network), rows_per_forward_);
  if (guidance_ == 1) return network;
  std::optional<std::vector<at::Tensor>> apart;
  if (guided_apart_ && adapter != nullptr) apart = Handles(adapter->tensors);
  return MakeGuided(std::move(network), guidance_, negative_, architecture_->guidance_norm_patch(),
                    std::move(apart));
}

BoundNetwork NetworkBinder::BindMerged(const NamedTensors& adapter, NamedTensors& merged) const {
  static constexpr std::string_view kDown = ".lora_A.weight";
  NamedTensors weights = frozen_;
  for (const auto& [name, tensor] : adapter) {
    if (!name.ends_with(kDown)) continue;
    const std::string module = name.substr(0, name.size() - kDown.size());
    at::Tensor& weight = weights.at(module + ".weight");
    merged[module] = weight = weight.clone();
  }
  return {.parameters = std::make_unique<ParameterSet>(adapter, /*trainable=*/false, device_),
          .model = MakeNetwork(weights, nullptr)};
}

absl::StatusOr<std::unique_ptr<Policy>> Policy::Create(Options options) {
  OXBOW_CHECK(!options.merged || (options.trained == Trained::kLora && !options.trainable))
      << "only adapters that do not train are merged";
  OXBOW_CHECK(options.graphs == nullptr || !options.trainable)
      << "recorded forward passes have no gradients";
  ReadTensor read = options.read_base;
  if (read == nullptr) {
    const Architecture& architecture = *options.architecture;
    OXBOW_ASSIGN_OR_RETURN(NamedTensors scales, TakeScales(options.base, Int8Of(options)));
    OXBOW_RETURN_IF_ERROR(
        Annotate(CheckFit(architecture.shapes(), options.base), architecture.class_name()));
    options.base.merge(scales);
    read = Emptying(options.base);
  }
  std::unique_ptr<Policy> policy(new Policy(options));
  OXBOW_RETURN_IF_ERROR(policy->binder_.ReadFrozen(read, options));
  OXBOW_RETURN_IF_ERROR(policy->MakeCurrent(read, options));
  policy->Merge();
  policy->MakeCopies(options);
  return policy;
}

Policy::Policy(const Options& options)
    : samples_with_old_(options.old == OldPolicy::kSamples),
      reference_moves_(options.moving_reference),
      average_on_host_(options.average_on_host),
      binder_(options) {}

absl::Status Policy::MakeCurrent(const ReadTensor& read, const Options& options) {
  if (!binder_.lora()) {
    OXBOW_ASSIGN_OR_RETURN(current_, binder_.ReadFull(read, options));
    return absl::OkStatus();
  }
  OXBOW_ASSIGN_OR_RETURN(const NamedTensors adapter, InitialLora(options.architecture->linears(),
                                                                 options.lora, options.lora_seed));
  current_ = options.merged ? binder_.BindMerged(adapter, merged_)
                            : binder_.Bind(adapter, options.trainable);
  return absl::OkStatus();
}

const VelocityModel& Policy::reference() const {
  OXBOW_CHECK(reference_.model != nullptr) << "policy was made without a reference";
  return *reference_.model;
}

const VelocityModel& Policy::ema() const {
  OXBOW_CHECK(ema_.model != nullptr) << "policy has no running average on its device";
  return *ema_.model;
}

const VelocityModel& Policy::old() const {
  OXBOW_CHECK(has_old()) << "policy was made without an old one";
  return *old_.model;
}

ParameterSet& Policy::ema_parameters() {
  OXBOW_CHECK(ema_.parameters != nullptr) << "policy was made without a running average";
  return *ema_.parameters;
}

ParameterSet& Policy::old_parameters() {
  OXBOW_CHECK(has_old()) << "policy was made without an old one";
  return *old_.parameters;
}

ParameterSet& Policy::reference_parameters() {
  OXBOW_CHECK(reference_.parameters != nullptr) << "policy was made without a moving reference";
  return *reference_.parameters;
}

const ParameterSet* Policy::base_copy() const {
  const bool copied = !binder_.lora() && !reference_moves_;
  return copied ? reference_.parameters.get() : nullptr;
}

std::optional<double> Policy::adapter_norm() const {
  if (!binder_.lora()) return std::nullopt;
  return AdapterNorm({.tensors = current_.parameters->tensors(), .scale = binder_.lora_scale()});
}

RowCount Policy::rows() const {
  RowCount sum;
  for (const BoundNetwork* network : {&current_, &reference_, &old_}) {
    if (network->model != nullptr) sum += network->model->rows();
  }
  return sum;
}

absl::Status Policy::Load(const NamedTensors& trained) {
  OXBOW_RETURN_IF_ERROR(CheckFit(ShapesOf(current_.parameters->tensors()), trained));
  const at::NoGradGuard no_grad;
  if (binder_.offloaded() != nullptr) binder_.offloaded()->WaitUntilRead();
  for (const auto& [name, view] : current_.parameters->tensors()) {
    at::Tensor(view).copy_(trained.at(name));
  }
  Merge();
  return absl::OkStatus();
}

absl::Status Policy::StartFrom(const NamedTensors& trained) {
  const bool lora = binder_.lora();
  OXBOW_RETURN_IF_ERROR(
      Load(lora ? CompletedAdapter(current_.parameters->tensors(), trained) : trained));
  for (const BoundNetwork* const copy : {&ema_, &old_}) {
    if (copy->parameters != nullptr) copy->parameters->CopyFrom(*current_.parameters);
  }
  return absl::OkStatus();
}

void Policy::Merge() {
  const at::NoGradGuard no_grad;
  for (auto& [module, weight] : merged_) {
    weight.copy_(MergedWeight(binder_.frozen().at(module + ".weight"),
                              current_.parameters->Get(module + ".lora_A.weight"),
                              current_.parameters->Get(module + ".lora_B.weight"),
                              binder_.lora_scale()));
  }
}

// Copies of the trained part, which has its first values.
void Policy::MakeCopies(const Options& options) {
  const NamedTensors& trained = current_.parameters->tensors();
  if (options.with_ema && average_on_host_) {
    ema_.parameters = std::make_unique<ParameterSet>(ShapesOf(trained), /*trainable=*/false);
    if (!options.weights_come) ema_.parameters->CopyFrom(*current_.parameters);
  } else if (options.with_ema) {
    ema_ = binder_.Bind(trained, /*trainable=*/false);
  }
  if (options.old != OldPolicy::kNone) old_ = binder_.Bind(trained, /*trainable=*/false);
  // A fresh adapter changes nothing: its B is zero.
  if (options.moving_reference || (!binder_.lora() && options.with_reference)) {
    reference_ = binder_.Bind(trained, /*trainable=*/false);
  } else if (binder_.lora()) {
    reference_.model = binder_.MakeBase();
  }
}

void Policy::ExchangeWithAverage() {
  const at::NoGradGuard no_grad;
  if (parameters().offloaded()) return parameters().ExchangeWith(ema_parameters());
  at::Tensor weights = parameters().flat().detach();
  at::Tensor average = ema_parameters().flat();
  for (int64_t begin = 0; begin < weights.numel(); begin += kExchangedAtOnce) {
    const int64_t length = std::min(kExchangedAtOnce, weights.numel() - begin);
    at::Tensor mine = weights.narrow(0, begin, length), theirs = average.narrow(0, begin, length);
    const at::Tensor kept = theirs.clone();  // In host memory: a full device can do this, too.
    theirs.copy_(mine);
    mine.copy_(kept);
  }
}

}  // namespace oxbow::model
