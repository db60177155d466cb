// SPDX-License-Identifier: Apache-2.0
// A manifest as what differs from an older one. Of a run that trains an adapter a manifest names
// gigabytes of frozen weights, and they are the same in every version.
//
// For all manifests with tensors in name order ManifestFrom(older, DeltaOf(older, newer)) is newer.
// The result of a delta is a manifest from the wire like any other: check its hash.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "oxbow/v1/weight_channel.pb.h"
#include "services/weights/snapshot.h"

namespace oxbow::weights {

// Requires tensors in name order in both.
v1::ManifestDelta DeltaOf(const v1::SnapshotManifest& older, const v1::SnapshotManifest& newer);

// kFailedPrecondition if the delta is to another manifest than `older`; kInvalidArgument if it
// removes a tensor that is not there, or its tensors are not in name order.
absl::StatusOr<v1::SnapshotManifest> ManifestFrom(const v1::SnapshotManifest& older,
                                                  const v1::ManifestDelta& delta);

// A published manifest in the forms in which watchers are told of it, each serialised once and
// shared by all that are told the same. Immutable.
class ManifestForms {
 public:
  using Shared = std::shared_ptr<const v1::SnapshotManifest>;

  // `older`: manifests that watchers may have. Serialises everything; the time is that of their
  // tensors, not of their bytes.
  ManifestForms(Shared manifest, const std::vector<Shared>& older);

  const v1::SnapshotManifest& manifest() const { return *manifest_; }

  // The field `manifest` or `delta` of a WatchResponse with its tag: the smallest one that tells it
  // to a watcher whose manifest has the hash `from_sha256`.
  const Chunk& For(const std::string& from_sha256) const;

 private:
  Shared manifest_;
  Chunk whole_;
  std::map<std::string, Chunk> deltas_;  // By hash of the older manifest.
};

}  // namespace oxbow::weights
