// SPDX-License-Identifier: Apache-2.0
// The memory that a disk that fails (faulty_disk.h) shares with the processes that use it.
#pragma once

#include <atomic>

namespace oxbow::testing {

// Variables that name the shared file, and the directory whose files are hit.
inline constexpr char kDiskFaultFile[] = "OXBOW_TEST_DISK_FAULT";
inline constexpr char kDiskFaultBelow[] = "OXBOW_TEST_DISK_BELOW";

struct DiskFault {
  std::atomic<int> error = 0;  // An errno: ENOSPC, EIO, ESTALE; 0: the disk is well.
};

}  // namespace oxbow::testing
