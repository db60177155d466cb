// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/sampler_model.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/device_memory.h"
#include "io/tensor_torch.h"

namespace oxbow::rollout {
namespace {

// The tensors of a snapshot; with `wanted`, only those of its names.
absl::StatusOr<model::NamedTensors> TensorsOf(const weights::VerifiedSnapshot& snapshot,
                                              const model::NamedTensors* wanted) {
  model::NamedTensors tensors;
  for (const v1::TensorManifest& entry : snapshot.manifest.tensors()) {
    if (wanted != nullptr && !wanted->contains(entry.name())) continue;
    absl::StatusOr<at::Tensor> tensor =
        io::ToTorch(weights::AssembleTensor(entry, snapshot.chunks));
    if (!tensor.ok()) return Annotate(tensor.status(), entry.name());
    tensors.emplace(entry.name(), *std::move(tensor));
  }
  return tensors;
}

// Adapter matrices are recognised by PEFT's names; everything else is the base.
bool IsAdapterName(const std::string& name) {
  return name.find(".lora_A.") != std::string::npos || name.find(".lora_B.") != std::string::npos;
}

bool IsDecoderName(const std::string& name) { return name.starts_with(weights::kDecoderPrefix); }

// Takes the tensors that `wanted` names out of `tensors`: each is gone from the host as soon as it
// is where the model computes.
model::NamedTensors TakeOut(model::NamedTensors& tensors,
                            const std::function<bool(const std::string&)>& wanted) {
  model::NamedTensors taken;
  for (auto at = tensors.begin(); at != tensors.end();) {
    const auto next = std::next(at);
    if (wanted(at->first)) taken.insert(tensors.extract(at));
    at = next;
  }
  return taken;
}

model::NamedTensors TakeBase(model::NamedTensors& tensors) {
  return TakeOut(tensors, [](const std::string& name) {
    return !IsAdapterName(name) && !IsDecoderName(name);
  });
}

model::NamedTensors TakeDecoder(model::NamedTensors& tensors, at::Device device) {
  model::NamedTensors weights;
  for (auto& [name, tensor] : TakeOut(tensors, IsDecoderName)) {
    weights.emplace(name.substr(std::string_view(weights::kDecoderPrefix).size()),
                    tensor.to(device));
  }
  return weights;
}

absl::Status WithoutThrow(const std::function<absl::Status()>& use) {
  try {
    return use();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(model::MemoryText(error));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("torch: ", error.what()));
  }
}

}  // namespace

SamplerModel::SamplerModel(const RunSpec& spec) : spec_(spec) {}

absl::Status SamplerModel::Load(const weights::VerifiedSnapshot& snapshot) {
  // Within an epoch the frozen part stays, and may be a hundred times the trained one.
  OXBOW_ASSIGN_OR_RETURN(
      model::NamedTensors tensors,
      TensorsOf(snapshot, policy_ == nullptr ? nullptr : &policy_->parameters().tensors()));
  if (policy_ == nullptr) {
    model::NamedTensors decoder = TakeDecoder(tensors, spec_.device);
    // A full fine-tune trains its base, which is read again below.
    model::NamedTensors base = spec_.trained == model::Trained::kLora ? TakeBase(tensors) : tensors;
    OXBOW_ASSIGN_OR_RETURN(
        policy_,
        model::Policy::Create(
            {.architecture = spec_.architecture,
             .base = std::move(base),
             .trained = spec_.trained,
             .lora = spec_.lora,
             .lora_seed = 0,
             .with_reference = false,
             .with_ema = false,
             .trainable = false,
             .merged = spec_.merged,
             .guidance = spec_.sampling.guidance,
             .negative = spec_.negative,
             .embedded_guidance = spec_.sampling.embedded_guidance,
             .whole_timesteps = spec_.sampling.whole_timesteps,
             .rows_per_forward = spec_.rows_per_forward,
             .compute = spec_.compute,
             .base_weights = spec_.base_weights,
             .device = spec_.device,
             .graphs = spec_.graphs ? model::MakeCudaGraphRecorder(spec_.device) : nullptr}));
    OXBOW_ASSIGN_OR_RETURN(decoder_,
                           model::MakeImageDecoder(spec_.autoencoder_config_json,
                                                   spec_.autoencoder_graph_json, decoder));
  }
  model::NamedTensors trained;
  for (const auto& [name, parameter] : policy_->parameters().tensors()) {
    const auto found = tensors.find(name);
    if (found != tensors.end()) trained.emplace(name, found->second);
  }
  return policy_->Load(trained);
}

absl::Status SamplerModel::Probe(const v1::SnapshotManifest::Probe& expected,
                                 weights::ProbeComparison& comparison) const {
  OXBOW_ASSIGN_OR_RETURN(
      const weights::ProbeShape shape,
      weights::ProbeShapeOf(*spec_.architecture, spec_.latent_shape, spec_.negative));
  const c10::InferenceMode no_gradients;
  comparison = weights::CompareProbes(
      expected,
      weights::RunProbe(policy_->current(), shape, expected.seed(), expected.tolerance()));
  return weights::JudgeProbe(expected, comparison);
}

absl::Status SamplerModel::Apply(const weights::VerifiedSnapshot& snapshot,
                                 weights::ProbeComparison& comparison) {
  const v1::SnapshotManifest& manifest = snapshot.manifest;
  if (ready() && manifest.base_sha256() != base_sha256_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the frozen part of the weights is another than that of version ",
                     version_->value, ": version ", manifest.policy_version()));
  }
  model::NamedTensors copy;
  if (ready() && trained_.chunks.empty()) {
    for (const auto& [name, tensor] : policy_->parameters().tensors()) {
      copy[name] = tensor.detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
    }
  }
  loaded_ = Loaded::kNothing;
  evaluated_.reset();
  const absl::Status status = WithoutThrow([&] {
    OXBOW_RETURN_IF_ERROR(Load(snapshot));
    return Probe(manifest.probe(), comparison);
  });
  if (!status.ok()) {
    GoBack(copy);
    return status;
  }
  loaded_ = Loaded::kInUse;
  version_ = PolicyVersion(manifest.policy_version());
  base_sha256_ = manifest.base_sha256();
  KeepTrained(snapshot);
  return absl::OkStatus();
}

// To the weights in use. A first snapshot that was refused leaves nothing: its frozen part is not
// believed, either.
void SamplerModel::GoBack(const model::NamedTensors& copy) {
  if (ready() && !trained_.chunks.empty()) return;  // From there, when they are needed.
  if (ready() && WithoutThrow([&] { return policy_->Load(copy); }).ok()) {
    loaded_ = Loaded::kInUse;
    return;
  }
  policy_.reset();
  decoder_.reset();
  version_.reset();
}

void SamplerModel::KeepTrained(const weights::VerifiedSnapshot& snapshot) {
  if (spec_.held_out.sigmas.empty()) return;
  trained_ = {};
  for (const v1::TensorManifest& entry : snapshot.manifest.tensors()) {
    if (!policy_->parameters().Has(entry.name())) continue;
    *trained_.manifest.add_tensors() = entry;
    for (const std::string& hash : entry.chunk_sha256()) {
      trained_.chunks.emplace(hash, snapshot.chunks.at(hash));
    }
  }
  trained_.manifest.set_chunk_bytes(snapshot.manifest.chunk_bytes());
}

// Both have their tensors in the order of their names.
bool SamplerModel::InUse(const weights::VerifiedSnapshot& other) const {
  const auto& in_use = trained_.manifest.tensors();
  const auto& wanted = other.manifest.tensors();
  return std::equal(in_use.begin(), in_use.end(), wanted.begin(), wanted.end(),
                    [](const v1::TensorManifest& a, const v1::TensorManifest& b) {
                      return a.name() == b.name() &&
                             std::equal(a.chunk_sha256().begin(), a.chunk_sha256().end(),
                                        b.chunk_sha256().begin(), b.chunk_sha256().end());
                    });
}

absl::StatusOr<const model::VelocityModel*> SamplerModel::ForGroups() {
  if (loaded_ != Loaded::kInUse) {
    loaded_ = Loaded::kNothing;
    evaluated_.reset();
    OXBOW_RETURN_IF_ERROR(WithoutThrow([&] { return Load(trained_); }));
    loaded_ = Loaded::kInUse;
  }
  return &policy_->current();
}

absl::StatusOr<const model::VelocityModel*> SamplerModel::ForPictures(
    const EvaluatedWeights::Weights& weights) {
  if (InUse(*weights)) return ForGroups();
  if (loaded_ != Loaded::kEvaluated || evaluated_ != weights) {
    loaded_ = Loaded::kNothing;
    evaluated_.reset();
    OXBOW_RETURN_IF_ERROR(WithoutThrow([&] {
      OXBOW_RETURN_IF_ERROR(Load(*weights));
      weights::ProbeComparison comparison;
      return Probe(weights->manifest.probe(), comparison);
    }));
    loaded_ = Loaded::kEvaluated;
    evaluated_ = weights;
  }
  return &policy_->current();
}

}  // namespace oxbow::rollout
