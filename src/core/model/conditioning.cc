// SPDX-License-Identifier: Apache-2.0
#include "core/model/conditioning.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/check.h"
#include "core/model/layers.h"

namespace oxbow::model {
namespace {

constexpr uint64_t kBytesOfFloat = 4;

// The parts of `conditioning` after `change`.
template <typename Change>
Conditioning Changed(const Conditioning& conditioning, const Change& change) {
  Conditioning changed;
  for (const auto& [name, tensor] : conditioning) {
    changed.emplace_hint(changed.end(), name, change(tensor));
  }
  return changed;
}

}  // namespace

std::vector<int64_t> ShapeOf(const ConditioningPart& part, int64_t rows, int64_t tokens) {
  std::vector<int64_t> shape = {rows};
  for (const int64_t size : part.shape) shape.push_back(size == kPromptLength ? tokens : size);
  return shape;
}

uint64_t ConditioningBytes(const std::vector<ConditioningPart>& parts, int64_t tokens) {
  uint64_t bytes = 0;
  for (const ConditioningPart& part : parts) {
    uint64_t numbers = 1;
    for (const int64_t size : ShapeOf(part, 1, tokens)) numbers *= static_cast<uint64_t>(size);
    bytes += kBytesOfFloat * numbers;
  }
  return bytes;
}

int64_t PromptLengthOf(const std::vector<ConditioningPart>& parts, const Conditioning& conditioning,
                       int64_t absent) {
  for (const ConditioningPart& part : parts) {
    const auto length = std::find(part.shape.begin(), part.shape.end(), kPromptLength);
    const auto found = conditioning.find(part.name);
    if (length == part.shape.end() || found == conditioning.end()) continue;
    return found->second.size(1 + (length - part.shape.begin()));
  }
  return absent;
}

uint64_t BytesOf(const Conditioning& conditioning) {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : conditioning) bytes += tensor.nbytes();
  return bytes;
}

Conditioning MovedTo(const Conditioning& conditioning, at::Device device) {
  return Changed(conditioning, [&](const at::Tensor& tensor) { return tensor.to(device); });
}

Conditioning NarrowRows(const Conditioning& conditioning, int64_t first, int64_t count) {
  return Changed(conditioning,
                 [&](const at::Tensor& tensor) { return tensor.narrow(0, first, count); });
}

Conditioning SelectRows(const Conditioning& conditioning, const at::Tensor& index) {
  return Changed(conditioning, [&](const at::Tensor& tensor) {
    return tensor.index_select(0, index.to(tensor.device()));
  });
}

Conditioning ConcatRows(const std::vector<Conditioning>& conditionings) {
  OXBOW_CHECK(!conditionings.empty()) << "conditioning of no rows";
  Conditioning all;
  for (const auto& [name, first] : conditionings.front()) {
    std::vector<at::Tensor> parts;
    parts.reserve(conditionings.size());
    for (const Conditioning& conditioning : conditionings) {
      const auto found = conditioning.find(name);
      OXBOW_CHECK(found != conditioning.end()) << "a conditioning has no part: " << name;
      parts.push_back(found->second);
    }
    all.emplace_hint(all.end(), name, at::cat(parts));
  }
  for (const Conditioning& conditioning : conditionings) {
    OXBOW_CHECK(conditioning.size() == all.size())
        << "conditionings have " << all.size() << " and " << conditioning.size() << " parts";
  }
  return all;
}

Conditioning BroadcastRows(const Conditioning& conditioning, int64_t rows) {
  return Changed(conditioning,
                 [&](const at::Tensor& tensor) { return BroadcastRows(tensor, rows); });
}

}  // namespace oxbow::model
