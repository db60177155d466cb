// SPDX-License-Identifier: Apache-2.0
// Host memory that a device may read and write while the host goes on.
#pragma once

#include <c10/core/Allocator.h>

namespace oxbow::rehearsal {

c10::Allocator* PinnedMemory();
bool IsPinned(const void* address);

}  // namespace oxbow::rehearsal
