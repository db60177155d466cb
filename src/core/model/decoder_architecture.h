// SPDX-License-Identifier: Apache-2.0
// A family of decoders: what an autoencoder's class and config.json say before any weight is read,
// and the decoder itself.
//
// Code that loads, checks or estimates asks a DecoderArchitecture and names none. A new one is an
// exported graph. Sees no torch header.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/named_tensors.h"

namespace oxbow::model {

class ImageDecoder;

// How much larger than latents the images and videos are that a decoder makes of them. Without an
// autoencoder the latent is the image, and both are 1.
struct LatentFactors {
  int64_t time = 1;   // Frames per latent frame but the first: F latent ones are 1 + (F - 1) time.
  int64_t space = 1;  // Pixels of a side per latent.
};

class DecoderArchitecture {
 public:
  virtual ~DecoderArchitecture() = default;

  // The autoencoder's class in diffusers: "AutoencoderKL".
  virtual const std::string& class_name() const = 0;
  virtual int64_t latent_channels() const = 0;
  virtual LatentFactors factors() const = 0;

  // The exported graph that it was read from, for other processes to read; empty without one.
  virtual std::string graph_json() const { return {}; }

  // Every tensor of a checkpoint, and which of them the decoder needs.
  virtual Shapes shapes() const = 0;
  virtual bool InDecoder(const std::string& tensor) const = 0;

  // Bytes that a device holds at most, beside the weights, while it decodes `rows` latents [C, H,
  // W] or [C, F, H, W]; 0: not known.
  virtual uint64_t DecodingBytes(const std::vector<int64_t>& /*latent_shape*/, int64_t /*rows*/,
                                 bool /*on_cpu*/) const {
    return 0;
  }

  // Binds (does not copy) `tensors`: the decoder's and nothing else, in float32. kInvalidArgument
  // names every missing, extra or misshapen tensor.
  virtual absl::StatusOr<std::unique_ptr<ImageDecoder>> Make(const NamedTensors& tensors) const = 0;
};

// The description of an autoencoder.
struct DecoderSource {
  std::string class_name;
  std::string config_json;
  std::string graph_json;  // Its exported graph; empty without one.
};

// The class that a vae/config.json names, or AutoencoderKL. kInvalidArgument for what is no config.
absl::StatusOr<std::string> DecoderClassOf(const std::string& config_json);

// The decoder of a vae/config.json by its exported graph. kInvalidArgument for a graph that is not
// that autoencoder's, or without one.
absl::StatusOr<std::shared_ptr<const DecoderArchitecture>> ReadDecoder(
    const std::string& config_json, const std::string& graph_json = {});

}  // namespace oxbow::model
