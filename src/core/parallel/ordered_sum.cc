// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/ordered_sum.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "core/parallel/ranks.h"

namespace oxbow::parallel {

OrderedSum::OrderedSum(Ranks& ranks, std::vector<int> owners)
    : ranks_(ranks),
      owners_(std::move(owners)),
      next_(static_cast<size_t>(std::find(owners_.begin(), owners_.end(), ranks.rank()) -
                                owners_.begin())) {
  OXBOW_CHECK(std::is_sorted(owners_.begin(), owners_.end())) << "a rank's parts are no neighbours";
  OXBOW_CHECK(owners_.empty() || (owners_.front() >= 0 && owners_.back() < ranks.size()))
      << "owners from " << owners_.front() << " to " << owners_.back();
}

void OrderedSum::Add(at::Tensor part) {
  OXBOW_CHECK(next_ < owners_.size() && owners_[next_] == ranks_.rank())
      << "part " << next_ << " is not this rank's";
  const at::NoGradGuard no_grad;
  Node node{0, next_++};
  while (!nodes_.empty() && nodes_.back().IsLeftOf(node)) {
    sums_.back().ForEach(part.device(), [&](int64_t begin, const at::Tensor& piece) {
      part.narrow(0, begin, piece.numel()).add_(piece);
    });
    node = node.parent();
    nodes_.pop_back();
    sums_.pop_back();
  }
  nodes_.push_back(node);
  sums_.emplace_back(part);
}

// The nodes that Add leaves of all parts of a rank.
std::vector<OrderedSum::Node> OrderedSum::NodesOf(int rank) const {
  std::vector<Node> nodes;
  for (size_t p = 0; p < owners_.size(); ++p) {
    if (owners_[p] != rank) continue;
    Node node{0, p};
    for (; !nodes.empty() && nodes.back().IsLeftOf(node); nodes.pop_back()) node = node.parent();
    nodes.push_back(node);
  }
  return nodes;
}

absl::Status OrderedSum::Finish(int64_t total, const TakePiece& take, int64_t bytes_max) {
  const at::NoGradGuard no_grad;
  OXBOW_CHECK(next_ >= owners_.size() || owners_[next_] != ranks_.rank())
      << "part " << next_ << " was not added";
  std::vector<std::vector<Node>> nodes;
  int64_t rows = 1;  // Every rank sends as many as the one with the most; the rest is not read.
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    nodes.push_back(NodesOf(rank));
    rows = std::max(rows, static_cast<int64_t>(nodes.back().size()));
  }
  const auto options = at::TensorOptions(ranks_.device()).dtype(at::kFloat);
  const int64_t column_bytes = (ranks_.size() + 1) * rows * static_cast<int64_t>(sizeof(float));
  const int64_t piece = std::clamp<int64_t>(bytes_max / column_bytes, 1, total);
  for (int64_t begin = 0; begin < total; begin += piece) {
    const int64_t length = std::min(piece, total - begin);
    const at::Tensor sent = at::zeros({rows, length}, options);
    for (size_t i = 0; i < sums_.size(); ++i) {
      sums_[i].Read(begin, sent[static_cast<int64_t>(i)]);
    }
    at::Tensor all = at::empty({ranks_.size() * rows, length}, options);
    OXBOW_RETURN_IF_ERROR(ranks_.AllGather(sent, all));
    std::vector<std::pair<Node, at::Tensor>> left;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      for (size_t i = 0; i < nodes[static_cast<size_t>(rank)].size(); ++i) {
        Node node = nodes[static_cast<size_t>(rank)][i];
        at::Tensor sum = all[rank * rows + static_cast<int64_t>(i)];
        for (; !left.empty() && left.back().first.IsLeftOf(node); left.pop_back()) {
          sum.add_(left.back().second);
          node = node.parent();
        }
        left.emplace_back(node, sum);
      }
    }
    at::Tensor sum = at::zeros({length}, options);
    for (; !left.empty(); left.pop_back()) sum.add_(left.back().second);
    take(begin, sum);
  }
  return absl::OkStatus();
}

}  // namespace oxbow::parallel
