// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/ranks.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/sha256.h"
#include "base/status_macros.h"

namespace oxbow::parallel {
namespace {

class Done final : public Pending {
 public:
  explicit Done(absl::Status status) : status_(std::move(status)) {}
  absl::Status Wait() override { return status_; }

 private:
  const absl::Status status_;
};

class SingleRank final : public Ranks {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  absl::Status AllReduceSum(at::Tensor&) override { return State(); }
  absl::Status AllReduceMax(at::Tensor&) override { return State(); }
  std::unique_ptr<Pending> StartAllReduceSum(const at::Tensor&) override {
    return std::make_unique<Done>(State());
  }
  std::unique_ptr<Pending> StartReduceSum(const at::Tensor&, int root) override {
    OXBOW_CHECK(root == 0) << "root " << root;
    return std::make_unique<Done>(State());
  }
  absl::Status ReduceScatterSum(const at::Tensor& input, at::Tensor& output) override {
    return Copy(input, output);
  }
  absl::Status AllGather(const at::Tensor& input, at::Tensor& output) override {
    return Copy(input, output);
  }
  absl::Status Broadcast(at::Tensor&, int root) override {
    OXBOW_CHECK(root == 0) << "root " << root;
    return State();
  }
  std::unique_ptr<Pending> StartBroadcast(const at::Tensor&, int root) override {
    OXBOW_CHECK(root == 0) << "root " << root;
    return std::make_unique<Done>(State());
  }
  absl::Status Barrier() override { return State(); }

  absl::StatusOr<std::vector<std::string>> GatherBytes(std::string_view mine) override {
    OXBOW_RETURN_IF_ERROR(State());
    return std::vector<std::string>{std::string(mine)};
  }
  absl::Status BroadcastBytes(std::string&, int root) override {
    OXBOW_CHECK(root == 0) << "root " << root;
    return State();
  }

  void Abort(const absl::Status& why) override {
    const absl::MutexLock lock(&mutex_);
    if (state_.ok()) state_ = why;
  }

 private:
  absl::Status State() const {
    const absl::MutexLock lock(&mutex_);
    return state_;
  }

  absl::Status Copy(const at::Tensor& input, at::Tensor& output) const {
    OXBOW_CHECK(input.sizes() == output.sizes() && input.dtype() == output.dtype())
        << input.sizes() << " into " << output.sizes();
    OXBOW_RETURN_IF_ERROR(State());
    const at::NoGradGuard no_grad;
    output.copy_(input);
    return absl::OkStatus();
  }

  mutable absl::Mutex mutex_;
  absl::Status state_ ABSL_GUARDED_BY(mutex_);
};

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

std::unique_ptr<Ranks> MakeSingleRank() { return std::make_unique<SingleRank>(); }

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
