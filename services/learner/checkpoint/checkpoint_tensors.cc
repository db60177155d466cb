// SPDX-License-Identifier: Apache-2.0
#include "services/learner/checkpoint/checkpoint_tensors.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"
#include "io/weight_files.h"
#include "rpc/convert.h"

namespace oxbow::learner {
namespace {

constexpr int64_t kWrittenAtOnce = int64_t{1} << 20;  // Elements.

std::string_view BytesOf(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// Elements [begin, begin + length) of `values`, whose memory is given back on the way.
absl::Status WriteAndRelease(parallel::HostCopy& values, int64_t begin, int64_t length,
                             const WritePiece& write) {
  std::vector<float> held(static_cast<size_t>(std::min(length, kWrittenAtOnce)));
  for (const int64_t end = begin + length; begin < end;) {
    const std::span<float> part(held.data(),
                                static_cast<size_t>(std::min(kWrittenAtOnce, end - begin)));
    values.Read(begin, part);
    begin += static_cast<int64_t>(part.size());
    values.Release(begin);
    OXBOW_RETURN_IF_ERROR(write({reinterpret_cast<const char*>(part.data()), part.size_bytes()}));
  }
  return absl::OkStatus();
}

constexpr char kToken[] = "ranks_token";
constexpr int kLooks = 20;  // A file system of several machines may show a new file late.
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(250);

absl::Status Unfit(const std::string& what, const std::string& file) {
  return absl::DataLossError(absl::StrCat("piece of the optimiser ", what, ": ", file));
}

// The names of all pieces in rank order; none if there is none.
absl::StatusOr<std::vector<std::string>> PiecesOf(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const std::string& file : checkpoint.files) {
    int rank = 0;
    int ranks = 0;
    if (std::sscanf(file.c_str(), "optimizer.rank%d-of-%d.", &rank, &ranks) != 2) continue;
    if (names.empty()) {
      for (int r = 0; r < ranks; ++r) names.push_back(PieceName(r, ranks));
    }
    if (static_cast<size_t>(ranks) != names.size()) return Unfit("is of other ranks", file);
  }
  for (const std::string& name : names) {
    if (!checkpoint.files.contains(name)) return Unfit("is missing", name);
  }
  return names;
}

absl::StatusOr<std::vector<io::WeightFiles>> Opened(const Checkpoint& checkpoint,
                                                    const std::vector<std::string>& names) {
  std::vector<io::WeightFiles> files;
  for (const std::string& name : names) {
    OXBOW_ASSIGN_OR_RETURN(io::WeightFiles file,
                           io::WeightFiles::OpenFile(checkpoint.directory / name));
    files.push_back(std::move(file));
  }
  return files;
}

// One moment from all files, whose bytes lie one after another.
absl::StatusOr<at::Tensor> JoinOne(const std::string& name, const std::vector<std::string>& names,
                                   const std::vector<io::WeightFiles>& files) {
  const auto dtype = files.front().headers().at(name).dtype;
  std::vector<int64_t> length = {0};
  for (size_t i = 0; i < files.size(); ++i) {
    const auto found = files[i].headers().find(name);
    if (found == files[i].headers().end()) return Unfit("lacks " + name, names[i]);
    if (found->second.dtype != dtype || found->second.shape.size() != 1) {
      return Unfit("has another type or shape of " + name, names[i]);
    }
    length[0] += found->second.shape[0];
  }
  at::Tensor whole = at::empty(length, io::ScalarTypeOf(dtype));
  char* to = static_cast<char*>(whole.mutable_data_ptr());
  for (const io::WeightFiles& file : files) {
    const auto bytes = file.BytesOf(name);
    std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size();
    file.Release(name);
  }
  return whole;
}

}  // namespace

FlatCopy CopyOf(const model::ParameterSet& parameters) {
  return {.values = parallel::HostCopy(parameters.flat()),
          .shapes = ShapesOf(parameters.tensors())};
}

FileContent ContentOf(FlatCopy& copy) {
  return [&copy](const WritePiece& write) -> absl::Status {
    std::map<std::string, io::TensorHeader> headers;
    std::map<std::string, int64_t> begins;
    int64_t begin = 0;
    for (const auto& [name, shape] : copy.shapes) {
      headers[name] = {.dtype = io::DType::kF32, .shape = shape};
      begins[name] = std::exchange(begin, begin + c10::multiply_integers(shape));
    }
    return io::StreamSafetensors(
        headers, /*metadata=*/{},
        [&](const std::string& name, const WritePiece& write_bytes) {
          const int64_t length = c10::multiply_integers(copy.shapes.at(name));
          return WriteAndRelease(copy.values, begins.at(name), length, write_bytes);
        },
        write);
  };
}

FileContent ContentOf(TensorCopies& copies) {
  return [&copies](const WritePiece& write) -> absl::Status {
    std::map<std::string, io::TensorHeader> headers;
    for (const auto& [name, tensor] : copies.small) headers[name] = io::HeaderOf(tensor);
    for (const auto& [name, flat] : copies.flat) {
      headers[name] = {.dtype = io::DType::kF32, .shape = {flat.length()}};
    }
    return io::StreamSafetensors(
        headers, /*metadata=*/{},
        [&](const std::string& name, const WritePiece& write_bytes) {
          const auto found = copies.flat.find(name);
          if (found == copies.flat.end()) return write_bytes(BytesOf(copies.small.at(name)));
          return WriteAndRelease(found->second, 0, found->second.length(), write_bytes);
        },
        write);
  };
}

FileContent ContentOf(weights::Snapshot& cut) {
  return [&cut](const WritePiece& write) -> absl::Status {
    std::map<std::string, io::TensorHeader> headers;
    std::map<std::string, const v1::TensorManifest*> entries;
    std::map<std::string, int> uses;  // Equal pieces of tensors are one chunk.
    for (const v1::TensorManifest& tensor : cut.manifest.tensors()) {
      OXBOW_ASSIGN_OR_RETURN(const io::DType dtype, rpc::DTypeFromProto(tensor.dtype()));
      headers[tensor.name()] = {.dtype = dtype,
                                .shape = {tensor.shape().begin(), tensor.shape().end()}};
      entries[tensor.name()] = &tensor;
      for (const std::string& hash : tensor.chunk_sha256()) ++uses[hash];
    }
    return io::StreamSafetensors(
        headers, /*metadata=*/{},
        [&](const std::string& name, const WritePiece& write_bytes) -> absl::Status {
          for (const std::string& hash : entries.at(name)->chunk_sha256()) {
            OXBOW_RETURN_IF_ERROR(write_bytes(*cut.chunks.at(hash)));
            if (--uses.at(hash) == 0) cut.chunks.erase(hash);
          }
          return absl::OkStatus();
        },
        write);
  };
}

absl::StatusOr<model::NamedTensors> TensorsOf(const Checkpoint& checkpoint,
                                              const std::string& file) {
  if (!checkpoint.files.contains(file)) {
    return absl::DataLossError(absl::StrCat("checkpoint lacks a file: ", file));
  }
  OXBOW_ASSIGN_OR_RETURN(const io::WeightFiles mapped,
                         io::WeightFiles::OpenFile(checkpoint.directory / file));
  model::NamedTensors tensors;
  for (const auto& [name, header] : mapped.headers()) {
    tensors[name] = io::CopyOf(header.dtype, header.shape, mapped.BytesOf(name));
    mapped.Release(name);
  }
  return tensors;
}

absl::StatusOr<model::NamedTensors> OwedWeightsOf(const Checkpoint& checkpoint,
                                                  uint64_t committed) {
  const std::vector<uint64_t>& owed = checkpoint.state.owed_evaluations;
  if (owed.empty() || committed != owed.front()) {
    return absl::DataLossError(absl::StrCat("the checkpoint has no weights of step ", committed));
  }
  return TensorsOf(checkpoint, kOwedWeights);
}

std::string PieceName(int rank, int ranks) {
  return absl::StrFormat("optimizer.rank%d-of-%d.safetensors", rank, ranks);
}

absl::StatusOr<FileDigest> WritePieceOf(int rank, int ranks,
                                        const std::filesystem::path& run_directory,
                                        uint64_t committed_steps, TensorCopies piece) {
  const std::filesystem::path directory =
      UnfinishedCheckpoint(run_directory / "checkpoints", committed_steps);
  return WriteContent(directory / PieceName(rank, ranks), ContentOf(piece));
}

absl::StatusOr<model::NamedTensors> JoinPieces(const Checkpoint& checkpoint) {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<std::string> names, PiecesOf(checkpoint));
  model::NamedTensors moments;
  if (names.empty()) return moments;
  OXBOW_ASSIGN_OR_RETURN(const std::vector<io::WeightFiles> files, Opened(checkpoint, names));
  for (const auto& [name, header] : files.front().headers()) {
    OXBOW_ASSIGN_OR_RETURN(moments[name], JoinOne(name, names, files));
  }
  return moments;
}

absl::Status CheckDirectoryIsShared(parallel::Ranks& ranks,
                                    const std::filesystem::path& run_directory) {
  std::string token;
  absl::Status written;
  if (ranks.rank() == 0) {
    token = absl::StrFormat("%016x\n", RandomBits());
    written = WriteFileAtomically(run_directory / kToken, token);
  }
  OXBOW_RETURN_IF_ERROR(ranks.BroadcastBytes(token, 0));
  bool seen = false;
  for (int look = 0; look < kLooks && !seen; ++look) {
    if (look > 0) absl::SleepFor(kBetweenLooks);
    const absl::StatusOr<std::string> found = ReadFile(run_directory / kToken, 4096);
    seen = found.ok() && *found == token;
    if (ranks.rank() == 0) break;
  }
  OXBOW_ASSIGN_OR_RETURN(const std::vector<std::string> all, ranks.GatherBytes(seen ? "1" : "0"));
  OXBOW_RETURN_IF_ERROR(written);
  std::vector<std::string> blind;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != "1") blind.push_back(absl::StrCat(rank));
  }
  if (blind.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "learner ranks do not share the run directory: rank ", absl::StrJoin(blind, ", "),
      " does not see what rank 0 writes; put it on a file system of all machines (--run-dir), or "
      "set model.memory: whole_optimizer: ",
      run_directory.string()));
}

}  // namespace oxbow::learner
