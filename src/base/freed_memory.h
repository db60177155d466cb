// SPDX-License-Identifier: Apache-2.0
// How the C library treats freed memory.
#pragma once

#include <cstddef>

namespace oxbow {

inline constexpr size_t kMebibyte = size_t{1} << 20;

// Keeps up to `bytes` of freed memory for the next allocation, instead of returning every large
// block to the system at once. In processes that receive weights and latents, fresh pages would
// cost more than receiving the bytes. Call it first in main.
void KeepFreedMemory(size_t bytes = 256 * kMebibyte);

// Gives all freed pages back to the system now, wherever they are in the heap: after much was freed
// that does not come again.
void ReturnFreedMemory();

}  // namespace oxbow
