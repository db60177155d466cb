// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/local_weights.h"

#include <ATen/ATen.h>

#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "core/model/int8_weights.h"
#include "io/diffusers_directory.h"
#include "io/tensor_torch.h"
#include "rpc/convert.h"
#include "services/weights/snapshot.h"

namespace oxbow::rollout {
namespace {

using Entries = std::map<std::string, const v1::TensorManifest*>;

// Tensors as the learner keeps them, made from files.
class Maker {
 public:
  Maker(const std::map<std::string, io::WeightFiles>& files, const Entries& entries)
      : files_(files), entries_(entries) {
    for (const auto& [name, entry] : entries) {
      if (entry->dtype() == v1::DTYPE_I8) scaled_[model::ScaleNameOf(name)] = name;
    }
  }

  // Nothing for a tensor that the files have not.
  std::optional<at::Tensor> Make(const v1::TensorManifest& entry) {
    const std::string& name = entry.name();
    if (entry.dtype() == v1::DTYPE_I8) return Int8Of(name, &model::Int8Weight::values);
    if (const auto scaled = scaled_.find(name); scaled != scaled_.end()) {
      return Int8Of(scaled->second, &model::Int8Weight::scale);
    }
    const absl::StatusOr<io::DType> type = rpc::DTypeFromProto(entry.dtype());
    return type.ok() ? Stored(name, *type) : std::nullopt;
  }

 private:
  std::optional<at::Tensor> Stored(const std::string& name, std::optional<io::DType> type) const {
    for (const auto& [prefix, files] : files_) {
      if (!name.starts_with(prefix)) continue;
      const std::string own = name.substr(prefix.size());
      if (!files.Has(own)) continue;
      auto tensors = io::LoadTensors(
          files,
          {.floats_as = type, .wanted = [&own](const std::string& other) { return other == own; }});
      if (tensors.ok()) return tensors->at(own);
    }
    return std::nullopt;
  }

  // A weight and its scale follow each other in a manifest: they are made once.
  std::optional<at::Tensor> Int8Of(const std::string& weight, at::Tensor model::Int8Weight::*part) {
    const auto scale = entries_.find(model::ScaleNameOf(weight));
    if (scale == entries_.end()) return std::nullopt;
    if (made_ != weight) {
      const std::optional<at::Tensor> stored = Stored(weight, std::nullopt);
      const bool fits = stored.has_value() && stored->dim() == 2 && stored->is_floating_point();
      if (!fits) return std::nullopt;
      const bool half = scale->second->dtype() == v1::DTYPE_BF16;
      int8_ = model::ToInt8(*stored, half ? at::kBFloat16 : at::kFloat);
      made_ = weight;
    }
    return int8_.*part;
  }

  const std::map<std::string, io::WeightFiles>& files_;
  const Entries& entries_;
  std::map<std::string, std::string> scaled_;  // int8 weights by the names of their scales.
  std::string made_;
  model::Int8Weight int8_;
};

bool Lacks(const std::set<std::string>& lacking, const v1::TensorManifest& entry) {
  for (const std::string& hash : entry.chunk_sha256()) {
    if (lacking.contains(hash)) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalWeights>> LocalWeights::Open(const std::string& path) {
  auto components = io::OpenDiffusersDirectory(path);
  if (!components.ok()) return io::DataError(components.status(), path);
  std::unique_ptr<LocalWeights> local(new LocalWeights);
  for (const auto& [component, prefix] :
       {std::pair("vae", weights::kDecoderPrefix), std::pair("transformer", "")}) {
    const auto found = components->find(component);
    if (found == components->end()) continue;
    OXBOW_ASSIGN_OR_RETURN(io::WeightFiles files, io::OpenComponentWeights(found->second));
    local->files_.emplace(prefix, std::move(files));
  }
  return local;
}

uint64_t LocalWeights::Offer(const v1::SnapshotManifest& manifest,
                             weights::Download& download) const {
  std::set<std::string> lacking = download.Lacking();
  uint64_t taken = 0;
  Entries entries;
  for (const v1::TensorManifest& entry : manifest.tensors()) entries[entry.name()] = &entry;
  Maker maker(files_, entries);
  for (const v1::TensorManifest& entry : manifest.tensors()) {
    if (!Lacks(lacking, entry)) continue;
    const std::optional<at::Tensor> made = maker.Make(entry);
    if (!made.has_value()) continue;
    const at::Tensor tensor = made->contiguous();
    const std::string_view bytes(static_cast<const char*>(tensor.const_data_ptr()),
                                 tensor.nbytes());
    for (int i = 0; i < entry.chunk_sha256_size(); ++i) {
      const std::string& hash = entry.chunk_sha256(i);
      const size_t begin = static_cast<size_t>(i) * manifest.chunk_bytes();
      if (!lacking.contains(hash) || begin >= bytes.size()) continue;
      const std::string_view piece = bytes.substr(begin, manifest.chunk_bytes());
      if (!download.Offer(hash, std::string(piece)).ok()) continue;
      lacking.erase(hash);
      taken += piece.size();
    }
  }
  download.Settle();
  OXBOW_LOG(Info) << "weights from this machine's disk" << Field("bytes", taken)
                  << Field("chunks_to_fetch", lacking.size());
  return taken;
}

}  // namespace oxbow::rollout
