// SPDX-License-Identifier: Apache-2.0
// A manifest as what differs from an older one. Of a run that trains an adapter a manifest names
// gigabytes of frozen weights, and they are the same in every version.
//
// For all manifests with tensors in name order ManifestFrom(older, DeltaOf(older, newer)) is newer.
// The result of a delta is a manifest from the wire like any other: check its hash.
#pragma once

#include "absl/status/statusor.h"
#include "oxbow/v1/weight_channel.pb.h"

namespace oxbow::weights {

// Requires tensors in name order in both.
v1::ManifestDelta DeltaOf(const v1::SnapshotManifest& older, const v1::SnapshotManifest& newer);

// kFailedPrecondition if the delta is to another manifest than `older`; kInvalidArgument if it
// removes a tensor that is not there, or its tensors are not in name order.
absl::StatusOr<v1::SnapshotManifest> ManifestFrom(const v1::SnapshotManifest& older,
                                                  const v1::ManifestDelta& delta);

}  // namespace oxbow::weights
