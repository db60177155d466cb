// SPDX-License-Identifier: Apache-2.0
// A family of networks: what a transformer's class and config.json say before any weight is read,
// and the network itself.
//
// Code that loads, samples, trains, checks or estimates asks an Architecture and names none. A new
// one is an exported graph (tools/export_model). The header names no torch header, so that code
// which only asks does not need torch either.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/conditioning.h"
#include "core/model/decoder_architecture.h"
#include "core/model/named_tensors.h"

namespace oxbow::model {

struct Execution;
struct LoraAdapter;
class VelocityModel;

// The latents of one token: every size of a latent is a multiple of it.
struct LatentPatch {
  int64_t frames = 1;
  int64_t height = 1;
  int64_t width = 1;
};

// The latents of an architecture: images [C, H, W] or videos [C, F, H, W].
struct LatentGeometry {
  int64_t channels = 0;
  int64_t frames = 0;  // A video's where none are asked for, in latents; 0: images.
  int64_t side = 0;    // Height and width where none is asked for, in latents.
  LatentPatch patch = {};
  int64_t side_max = 0;    // In latents.
  int64_t frames_max = 0;  // In latents; 0: no limit of its own.

  int64_t dimensions() const { return frames == 0 ? 3 : 4; }
  const char* layout() const { return frames == 0 ? "[C, H, W]" : "[C, F, H, W]"; }
};

// An image's or video's size in pixels and frames; 0: the architecture's own.
struct PictureSize {
  int64_t height = 0;
  int64_t width = 0;
  int64_t frames = 0;
};

// The latents of an image or video of that size. kInvalidArgument, in the words of sampling.height,
// width and frames, for a size that does not fit; it gives the nearest numbers of frames that do.
absl::StatusOr<std::vector<int64_t>> LatentShape(const LatentGeometry& geometry,
                                                 const LatentFactors& factors,
                                                 const PictureSize& size);

// The size of what such a latent becomes; an image has 0 frames.
PictureSize DecodedSize(const LatentFactors& factors, const std::vector<int64_t>& latent_shape);

// Transformer tokens of such a latent: what schedulers shift their noise levels by.
int64_t TokensOf(const LatentGeometry& geometry, const std::vector<int64_t>& latent_shape);

// kInvalidArgument unless the shape has as many dimensions as the geometry.
absl::Status CheckDimensions(const LatentGeometry& geometry,
                             const std::vector<int64_t>& latent_shape);

// The inputs of one forward pass, for estimates.
struct ForwardSize {
  int64_t rows = 1;    // In one pass; guidance doubles them.
  bool on_cpu = true;  // Where few rows are padded.
  // Targets (lora.h) of the adapters that train, and nothing else: what other layers take need not
  // be kept. Empty: all weights train.
  std::vector<std::string> adapters = {};
  std::vector<int64_t> latent_shape;  // [C, H, W] or [C, F, H, W]
  int64_t prompt_tokens = 0;
};

class Architecture {
 public:
  virtual ~Architecture() = default;

  // The transformer's class in diffusers: "SD3Transformer2DModel".
  virtual const std::string& class_name() const = 0;
  virtual const LatentGeometry& latent() const = 0;
  virtual const std::vector<ConditioningPart>& conditioning() const = 0;

  // The exported graph that it was read from, for other processes to read; empty without one.
  virtual std::string graph_json() const { return {}; }
  // Every tensor of a checkpoint.
  virtual Shapes shapes() const = 0;
  // The modules that LoRA adapters can attach to.
  virtual LinearModules linears() const = 0;
  // Whether the scale of guidance is an input of the network (Execution::embedded_guidance), and
  // what it is where a run names none: above 0, or 0 where only the run can say it.
  virtual bool takes_embedded_guidance() const { return false; }
  virtual double default_guidance() const { return 0; }
  // The side of the tokens, in latents, whose guided velocity gets the norm of the velocity with
  // the prompt (MakeGuided); 0: guidance is plain.
  virtual int64_t guidance_norm_patch() const { return 0; }
  // Tensors of a checkpoint that never train, and stay float32.
  virtual const std::set<std::string>& buffers() const = 0;
  // Tensors that stay float32 whatever type products are taken in: the buffers, and more.
  virtual const std::set<std::string>& float32() const { return buffers(); }

  // Bytes that a forward pass keeps for its backward pass, at most.
  virtual uint64_t ActivationBytes(const Execution& execution, const ForwardSize& size) const = 0;
  // Bytes that a forward pass without gradients holds at most, beside the weights; 0: not known.
  virtual uint64_t SamplingBytes(const Execution& /*execution*/,
                                 const ForwardSize& /*size*/) const {
    return 0;
  }

  // Binds (does not copy) `weights`: all of shapes() and nothing else. Leaf views of a trainable
  // ParameterSet train them. With `adapter`, adds its low-rank products. kInvalidArgument names
  // every missing, extra or misshapen tensor.
  virtual absl::StatusOr<std::unique_ptr<VelocityModel>> Make(const NamedTensors& weights,
                                                              const LoraAdapter* adapter,
                                                              const Execution& execution) const = 0;

  // Frozen tensors that a GPU had best hold side by side (side_by_side.h), each group in its order:
  // weights of linear layers of one input, and their biases.
  virtual std::vector<std::vector<std::string>> side_by_side() const { return {}; }
};

// Whether launching a forward pass of `rows` takes a GPU's host about as long as the GPU computes,
// so that a recorded pass (cuda_graphs.h) wins. By the operations of a linear layer on average: one
// has some five kernels, whatever its size. `latent_shape` fits the architecture.
bool LaunchesCount(const Architecture& architecture, const std::vector<int64_t>& latent_shape,
                   int64_t rows);

// The description of a transformer.
struct ArchitectureSource {
  std::string class_name;
  std::string config_json;
  std::string graph_json;  // Its exported graph.
};

// Endings of the names of the layers that people give an adapter (architecture_table.cc); empty
// where none are known: a run must name them.
std::vector<std::string> LoraTargetsOf(const Architecture& architecture);

// kInvalidArgument for a graph that cannot be read, for one of another class or config (naming the
// first key that differs), and for one that does not run on shapes that it says it takes.
absl::StatusOr<std::shared_ptr<const Architecture>> ReadArchitecture(
    const ArchitectureSource& source);

}  // namespace oxbow::model
