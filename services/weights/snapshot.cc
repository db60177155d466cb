#include "services/weights/snapshot.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "rpc/convert.h"

namespace oxbow::weights {
namespace {

constexpr uint64_t kChunkBytesMax = 4 << 20;
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

void AddTensor(const std::string& name, const io::TensorBytes& tensor, uint64_t chunk_bytes,
               Snapshot& snapshot) {
  v1::TensorManifest& entry = *snapshot.manifest.add_tensors();
  entry.set_name(name);
  entry.set_dtype(rpc::ToProto(tensor.dtype));
  entry.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  rpc::ForEachChunk(tensor.data, chunk_bytes, [&](uint64_t, std::string_view piece) {
    std::string hash = Sha256(piece);
    entry.add_chunk_sha256(hash);
    Chunk& chunk = snapshot.chunks[std::move(hash)];
    if (chunk == nullptr) chunk = std::make_shared<const std::string>(piece);
    return true;
  });
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
  for (const std::string& hash : tensor.chunk_sha256()) {
    if (hash.size() != kSha256Bytes)
      return absl::InvalidArgumentError("chunk hash is not 32 bytes");
  }
  return absl::OkStatus();
}

}  // namespace

Snapshot MakeSnapshot(SnapshotIdentity identity, const TensorBytesByName& frozen,
                      const TensorBytesByName& trained, uint64_t chunk_bytes) {
  OXBOW_CHECK(chunk_bytes > 0 && chunk_bytes <= kChunkBytesMax) << "chunk size " << chunk_bytes;
  Snapshot snapshot;
  v1::SnapshotManifest& manifest = snapshot.manifest;
  manifest.set_epoch(identity.epoch.value);
  manifest.set_policy_version(identity.version.value);
  manifest.set_learner_step(identity.step.value);
  manifest.set_chunk_bytes(chunk_bytes);
  std::map<std::string, const io::TensorBytes*> all;
  for (const auto& [name, tensor] : frozen) all[name] = &tensor;
  for (const auto& [name, tensor] : trained) all[name] = &tensor;
  OXBOW_CHECK(all.size() == frozen.size() + trained.size()) << "a tensor is frozen and trained";
  for (const auto& [name, tensor] : all) AddTensor(name, *tensor, chunk_bytes, snapshot);
  manifest.set_sha256(HashTensors(manifest, [](const std::string&) { return true; }));
  manifest.set_base_sha256(
      HashTensors(manifest, [&](const std::string& name) { return frozen.contains(name); }));
  return snapshot;
}

std::string HashTensors(const v1::SnapshotManifest& manifest,
                        const std::function<bool(const std::string& name)>& include) {
  // Lengths go in before what they measure, so that no two lists of tensors
  // read alike.
  std::string text = absl::StrCat("chunk_bytes ", manifest.chunk_bytes(), "\n");
  for (const v1::TensorManifest& tensor : manifest.tensors()) {
    if (!include(tensor.name())) continue;
    absl::StrAppend(&text, tensor.name().size(), " ", tensor.name(), " ",
                    static_cast<int>(tensor.dtype()), " ", tensor.shape_size());
    for (const int64_t size : tensor.shape()) absl::StrAppend(&text, " ", size);
    absl::StrAppend(&text, " ", tensor.chunk_sha256_size(), "\n");
    for (const std::string& hash : tensor.chunk_sha256()) text += hash;
  }
  return Sha256(text);
}

absl::Status CheckManifest(const v1::SnapshotManifest& manifest, uint64_t bytes_max) {
  if (manifest.chunk_bytes() == 0 || manifest.chunk_bytes() > kChunkBytesMax) {
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
    for (const std::string& hash : tensor.chunk_sha256()) {
      const uint64_t bytes = std::min<uint64_t>(left, manifest.chunk_bytes());
      left -= bytes;
      if (seen.insert(hash).second) chunks.push_back({hash, bytes});
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
