// SPDX-License-Identifier: Apache-2.0
#include "services/weights/manifest_delta.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"

namespace oxbow::weights {
namespace {

bool Same(const v1::TensorManifest& a, const v1::TensorManifest& b) {
  return a.SerializeAsString() == b.SerializeAsString();
}

// Everything of a manifest but its tensors.
v1::SnapshotManifest WithoutTensors(const v1::SnapshotManifest& manifest) {
  v1::SnapshotManifest rest;
  rest.set_epoch(manifest.epoch());
  rest.set_policy_version(manifest.policy_version());
  rest.set_learner_step(manifest.learner_step());
  rest.set_chunk_bytes(manifest.chunk_bytes());
  rest.set_sha256(manifest.sha256());
  rest.set_base_sha256(manifest.base_sha256());
  if (manifest.has_probe()) *rest.mutable_probe() = manifest.probe();
  return rest;
}

// A WatchResponse with nothing but this field is the field with its tag.
Chunk Encoded(const v1::WatchResponse& alone) {
  return std::make_shared<const std::string>(alone.SerializeAsString());
}

}  // namespace

v1::ManifestDelta DeltaOf(const v1::SnapshotManifest& older, const v1::SnapshotManifest& newer) {
  v1::ManifestDelta delta;
  delta.set_from_sha256(older.sha256());
  *delta.mutable_changed() = WithoutTensors(newer);
  auto old = older.tensors().begin();
  for (const v1::TensorManifest& tensor : newer.tensors()) {
    for (; old != older.tensors().end() && old->name() < tensor.name(); ++old) {
      delta.add_removed(old->name());
    }
    const bool there = old != older.tensors().end() && old->name() == tensor.name();
    if (!there || !Same(*old, tensor)) *delta.mutable_changed()->add_tensors() = tensor;
    if (there) ++old;
  }
  for (; old != older.tensors().end(); ++old) delta.add_removed(old->name());
  return delta;
}

absl::StatusOr<v1::SnapshotManifest> ManifestFrom(const v1::SnapshotManifest& older,
                                                  const v1::ManifestDelta& delta) {
  if (delta.from_sha256() != older.sha256()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the delta is to another manifest: ", HexOf(delta.from_sha256())));
  }
  v1::SnapshotManifest newer = WithoutTensors(delta.changed());
  auto change = delta.changed().tensors().begin();
  const auto changes_end = delta.changed().tensors().end();
  auto removed = delta.removed().begin();
  for (const v1::TensorManifest& old : older.tensors()) {
    for (; change != changes_end && change->name() < old.name(); ++change) {
      *newer.add_tensors() = *change;
    }
    if (removed != delta.removed().end() && *removed == old.name()) {
      ++removed;
    } else if (change != changes_end && change->name() == old.name()) {
      *newer.add_tensors() = *change++;
    } else {
      *newer.add_tensors() = old;
    }
  }
  for (; change != changes_end; ++change) *newer.add_tensors() = *change;
  if (removed != delta.removed().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the delta removes a tensor that is not there: ", *removed));
  }
  for (int i = 1; i < newer.tensors_size(); ++i) {
    if (newer.tensors(i - 1).name() < newer.tensors(i).name()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensors of a delta are not in name order: ", newer.tensors(i).name()));
  }
  return newer;
}

ManifestForms::ManifestForms(Shared manifest, const std::vector<Shared>& older)
    : manifest_(std::move(manifest)) {
  v1::WatchResponse alone;
  *alone.mutable_manifest() = *manifest_;
  whole_ = Encoded(alone);
  for (const Shared& old : older) {
    v1::WatchResponse change;
    *change.mutable_delta() = DeltaOf(*old, *manifest_);
    if (change.ByteSizeLong() < whole_->size()) deltas_[old->sha256()] = Encoded(change);
  }
}

const Chunk& ManifestForms::For(const std::string& from_sha256) const {
  const auto found = deltas_.find(from_sha256);
  return found == deltas_.end() ? whole_ : found->second;
}

}  // namespace oxbow::weights
