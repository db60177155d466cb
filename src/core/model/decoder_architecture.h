// SPDX-License-Identifier: Apache-2.0
// A family of decoders: what an autoencoder's class and config.json say before any weight is read,
// and the decoder itself.
//
// Code that loads, checks or estimates asks a DecoderArchitecture and names none. A new one is a
// file pair of its own and a row of decoder_table.cc. Sees no torch header.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/latent_factors.h"
#include "core/model/named_tensors.h"

namespace oxbow::model {

class ImageDecoder;

class DecoderArchitecture {
 public:
  virtual ~DecoderArchitecture() = default;

  // The autoencoder's class in diffusers: "AutoencoderKL".
  virtual const std::string& class_name() const = 0;
  virtual int64_t latent_channels() const = 0;
  virtual LatentFactors factors() const = 0;

  // Every tensor of a checkpoint, and which of them the decoder needs.
  virtual Shapes shapes() const = 0;
  virtual bool InDecoder(const std::string& tensor) const = 0;

  // Binds (does not copy) `tensors`: the decoder's and nothing else, in float32. kInvalidArgument
  // names every missing, extra or misshapen tensor.
  virtual absl::StatusOr<std::unique_ptr<ImageDecoder>> Make(const NamedTensors& tensors) const = 0;
};

struct DecoderRow {
  std::string class_name;
  // kInvalidArgument for a config that is not this autoencoder's.
  absl::StatusOr<std::shared_ptr<const DecoderArchitecture>> (*read)(
      const std::string& class_name, const std::string& config_json);
};

// One row per autoencoder. decoder_table.cc defines nothing else, as architecture_table.cc.
const std::vector<DecoderRow>& DecoderTable();

// What a vae/config.json describes; its _class_name chooses the row, the first one without it.
// kInvalidArgument for a class without a row, and for what the row's reader refuses.
absl::StatusOr<std::shared_ptr<const DecoderArchitecture>> ReadDecoder(
    const std::string& config_json);

}  // namespace oxbow::model
