// SPDX-License-Identifier: Apache-2.0
#include "services/weights/watch_message.h"

#include <grpcpp/support/slice.h>

#include <utility>

#include "services/weights/manifest_delta.h"

namespace oxbow::weights {
namespace {

// A WatchResponse with nothing but this field is the field with its tag.
Chunk Encoded(const v1::WatchResponse& alone) {
  return std::make_shared<const std::string>(alone.SerializeAsString());
}

}  // namespace

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

// Protobuf fields may come in any order and in several slices.
grpc::Status grpc::SerializationTraits<oxbow::weights::WatchMessage>::Serialize(
    const oxbow::weights::WatchMessage& message, grpc::ByteBuffer* buffer, bool* own_buffer) {
  *own_buffer = true;
  const grpc::Slice rest(message.rest.SerializeAsString());
  if (message.manifest == nullptr) {
    *buffer = grpc::ByteBuffer(&rest, 1);
    return grpc::Status::OK;
  }
  using oxbow::weights::Chunk;
  char* shared = const_cast<char*>(message.manifest->data());  // It is only read.
  const grpc::Slice slices[] = {
      grpc::Slice(
          shared, message.manifest->size(), [](void* chunk) { delete static_cast<Chunk*>(chunk); },
          new Chunk(message.manifest)),
      rest};
  *buffer = grpc::ByteBuffer(slices, 2);
  return grpc::Status::OK;
}
