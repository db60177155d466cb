// SPDX-License-Identifier: Apache-2.0
#include "services/weights/snapshot.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "rpc/convert.h"

namespace oxbow::weights {
namespace {

constexpr size_t kSha256Bytes = 32;

v1::Tensor HeaderOf(const v1::TensorManifest& tensor) {
  v1::Tensor header;
  header.set_dtype(tensor.dtype());
  *header.mutable_shape() = tensor.shape();
  return header;
}

uint64_t BytesOf(const v1::TensorManifest& tensor) {
  const absl::StatusOr<uint64_t> bytes = rpc::DeclaredBytes(HeaderOf(tensor), UINT64_MAX);
  OXBOW_CHECK(bytes.ok()) << "tensor of an unchecked manifest: " << tensor.name();
  return *bytes;
}

absl::Status CheckTensor(const v1::TensorManifest& tensor, uint64_t chunk_bytes,
                         uint64_t& bytes_left) {
  OXBOW_ASSIGN_OR_RETURN(const uint64_t bytes, rpc::DeclaredBytes(HeaderOf(tensor), bytes_left));
  bytes_left -= bytes;
  const uint64_t expected = bytes / chunk_bytes + (bytes % chunk_bytes != 0);
  if (static_cast<uint64_t>(tensor.chunk_sha256_size()) != expected) {
    return absl::InvalidArgumentError(absl::StrCat("number of chunks does not fit the shape: ",
                                                   tensor.chunk_sha256_size(), ", not ", expected));
  }
  if (tensor.chunk_xxh3_size() != tensor.chunk_sha256_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunks and checksums differ in number: ", tensor.chunk_sha256_size(), " and ",
                     tensor.chunk_xxh3_size()));
  }
  for (const std::string& hash : tensor.chunk_sha256()) {
    if (hash.size() != kSha256Bytes)
      return absl::InvalidArgumentError("chunk hash is not 32 bytes");
  }
  for (const std::string& checksum : tensor.chunk_xxh3()) {
    if (checksum.size() != kChecksumBytes)
      return absl::InvalidArgumentError("chunk checksum is not 16 bytes");
  }
  return absl::OkStatus();
}

}  // namespace

std::string HashTensors(const v1::SnapshotManifest& manifest,
                        const std::function<bool(const std::string& name)>& include) {
  // Each string is hashed after its length, so that no two lists of tensors give the same text.
  std::string text = absl::StrCat("chunk_bytes ", manifest.chunk_bytes(), "\n");
  for (const v1::TensorManifest& tensor : manifest.tensors()) {
    if (!include(tensor.name())) continue;
    absl::StrAppend(&text, tensor.name().size(), " ", tensor.name(), " ",
                    static_cast<int>(tensor.dtype()), " ", tensor.shape_size());
    for (const int64_t size : tensor.shape()) absl::StrAppend(&text, " ", size);
    absl::StrAppend(&text, " ", tensor.chunk_sha256_size(), "\n");
    for (const std::string& hash : tensor.chunk_sha256()) text += hash;
    for (const std::string& checksum : tensor.chunk_xxh3()) text += checksum;
  }
  return Sha256(text);
}

absl::Status CheckManifest(const v1::SnapshotManifest& manifest, uint64_t bytes_max) {
  if (manifest.chunk_bytes() == 0 || manifest.chunk_bytes() > kSnapshotChunkBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("manifest has a bad chunk size: ", manifest.chunk_bytes()));
  }
  if (manifest.sha256() != HashTensors(manifest, [](const std::string&) { return true; })) {
    return absl::DataLossError(absl::StrCat("manifest does not match its hash: policy version ",
                                            manifest.policy_version()));
  }
  uint64_t bytes_left = bytes_max;
  const std::string* previous = nullptr;
  for (const v1::TensorManifest& tensor : manifest.tensors()) {
    if (previous != nullptr && *previous >= tensor.name()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensors are not in name order: ", tensor.name()));
    }
    previous = &tensor.name();
    OXBOW_RETURN_IF_ERROR(
        Annotate(CheckTensor(tensor, manifest.chunk_bytes(), bytes_left), tensor.name()));
  }
  return absl::OkStatus();
}

std::vector<ChunkSize> ChunksOf(const v1::SnapshotManifest& manifest) {
  std::vector<ChunkSize> chunks;
  std::set<std::string> seen;
  for (const v1::TensorManifest& tensor : manifest.tensors()) {
    uint64_t left = BytesOf(tensor);
    for (int i = 0; i < tensor.chunk_sha256_size(); ++i) {
      const uint64_t bytes = std::min<uint64_t>(left, manifest.chunk_bytes());
      left -= bytes;
      if (!seen.insert(tensor.chunk_sha256(i)).second) continue;
      chunks.push_back({tensor.chunk_sha256(i), bytes, tensor.chunk_xxh3(i)});
    }
  }
  return chunks;
}

io::TensorBytes AssembleTensor(const v1::TensorManifest& entry, const ChunksByHash& chunks) {
  std::string data;
  data.reserve(BytesOf(entry));
  for (const std::string& hash : entry.chunk_sha256()) data += *chunks.at(hash);
  absl::StatusOr<io::TensorBytes> tensor = rpc::TensorFromProto(HeaderOf(entry), std::move(data));
  OXBOW_CHECK(tensor.ok()) << entry.name() << ": " << tensor.status();
  return *std::move(tensor);
}

TensorBytesByName AssembleTensors(const v1::SnapshotManifest& manifest,
                                  const ChunksByHash& chunks) {
  TensorBytesByName tensors;
  for (const v1::TensorManifest& entry : manifest.tensors()) {
    tensors.emplace(entry.name(), AssembleTensor(entry, chunks));
  }
  return tensors;
}

}  // namespace oxbow::weights
