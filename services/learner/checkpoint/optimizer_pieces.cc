// SPDX-License-Identifier: Apache-2.0
#include "services/learner/checkpoint/optimizer_pieces.h"

#include <ATen/ATen.h>

#include <cstring>
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
#include "io/tensor_torch.h"
#include "io/weight_files.h"

namespace oxbow::learner {
namespace {

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
