// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/local_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
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
#include "services/weights/tensor_place.h"

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

// Takes one after another the chunks of tensors that lack.
class Taking {
 public:
  Taking(const v1::SnapshotManifest& manifest, weights::Download& download)
      : manifest_(manifest), download_(download), lacking_(download.Lacking()) {}

  bool Lacks(const v1::TensorManifest& entry) const {
    const auto& hashes = entry.chunk_sha256();
    return std::any_of(hashes.begin(), hashes.end(),
                       [&](const std::string& hash) { return lacking_.contains(hash); });
  }

  // Those that `place` has stay there.
  void TakeFrom(const std::shared_ptr<const weights::TensorPlace>& place,
                const v1::TensorManifest& entry) {
    ForEach(entry, place->size(), [&](int i, uint64_t begin, uint64_t bytes) {
      const auto placed = std::make_shared<const weights::PlacedChunk>(
          weights::PlacedChunk{place, begin, bytes, entry.chunk_xxh3(i)});
      return download_.Offer(entry.chunk_sha256(i), placed);
    });
  }

  void TakeFrom(std::string_view tensor, const v1::TensorManifest& entry) {
    ForEach(entry, tensor.size(), [&](int i, uint64_t begin, uint64_t bytes) {
      return download_.Offer(entry.chunk_sha256(i), std::string(tensor.substr(begin, bytes)));
    });
  }

  uint64_t taken() const { return taken_; }
  size_t lacking() const { return lacking_.size(); }

 private:
  void ForEach(const v1::TensorManifest& entry, uint64_t size,
               const std::function<absl::Status(int, uint64_t, uint64_t)>& offer) {
    for (int i = 0; i < entry.chunk_sha256_size(); ++i) {
      const uint64_t begin = static_cast<uint64_t>(i) * manifest_.chunk_bytes();
      if (!lacking_.contains(entry.chunk_sha256(i)) || begin >= size) continue;
      const uint64_t bytes = std::min<uint64_t>(manifest_.chunk_bytes(), size - begin);
      if (!offer(i, begin, bytes).ok()) continue;
      lacking_.erase(entry.chunk_sha256(i));
      taken_ += bytes;
    }
  }

  const v1::SnapshotManifest& manifest_;
  weights::Download& download_;
  std::set<std::string> lacking_;
  uint64_t taken_ = 0;
};

// Where a file has the bytes of a tensor as the learner keeps them; null if none has.
std::shared_ptr<const weights::TensorPlace> PlaceOf(
    std::map<std::string, weights::FilePlaces>& places, const v1::TensorManifest& entry) {
  const absl::StatusOr<io::DType> type = rpc::DTypeFromProto(entry.dtype());
  if (!type.ok()) return nullptr;
  const io::TensorHeader wanted{.dtype = *type,
                                .shape = {entry.shape().begin(), entry.shape().end()}};
  for (auto& [prefix, files] : places) {
    if (!entry.name().starts_with(prefix)) continue;
    if (auto place = files.Find(entry.name().substr(prefix.size()), wanted)) return place;
  }
  return nullptr;
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
  std::map<std::string, weights::FilePlaces> places;
  for (const auto& [prefix, files] : files_) places.try_emplace(prefix, files);
  Entries entries;
  for (const v1::TensorManifest& entry : manifest.tensors()) entries[entry.name()] = &entry;
  Maker maker(files_, entries);
  Taking taking(manifest, download);
  for (const v1::TensorManifest& entry : manifest.tensors()) {
    if (!taking.Lacks(entry)) continue;
    if (const auto place = PlaceOf(places, entry)) taking.TakeFrom(place, entry);
    if (!taking.Lacks(entry)) continue;
    const std::optional<at::Tensor> made = maker.Make(entry);
    if (!made.has_value()) continue;
    const at::Tensor tensor = made->contiguous();
    taking.TakeFrom(
        std::string_view(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()),
        entry);
  }
  download.Settle();
  OXBOW_LOG(Info) << "weights from this machine's disk" << Field("bytes", taking.taken())
                  << Field("chunks_to_fetch", taking.lacking());
  return taking.taken();
}

}  // namespace oxbow::rollout
