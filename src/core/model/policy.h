// SPDX-License-Identifier: Apache-2.0
// A velocity model with its trainable part, its reference and its running average.
//
// Full fine-tune: `current` holds all transformer weights; the reference is a frozen copy of the
// base. LoRA: `current` holds only the A and B matrices over frozen base weights; the reference is
// the same network with the adapter off, so that no weight is held twice. All copies (average, old
// policy, a reference that moves) are copies of the trainable part.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/architecture.h"
#include "core/model/cuda_graphs.h"
#include "core/model/lora.h"
#include "core/model/parameters.h"
#include "core/model/velocity_model.h"

namespace oxbow::model {

class OffloadedWeights;

enum class Trained { kFull, kLora };

// One tensor of a base, in host memory. A caller that asks for one after another holds one at once.
using ReadTensor = std::function<absl::StatusOr<at::Tensor>(const std::string& name)>;

// The type of a LoRA's frozen weights: that of products, or int8 for those of linear layers.
enum class BaseWeights { kCompute, kInt8 };

// In which type a LoRA keeps that frozen tensor, unless it is int8.
at::ScalarType FrozenType(const Architecture& architecture, at::ScalarType compute,
                          const std::string& name);

// A copy of the trainable part that follows the policy from learner step to learner step
// (DiffusionNFT, AWM). With kSamples, workers draw with it.
enum class OldPolicy { kNone, kKept, kSamples };

struct PolicyOptions {
  std::shared_ptr<const Architecture> architecture;  // Required.
  NamedTensors base;                                 // Published names and shapes.
  // Takes the place of `base` where it is set. Asked once for each name of the architecture. A
  // weight to become int8 comes in the type that it is to be rounded from.
  ReadTensor read_base;
  // Told of each frozen tensor when it is where the policy keeps it: it never changes. May be
  // null.
  std::function<void(const std::string& name, const at::Tensor& kept)> on_kept;
  Trained trained = Trained::kFull;
  LoraSpec lora;
  uint64_t lora_seed = 0;      // Initialises A; B starts at zero.
  bool with_reference = true;  // Full fine-tune: keep the base copy (learner yes, worker no).
  bool with_ema = true;
  bool average_on_host = false;  // It is in host memory; AverageInUse makes it a network.
  // All weights of a full fine-tune, or what is frozen of a LoRA, are in host memory, and come to
  // the device block by block (offloaded_weights.h). Needs checkpoint_activations; all weights
  // need an average on the host, and what is frozen must not be merged into.
  bool weights_on_host = false;
  // With weights_on_host: ranks will share the memory of the trained part (MoveTo in parameters.h),
  // so it is not pinned; and it has no values until another rank's come.
  bool weights_shared = false, weights_come = false;
  OldPolicy old = OldPolicy::kNone;
  bool moving_reference = false;  // LoRA: the reference has an adapter of its own.
  bool trainable = true;          // False on workers: no gradients are allocated.
  // LoRA, not trainable: `current` has the adapter in its weights, for one more copy of those it
  // touches.
  bool merged = false;
  double guidance = 1;    // Above 1 every network is guided; see velocity_model.h.
  Conditioning negative;  // Rows of one; with guidance.
  // The scale that the network takes as an input; see run/model_facts.h.
  double embedded_guidance = 0;
  bool whole_timesteps = false;  // For every network; see velocity_model.h.
  int64_t rows_per_forward = 0;  // Rows of a network at a time, without gradients; 0: all.
  // The type of matrix products. A LoRA's base weights are kept in it as well: half the memory.
  at::ScalarType compute = at::kFloat;
  // LoRA: int8 is half of that again (int8_weights.h). `base` may hold them as another policy's
  // frozen() does. Nothing can be merged into them.
  BaseWeights base_weights = BaseWeights::kCompute;
  at::Device device = at::kCPU;         // Where all weights are.
  bool checkpoint_activations = false;  // Less memory for a third forward pass; see recompute.h.
  bool inputs_on_host = false;          // With that: of each block its input, too; host_inputs.h.
  bool guided_apart = false;            // LoRA: the halves of guidance; see velocity_model.h.
  // Not trainable: forward passes are recorded and replayed; see cuda_graphs.h. Null: not.
  // Shared by the networks, whose recordings share memory.
  std::shared_ptr<GraphRecorder> graphs;
};

// A set of weights and the network bound to it.
struct BoundNetwork {
  std::unique_ptr<ParameterSet> parameters;  // Null for a LoRA's reference that does not move.
  std::unique_ptr<VelocityModel> model;
};

// The weights that all networks of a policy have in common, and how a network is made of them.
class NetworkBinder {
 public:
  explicit NetworkBinder(const PolicyOptions& options);

  // Takes what never trains. Errors as Policy::Create, also of the others here.
  absl::Status ReadFrozen(const ReadTensor& read, const PolicyOptions& options);
  // A full fine-tune's weights.
  absl::StatusOr<BoundNetwork> ReadFull(const ReadTensor& read, const PolicyOptions& options) const;

  // Copies of `trained` and a network of them.
  BoundNetwork Bind(const NamedTensors& trained, bool trainable) const;
  // A network whose weights shall have the adapter in them: `merged` gets them, by module.
  BoundNetwork BindMerged(const NamedTensors& adapter, NamedTensors& merged) const;
  // LoRA: the network without an adapter.
  std::unique_ptr<VelocityModel> MakeBase() const { return MakeNetwork(FrozenLeaves(), nullptr); }

  bool lora() const { return trained_ == Trained::kLora; }
  double lora_scale() const { return lora_scale_; }
  at::Device device() const { return device_; }
  const NamedTensors& frozen() const { return frozen_; }
  OffloadedWeights* offloaded() const { return offloaded_.get(); }

 private:
  std::map<std::string, std::vector<std::string>> Neighbours(
      const std::set<std::string>& int8) const;
  std::unique_ptr<ParameterSet> SetOf(const Shapes& shapes, bool trainable) const;
  BoundNetwork BindTo(std::unique_ptr<ParameterSet> parameters) const;
  NamedTensors FrozenLeaves() const;
  std::unique_ptr<VelocityModel> MakeNetwork(const NamedTensors& tensors,
                                             const LoraAdapter* adapter) const;

  const std::shared_ptr<const Architecture> architecture_;
  const Trained trained_;
  const double lora_scale_;
  Execution execution_;
  const at::Device device_;
  const std::shared_ptr<GraphRecorder> graphs_;  // Shared by the networks.
  const double guidance_;
  const Conditioning negative_;
  const bool guided_apart_;
  const bool whole_timesteps_;
  const int64_t rows_per_forward_;
  std::shared_ptr<OffloadedWeights> offloaded_;  // Unless null, before what it outlives.
  NamedTensors frozen_;
};

class Policy {
 public:
  using Options = PolicyOptions;

  // kInvalidArgument names every missing, extra or misshapen tensor, or a LoRA target that matches
  // nothing. Errors of `read_base` are passed on. Beside what the policy keeps no more than one
  // tensor that was read is in memory.
  static absl::StatusOr<std::unique_ptr<Policy>> Create(Options options);

  const VelocityModel& current() const { return *current_.model; }
  const VelocityModel& reference() const;  // Requires with_reference (or LoRA).
  const VelocityModel& ema() const;        // Requires with_ema, and not average_on_host.

  const VelocityModel& old() const;  // Requires has_old().
  bool has_old() const { return old_.model != nullptr; }
  // The sampler of trajectories: `current`, or `old` where that samples.
  const VelocityModel& sampler() const { return samples_with_old_ ? old() : current(); }

  ParameterSet& parameters() { return *current_.parameters; }  // The trainable part of `current`.
  ParameterSet& ema_parameters();
  ParameterSet& old_parameters();
  ParameterSet& sampler_parameters() { return samples_with_old_ ? old_parameters() : parameters(); }
  ParameterSet& reference_parameters();  // Requires moving_reference, or a full fine-tune's copy.
  // Tensors that never train: the architecture's buffers, and for LoRA the base weights. With
  // parameters() of a full fine-tune this is the whole checkpoint.
  // Where weights are offloaded it is in host memory.
  const NamedTensors& frozen() const { return binder_.frozen(); }

  // A full fine-tune's weights as they came; null without a reference, and with one that moves.
  const ParameterSet* base_copy() const;
  // LoRA: the Euclidean length of what the adapter adds to the base weights.
  std::optional<double> adapter_norm() const;

  // Rows that went through current, reference and old so far: what training costs.
  RowCount rows() const;

  // Replaces the trainable part (worker: new weights). kInvalidArgument names what does not fit.
  absl::Status Load(const NamedTensors& trained);

  // Load, for the average and the old policy too: what a new run starts from. An adapter may have a
  // smaller rank and fewer modules (CompletedAdapter). The reference stays the base model.
  absl::Status StartFrom(const NamedTensors& trained);

  // Exchanges the trained part with the average: memory, where both are on the host, or else piece
  // by piece. Requires with_ema.
  void ExchangeWithAverage();
  bool average_on_host() const { return average_on_host_; }

  at::Device device() const { return binder_.device(); }  // Where networks compute.
  // Null: all weights are there.
  const OffloadedWeights* offloaded() const { return binder_.offloaded(); }

 private:
  explicit Policy(const Options& options);

  absl::Status MakeCurrent(const ReadTensor& read, const Options& options);
  void MakeCopies(const Options& options);
  // Writes the adapter into the weights that `current` is bound to, if it is merged.
  void Merge();

  const bool samples_with_old_;
  const bool reference_moves_;
  const bool average_on_host_;
  NetworkBinder binder_;
  NamedTensors merged_;  // By module, weights of `current` with the adapter in them.
  BoundNetwork current_, reference_, ema_, old_;
};

// The running average as a network, for as long as this lives. One in host memory takes the place
// of the trained weights meanwhile, so the device needs no room for it: nothing else may read or
// change weights.
class AverageInUse {
 public:
  explicit AverageInUse(Policy& policy) : policy_(policy) {
    if (policy_.average_on_host()) policy_.ExchangeWithAverage();
  }
  ~AverageInUse() {
    if (policy_.average_on_host()) policy_.ExchangeWithAverage();
  }
  AverageInUse(const AverageInUse&) = delete;
  AverageInUse& operator=(const AverageInUse&) = delete;

  const VelocityModel& network() const {
    return policy_.average_on_host() ? policy_.current() : policy_.ema();
  }

 private:
  Policy& policy_;
};

}  // namespace oxbow::model
