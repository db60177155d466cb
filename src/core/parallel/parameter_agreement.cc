// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/parameter_agreement.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "core/parallel/ranks.h"

namespace oxbow::parallel {
namespace {

using Hashes = std::map<std::string, std::string>;  // By the name of the tensor.

Hashes HashEach(const std::map<std::string, at::Tensor>& tensors) {
  Hashes hashes;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor host = tensor.detach().to(at::kCPU).contiguous();
    hashes[name] = Sha256Hex({static_cast<const char*>(host.const_data_ptr()), host.nbytes()});
  }
  return hashes;
}

// "name hash" lines; names have no blanks or line ends.
std::string Written(const Hashes& hashes) {
  std::string text;
  for (const auto& [name, hash] : hashes) absl::StrAppend(&text, name, " ", hash, "\n");
  return text;
}

Hashes ReadBack(const std::string& text) {
  Hashes hashes;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    hashes[words.front()] = words.back();
  }
  return hashes;
}

std::string Difference(const std::vector<std::string>& written) {
  std::vector<Hashes> ranks;
  std::set<std::string> names;
  for (const std::string& text : written) {
    ranks.push_back(ReadBack(text));
    for (const auto& [name, hash] : ranks.back()) names.insert(name);
  }
  for (const std::string& name : names) {
    const auto of = [&](size_t rank) {
      const auto found = ranks[rank].find(name);
      return found == ranks[rank].end() ? std::string() : found->second;
    };
    std::vector<size_t> others;
    for (size_t rank = 1; rank < ranks.size(); ++rank) {
      if (of(rank) != of(0)) others.push_back(rank);
    }
    if (others.empty()) continue;
    return absl::StrCat(name, ": ", others.size() == 1 ? "rank " : "ranks ",
                        absl::StrJoin(others, ", "), others.size() == 1 ? " differs" : " differ",
                        " from rank 0");
  }
  return "none";
}

}  // namespace

absl::Status CheckAgreement(Ranks& ranks, const std::map<std::string, at::Tensor>& tensors) {
  if (ranks.size() == 1) return absl::OkStatus();
  const std::string mine = Written(HashEach(tensors));
  OXBOW_ASSIGN_OR_RETURN(const auto sums, ranks.GatherBytes(Sha256(mine)));
  const auto equals_first = [&](const std::string& sum) { return sum == sums.front(); };
  if (std::all_of(sums.begin(), sums.end(), equals_first)) return absl::OkStatus();
  OXBOW_ASSIGN_OR_RETURN(const auto all, ranks.GatherBytes(mine));
  return absl::DataLossError(absl::StrCat("ranks hold different tensors: ", Difference(all)));
}

}  // namespace oxbow::parallel
