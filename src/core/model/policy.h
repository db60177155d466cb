// A velocity model with its trainable part, its reference and its running average.
//
// Full fine-tune: `current` holds all transformer weights; the reference is a frozen copy of the
// base. LoRA: `current` holds the A and B matrices alone over frozen base weights; the reference is
// the same network with the adapter off, so no weight is held twice. All copies (average, old
// policy, a reference that moves) are of the trainable part alone.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/graph_recorder.h"
#include "core/model/lora.h"
#include "core/model/parameters.h"
#include "core/model/velocity_model.h"

namespace oxbow::model {

enum class Trained { kFull, kLora };

// A copy of the trainable part that follows the policy from learner step to learner step
// (DiffusionNFT, AWM). With kSamples, workers draw with it.
enum class OldPolicy { kNone, kKept, kSamples };

class Policy {
 public:
  struct Options {
    std::string architecture;  // "SD3Transformer2DModel"
    std::string config_json;   // transformer/config.json
    NamedTensors base;         // Published names and shapes.
    Trained trained = Trained::kFull;
    LoraSpec lora;
    uint64_t lora_seed = 0;      // Initialises A; B starts at zero.
    bool with_reference = true;  // Full fine-tune: keep the base copy (learner yes, worker no).
    bool with_ema = true;
    OldPolicy old = OldPolicy::kNone;
    bool moving_reference = false;  // LoRA: the reference has an adapter of its own.
    bool trainable = true;          // False on workers: no gradients are allocated.
    // LoRA, not trainable: `current` has the adapter in its weights, for one more copy of those it
    // touches.
    bool merged = false;
    double guidance = 1;    // Above 1 every network is guided; see guidance.h.
    Conditioning negative;  // Rows of one; with guidance.
    // Of products. A LoRA's base is kept in it as well: half the memory.
    at::ScalarType compute = at::kFloat;
    at::Device device = at::kCPU;   // Of all weights.
    bool recompute_blocks = false;  // Less memory for a third forward pass; see recompute.h.
    // Not trainable: forward passes are recorded and replayed; see recorded_velocity.h. Null: not.
    // Shared by the networks, whose recordings share memory.
    std::shared_ptr<GraphRecorder> graphs;
  };

  // kInvalidArgument names every missing, extra or misshapen tensor, an unknown architecture, or a
  // LoRA target that matches nothing.
  static absl::StatusOr<std::unique_ptr<Policy>> Create(Options options);
  virtual ~Policy() = default;

  virtual const VelocityModel& current() const = 0;
  virtual const VelocityModel& reference() const = 0;  // Requires with_reference (or LoRA).
  virtual const VelocityModel& ema() const = 0;        // Requires with_ema.

  virtual const VelocityModel& old() const = 0;  // Requires has_old().
  virtual bool has_old() const = 0;
  // What trajectories are drawn with: `current`, or `old` where that samples.
  virtual const VelocityModel& sampler() const = 0;

  virtual ParameterSet& parameters() = 0;  // The trainable part of `current`.
  virtual ParameterSet& ema_parameters() = 0;
  virtual ParameterSet& old_parameters() = 0;
  virtual ParameterSet& sampler_parameters() = 0;
  virtual ParameterSet& reference_parameters() = 0;  // Requires moving_reference.
  // What never trains: buffers such as pos_embed.pos_embed, and for LoRA the base weights. With
  // parameters() of a full fine-tune this is the whole checkpoint.
  virtual const NamedTensors& frozen() const = 0;

  // Of current, reference and old so far: what training costs.
  virtual RowCount rows() const = 0;

  // Replaces the trainable part (worker: new weights). kInvalidArgument names what does not fit.
  virtual absl::Status Load(const NamedTensors& trained) = 0;
};

}  // namespace oxbow::model
