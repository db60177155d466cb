// SPDX-License-Identifier: Apache-2.0
// Latents as they were read: pieces of memory, back to back, which can be sent without a copy.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace oxbow::buffer {

struct LatentPieces {
  std::vector<std::string_view> pieces;
  std::shared_ptr<const void> memory;  // Holds the pieces. Those who still send them share it.

  uint64_t bytes() const;
  // At most `count` bytes from `offset` on, in the same memory.
  LatentPieces Part(uint64_t offset, uint64_t count) const;
  std::string Joined() const;
};

}  // namespace oxbow::buffer
