// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace c10::cuda::CUDACachingAllocator {

inline void emptyCache() { getDeviceAllocator(DeviceType::CUDA)->emptyCache(); }
// For a capture that broke before the allocator heard of it; here it always hears.
inline void endAllocateToPool(DeviceIndex, MempoolId_t) {}

}  // namespace c10::cuda::CUDACachingAllocator
