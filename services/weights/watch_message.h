// SPDX-License-Identifier: Apache-2.0
// A WatchResponse that is sent without copying its manifest.
//
// On the wire it is the protobuf message of weight_channel.proto. Here its largest field is bytes
// that were serialised once per publication and are shared by all watchers that are told the same.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "oxbow/v1/weight_channel.pb.h"
#include "services/weights/snapshot.h"

namespace oxbow::weights {

struct WatchMessage {
  Chunk manifest;          // The field `manifest` or `delta` with its tag; null: neither.
  v1::WatchResponse rest;  // All other fields.
};

// A published manifest in the forms in which it is sent. Immutable.
class ManifestForms {
 public:
  using Shared = std::shared_ptr<const v1::SnapshotManifest>;

  // `older`: manifests that watchers may have. Serialises everything; the time is that of their
  // tensors, not of their bytes.
  ManifestForms(Shared manifest, const std::vector<Shared>& older);

  const v1::SnapshotManifest& manifest() const { return *manifest_; }

  // The smallest field that tells it to a watcher whose manifest has the hash `from_sha256`.
  const Chunk& For(const std::string& from_sha256) const;

 private:
  Shared manifest_;
  Chunk whole_;
  std::map<std::string, Chunk> deltas_;  // By hash of the older manifest.
};

// The index of Watch in service WeightChannel.
inline constexpr int kWatchMethod = 0;

}  // namespace oxbow::weights

template <>
class grpc::SerializationTraits<oxbow::weights::WatchMessage> {
 public:
  static grpc::Status Serialize(const oxbow::weights::WatchMessage& message,
                                grpc::ByteBuffer* buffer, bool* own_buffer);
};
