// SPDX-License-Identifier: Apache-2.0
// The table of weights that a process lends to others on its GPU (lent_base.h): where each tensor
// is in a block of the GPU's memory. Its text ends with a checksum of what comes before. Pure.
#pragma once

#include <c10/core/ScalarType.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/named_tensors.h"

namespace oxbow::model {

struct LentTensor {
  at::ScalarType type = at::kFloat;  // Or kBFloat16.
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // Its first byte in the block, a multiple of kLentStep.

  bool operator==(const LentTensor&) const = default;
};

inline constexpr uint64_t kLentAlignment = 512;  // Bytes: that of torch's own allocator.
inline constexpr uint64_t kLentStep = 16;        // Bytes that a kernel loads at once.

struct LentTable {
  std::string machine;  // MachineId of base/process.h.
  std::string gpu;      // GpuId of gpu_block.h.
  pid_t lender = 0;     // The process whose block it is.
  std::string handle;   // The block's, for other processes.
  uint64_t bytes = 0;   // The size of the block.
  std::map<std::string, LentTensor> tensors;

  bool operator==(const LentTable&) const = default;
};

// Bytes of the tensor; nothing where they are more than 2^63 or a size is negative.
std::optional<uint64_t> LentBytes(const LentTensor& tensor);

// Gives each tensor its place, one behind the other; without lender and handle. `types`: of the
// tensors of `shapes`. Tensors of one of `groups` follow one another without a gap
// (side_by_side.h), where their bytes are whole steps; others begin at multiples of kLentAlignment.
// kInvalidArgument for another type than float32 and bfloat16, and for more bytes than 2^63.
absl::StatusOr<LentTable> PlacedTensors(const Shapes& shapes,
                                        const std::map<std::string, at::ScalarType>& types,
                                        const std::vector<std::vector<std::string>>& groups = {});

std::string LentText(const LentTable& table);
// kDataLoss for a text that is damaged, or cut, or says that a tensor is outside the block.
absl::StatusOr<LentTable> ParseLent(std::string_view text);

}  // namespace oxbow::model
