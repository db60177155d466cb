// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/sampler_model.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/memory_limits.h"
#include "base/status_macros.h"
#include "core/model/binding.h"
#include "core/model/device_memory.h"
#include "core/model/int8_weights.h"
#include "io/tensor_torch.h"

namespace oxbow::rollout {
namespace {

constexpr uint64_t kFreedAtOnce = 256 * kMebibyte;

absl::StatusOr<at::Tensor> TensorOf(const weights::VerifiedSnapshot& snapshot,
                                    const v1::TensorManifest& entry) {
  OXBOW_ASSIGN_OR_RETURN(const io::TensorBytes bytes, snapshot.Tensor(entry));
  absl::StatusOr<at::Tensor> tensor = io::ToTorch(bytes);
  if (!tensor.ok()) return Annotate(tensor.status(), entry.name());
  return tensor;
}

// The tensors of those names that the snapshot has.
absl::StatusOr<model::NamedTensors> TensorsOf(const weights::VerifiedSnapshot& snapshot,
                                              const model::NamedTensors& wanted) {
  model::NamedTensors tensors;
  for (const v1::TensorManifest& entry : snapshot.manifest.tensors()) {
    if (!wanted.contains(entry.name())) continue;
    OXBOW_ASSIGN_OR_RETURN(tensors[entry.name()], TensorOf(snapshot, entry));
  }
  return tensors;
}

bool IsDecoderName(const std::string& name) { return name.starts_with(weights::kDecoderPrefix); }

absl::StatusOr<model::NamedTensors> DecoderOf(const weights::VerifiedSnapshot& snapshot,
                                              at::Device device, FrozenPlaces& places) {
  model::NamedTensors tensors;
  for (const v1::TensorManifest& entry : snapshot.manifest.tensors()) {
    if (!IsDecoderName(entry.name())) continue;
    OXBOW_ASSIGN_OR_RETURN(const at::Tensor read, TensorOf(snapshot, entry));
    const at::Tensor tensor = read.to(device);
    places.Add(entry.name(), tensor);
    tensors.emplace(entry.name().substr(std::string_view(weights::kDecoderPrefix).size()), tensor);
  }
  return tensors;
}

// Adapter matrices are recognised by PEFT's names; everything else is the base.
bool IsAdapterName(const std::string& name) {
  return name.find(".lora_A.") != std::string::npos || name.find(".lora_B.") != std::string::npos;
}

absl::Status CheckBase(const weights::VerifiedSnapshot& snapshot,
                       const model::Architecture& architecture) {
  model::Shapes base;
  for (const v1::TensorManifest& entry : snapshot.manifest.tensors()) {
    if (IsAdapterName(entry.name()) || IsDecoderName(entry.name())) continue;
    base[entry.name()] = {entry.shape().begin(), entry.shape().end()};
  }
  for (const v1::TensorManifest& entry : snapshot.manifest.tensors()) {
    if (entry.dtype() == v1::DTYPE_I8) base.erase(model::ScaleNameOf(entry.name()));
  }
  return Annotate(model::CheckFit(architecture.shapes(), base), architecture.class_name());
}

// Each tensor is put together when the policy asks for it, and gone when it is where the model
// keeps it. The snapshot outlives the reader.
model::ReadTensor ReaderOf(const weights::VerifiedSnapshot& snapshot) {
  std::map<std::string, const v1::TensorManifest*> entries;
  for (const v1::TensorManifest& entry : snapshot.manifest.tensors())
    entries[entry.name()] = &entry;
  return [&snapshot,
          entries = std::move(entries)](const std::string& name) -> absl::StatusOr<at::Tensor> {
    const auto found = entries.find(name);
    if (found != entries.end()) return TensorOf(snapshot, *found->second);
    return absl::InvalidArgumentError(absl::StrCat("the snapshot has no tensor ", name));
  };
}

absl::Status WithoutThrow(const std::function<absl::Status()>& use) {
  try {
    return use();
  } catch (const c10::OutOfMemoryError& error) {
    return absl::ResourceExhaustedError(model::MemoryText(error));
  } catch (const std::exception& error) {
    if (const auto host = model::HostMemoryText(error)) return absl::ResourceExhaustedError(*host);
    if (auto device = model::DeviceErrorOf(error)) return *std::move(device);
    return absl::InternalError(absl::StrCat("torch: ", error.what()));
  }
}

}  // namespace

FrozenPlaces::FrozenPlaces(weights::VerifiedSnapshot& snapshot, PlaceChunk place)
    : snapshot_(snapshot), place_(std::move(place)) {
  for (const v1::TensorManifest& entry : snapshot.manifest.tensors()) {
    entries_[entry.name()] = &entry;
  }
}

FrozenPlaces::~FrozenPlaces() {
  if (freed_ > 0) ReturnFreedMemory();
}

void FrozenPlaces::Add(const std::string& name, const at::Tensor& kept) {
  const auto entry = entries_.find(name);
  if (entry == entries_.end() || !kept.is_cpu() || !kept.is_contiguous()) return;
  const auto memory =
      weights::PlaceInMemory({static_cast<const char*>(kept.const_data_ptr()), kept.nbytes()},
                             std::make_shared<const at::Tensor>(kept));
  uint64_t begin = 0;
  for (int i = 0; i < entry->second->chunk_sha256_size() && begin < memory->size(); ++i) {
    const std::string& hash = entry->second->chunk_sha256(i);
    const uint64_t bytes =
        std::min<uint64_t>(snapshot_.manifest.chunk_bytes(), memory->size() - begin);
    const auto placed = std::make_shared<const weights::PlacedChunk>(weights::PlacedChunk{
        memory, std::exchange(begin, begin + bytes), bytes, entry->second->chunk_xxh3(i)});
    if (!placed->Read().ok()) continue;  // Another type, or rounded.
    if (snapshot_.chunks.erase(hash) > 0) freed_ += bytes;
    snapshot_.placed[hash] = placed;
    if (place_) place_(hash, placed);
  }
  if (freed_ < kFreedAtOnce) return;
  ReturnFreedMemory();
  freed_ = 0;
}

SamplerModel::SamplerModel(const RunSpec& spec, PlaceChunk place)
    : spec_(spec), place_(std::move(place)) {}

absl::Status SamplerModel::Load(weights::VerifiedSnapshot& snapshot) {
  if (policy_ == nullptr) {
    OXBOW_RETURN_IF_ERROR(Make(snapshot));
    // A full fine-tune trains its base, which has been read.
    if (spec_.trained == model::Trained::kFull) return absl::OkStatus();
  }
  return LoadTrained(snapshot);
}

// Within an epoch the frozen part stays, and may be a hundred times the trained one.
absl::Status SamplerModel::LoadTrained(const weights::VerifiedSnapshot& snapshot) {
  OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors trained,
                         TensorsOf(snapshot, policy_->parameters().tensors()));
  return policy_->Load(trained);
}

// The base of a learner rank on the same GPU; null where there is none to have.
std::shared_ptr<model::BorrowedBase> SamplerModel::Borrow() {
  if (spec_.lent_base.empty()) return nullptr;
  auto base = model::BorrowedBase::Open(spec_.lent_base, spec_.device);
  if (absl::IsNotFound(base.status())) return nullptr;  // No rank is on this GPU.
  absl::Status why = base.status();
  if (why.ok()) {
    auto watch = LenderWatch::Start((*base)->lender());
    if (watch.ok()) {
      lender_ = *std::move(watch);
      return *base;
    }
    why = watch.status();
  }
  OXBOW_LOG(Warning) << "this worker has base weights of its own beside the learner's on its GPU"
                     << Field("why", why.message());
  return nullptr;
}

// Base weights in host memory exclude what needs them in one place on the device: recordings, and
// weights that an adapter is merged into. The learner's probe allows for that rounding.
absl::Status SamplerModel::Make(weights::VerifiedSnapshot& snapshot) {
  OXBOW_RETURN_IF_ERROR(CheckBase(snapshot, *spec_.architecture));
  FrozenPlaces places(snapshot, place_);
  const std::shared_ptr<model::BorrowedBase> borrowed = Borrow();
  model::ReadTensor read = ReaderOf(snapshot);
  if (borrowed != nullptr) read = borrowed->InPlaceOf(std::move(read));
  std::shared_ptr<model::GraphRecorder> graphs;
  const bool records = !spec_.graphs_optional || model::CheckGraphs(spec_.device).ok();
  if (spec_.graphs && records && !spec_.weights_on_host) {
    graphs = model::MakeCudaGraphRecorder(spec_.device);
    graphs->optional = spec_.graphs_optional;
  }
  OXBOW_ASSIGN_OR_RETURN(
      policy_, model::Policy::Create(
                   {.architecture = spec_.architecture,
                    .read_base = std::move(read),
                    .on_kept = [&places](const std::string& name,
                                         const at::Tensor& kept) { places.Add(name, kept); },
                    .trained = spec_.trained,
                    .lora = spec_.lora,
                    .lora_seed = 0,
                    .with_reference = false,
                    .with_ema = false,
                    .weights_on_host = spec_.weights_on_host,
                    .trainable = false,
                    .merged = spec_.merged && !spec_.weights_on_host,
                    .guidance = spec_.sampling.guidance,
                    .negative = spec_.negative,
                    .embedded_guidance = spec_.sampling.embedded_guidance,
                    .whole_timesteps = spec_.sampling.whole_timesteps,
                    .rows_per_forward = spec_.rows_per_forward,
                    .compute = spec_.compute,
                    .base_weights = spec_.base_weights,
                    .device = spec_.device,
                    .checkpoint_activations = spec_.weights_on_host,
                    .graphs = std::move(graphs)}));
  if (borrowed != nullptr) {
    OXBOW_LOG(Info) << "base weights are the learner's, once for both on this GPU"
                    << Field("device", spec_.device.str()) << Field("bytes", borrowed->borrowed())
                    << Field("own_bytes", borrowed->own());
    if (borrowed->borrowed() == 0) lender_.reset();
  }
  OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors decoder,
                         DecoderOf(snapshot, spec_.device, places));
  OXBOW_ASSIGN_OR_RETURN(decoder_, model::MakeImageDecoder(spec_.autoencoder_config_json,
                                                           spec_.autoencoder_graph_json, decoder));
  return absl::OkStatus();
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

absl::Status SamplerModel::Apply(weights::VerifiedSnapshot snapshot,
                                 weights::ProbeComparison& comparison) {
  const v1::SnapshotManifest& manifest = snapshot.manifest;
  if (ready() && manifest.base_sha256() != base_sha256_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the frozen part of the weights is another than that of version ",
                     version_->value, ": version ", manifest.policy_version()));
  }
  model::NamedTensors copy;
  if (ready() && !keeps_trained()) {
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
  if (ready() && keeps_trained()) return;  // From there, when they are needed.
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
      const auto in_memory = snapshot.chunks.find(hash);
      if (in_memory != snapshot.chunks.end()) {
        trained_.chunks.insert(*in_memory);
        continue;
      }
      // A file may change, and these weights must come back.
      const weights::Placed& placed = snapshot.placed.at(hash);
      if (auto read = placed->Read(); read.ok()) {
        trained_.chunks.emplace(hash, *std::move(read));
      } else {
        trained_.placed.emplace(hash, placed);
      }
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
    OXBOW_RETURN_IF_ERROR(WithoutThrow([&] { return LoadTrained(trained_); }));
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
      OXBOW_RETURN_IF_ERROR(LoadTrained(*weights));
      weights::ProbeComparison comparison;
      return Probe(weights->manifest.probe(), comparison);
    }));
    loaded_ = Loaded::kEvaluated;
    evaluated_ = weights;
  }
  return &policy_->current();
}

}  // namespace oxbow::rollout
