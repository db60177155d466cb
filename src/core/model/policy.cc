#include "core/model/policy.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "core/model/binding.h"
#include "core/model/guidance.h"
#include "core/model/recorded_velocity.h"
#include "core/model/sd3.h"

namespace oxbow::model {
namespace {

constexpr char kSd3[] = "SD3Transformer2DModel";

// A set of weights and the network bound to it.
struct Network {
  std::unique_ptr<ParameterSet> parameters;
  std::unique_ptr<VelocityModel> model;
};

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

class Sd3Policy final : public Policy {
 public:
  static absl::StatusOr<std::unique_ptr<Policy>> Create(Options options) {
    OXBOW_ASSIGN_OR_RETURN(const Sd3Params params, ParseSd3Config(options.config_json));
    OXBOW_RETURN_IF_ERROR(Annotate(CheckFit(Sd3Shapes(params), options.base), kSd3));
    auto policy = std::unique_ptr<Sd3Policy>(new Sd3Policy(params, options));
    NamedTensors trained;
    OXBOW_CHECK(!options.merged || (options.trained == Trained::kLora && !options.trainable))
        << "only adapters that do not train are merged";
    OXBOW_CHECK(options.graphs == nullptr || !options.trainable)
        << "recorded forward passes have no gradients";
    if (options.trained == Trained::kLora) {
      policy->frozen_ = Detached(std::move(options.base), options.compute, options.device);
      OXBOW_ASSIGN_OR_RETURN(trained,
                             InitialLora(Sd3Linears(params), options.lora, options.lora_seed));
    } else {
      trained = options.base;
      trained.erase(kSd3PositionTable);
      policy->frozen_ = Detached({{kSd3PositionTable, options.base.at(kSd3PositionTable)}},
                                 at::kFloat, options.device);
    }
    policy->Build(trained, options);
    return policy;
  }

  const VelocityModel& current() const override { return *current_.model; }
  const VelocityModel& reference() const override {
    OXBOW_CHECK(reference_.model != nullptr) << "policy was made without a reference";
    return *reference_.model;
  }
  const VelocityModel& ema() const override {
    OXBOW_CHECK(ema_.model != nullptr) << "policy was made without a running average";
    return *ema_.model;
  }
  const VelocityModel& old() const override {
    OXBOW_CHECK(has_old()) << "policy was made without an old one";
    return *old_.model;
  }
  bool has_old() const override { return old_.model != nullptr; }
  const VelocityModel& sampler() const override { return samples_with_old_ ? old() : current(); }
  ParameterSet& parameters() override { return *current_.parameters; }
  ParameterSet& ema_parameters() override {
    OXBOW_CHECK(ema_.parameters != nullptr) << "policy was made without a running average";
    return *ema_.parameters;
  }
  ParameterSet& old_parameters() override {
    OXBOW_CHECK(has_old()) << "policy was made without an old one";
    return *old_.parameters;
  }
  ParameterSet& sampler_parameters() override {
    return samples_with_old_ ? old_parameters() : parameters();
  }
  ParameterSet& reference_parameters() override {
    OXBOW_CHECK(reference_.parameters != nullptr) << "policy was made without a moving reference";
    return *reference_.parameters;
  }
  const NamedTensors& frozen() const override { return frozen_; }
  RowCount rows() const override {
    RowCount sum;
    for (const Network* network : {&current_, &reference_, &old_}) {
      if (network->model != nullptr) sum += network->model->rows();
    }
    return sum;
  }

  absl::Status Load(const NamedTensors& trained) override {
    Shapes expected;
    for (const auto& [name, view] : current_.parameters->tensors())
      expected[name] = view.sizes().vec();
    OXBOW_RETURN_IF_ERROR(CheckFit(expected, trained));
    const at::NoGradGuard no_grad;
    for (const auto& [name, view] : current_.parameters->tensors()) {
      at::Tensor(view).copy_(trained.at(name));
    }
    Merge();
    return absl::OkStatus();
  }

 private:
  Sd3Policy(const Sd3Params& params, const Options& options)
      : params_(params),
        trained_(options.trained),
        samples_with_old_(options.old == OldPolicy::kSamples),
        lora_scale_(options.lora.alpha / static_cast<double>(options.lora.rank)),
        execution_{.compute = options.compute, .recompute_blocks = options.recompute_blocks},
        device_(options.device),
        graphs_(options.graphs),
        guidance_(options.guidance),
        negative_(options.negative) {}

  // Copies of its own, so that nobody else can change what must not change; each original is let go
  // of before the next is copied, so that a model is not in memory twice. The position table is no
  // factor of a product.
  static NamedTensors Detached(NamedTensors tensors, at::ScalarType dtype, at::Device device) {
    NamedTensors copies;
    for (; !tensors.empty(); tensors.erase(tensors.begin())) {
      const auto& [name, tensor] = *tensors.begin();
      copies[name] =
          tensor.detach()
              .to(device, name == kSd3PositionTable ? at::kFloat : dtype, /*non_blocking=*/false,
                  /*copy=*/true)
              .contiguous();
    }
    return copies;
  }

  // Writes the adapter into the weights that `current` is bound to, if it is.
  void Merge() {
    const at::NoGradGuard no_grad;
    for (auto& [module, weight] : merged_) {
      weight.copy_(MergedWeight(frozen_.at(module + ".weight"),
                                current_.parameters->Get(module + ".lora_A.weight"),
                                current_.parameters->Get(module + ".lora_B.weight"), lora_scale_));
    }
  }

  Network BindMerged(const NamedTensors& trained) {
    static constexpr std::string_view kDown = ".lora_A.weight";
    NamedTensors weights = frozen_;
    for (const auto& [name, tensor] : trained) {
      if (!name.ends_with(kDown)) continue;
      const std::string module = name.substr(0, name.size() - kDown.size());
      at::Tensor& weight = weights.at(module + ".weight");
      merged_[module] = weight = weight.clone();
    }
    return {.parameters = std::make_unique<ParameterSet>(trained, /*trainable=*/false, device_),
            .model = Made(weights, nullptr)};
  }

  void Build(const NamedTensors& trained, const Options& options) {
    current_ = options.merged ? BindMerged(trained) : Bind(trained, options.trainable);
    Merge();
    if (options.with_ema) ema_ = Bind(trained, /*trainable=*/false);
    if (options.old != OldPolicy::kNone) old_ = Bind(trained, /*trainable=*/false);
    // A fresh adapter changes nothing: its B is zero.
    if (options.moving_reference || (trained_ == Trained::kFull && options.with_reference)) {
      reference_ = Bind(trained, /*trainable=*/false);
    } else if (trained_ == Trained::kLora) {
      reference_.model = Made(frozen_, nullptr);
    }
  }

  Network Bind(const NamedTensors& trained, bool trainable) const {
    Network network{.parameters = std::make_unique<ParameterSet>(trained, trainable, device_)};
    const NamedTensors& views = network.parameters->tensors();
    if (trained_ == Trained::kLora) {
      const LoraAdapter adapter{.tensors = views, .scale = lora_scale_};
      network.model = Made(frozen_, &adapter);
    } else {
      network.model = Made(Merged(frozen_, views), nullptr);
    }
    return network;
  }

  // Shapes were checked by Create.
  std::unique_ptr<VelocityModel> Made(const NamedTensors& tensors,
                                      const LoraAdapter* adapter) const {
    auto model = MakeSd3Transformer(params_, tensors, adapter, execution_);
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
    if (guidance_ == 1) return network;
    return MakeGuided(std::move(network), guidance_, negative_);
  }

  const Sd3Params params_;
  const Trained trained_;
  const bool samples_with_old_;
  const double lora_scale_;
  const Sd3Execution execution_;
  const at::Device device_;
  const std::shared_ptr<GraphRecorder> graphs_;  // Shared by the networks.
  const double guidance_;
  const Conditioning negative_;
  NamedTensors frozen_;
  NamedTensors merged_;  // By module, weights of `current` with the adapter in them.
  Network current_, reference_, ema_, old_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Policy>> Policy::Create(Options options) {
  if (options.architecture != kSd3) {
    return absl::InvalidArgumentError(
        "unknown transformer architecture (SD3Transformer2DModel is supported): " +
        options.architecture);
  }
  return Sd3Policy::Create(std::move(options));
}

}  // namespace oxbow::model
