// SPDX-License-Identifier: Apache-2.0
// The settings of the rehearsal device, from the environment. Read once, when it is first used.
//
//   OXBOW_REHEARSAL_DEVICES=2          GPUs of this machine; 1 unless told, 0: a machine without
//   OXBOW_REHEARSAL_MEMORY=80e9        bytes of a GPU; more throws c10::OutOfMemoryError, as on
//                                      CUDA
//   OXBOW_REHEARSAL_FAIL=120           the allocation of this number throws it
//   OXBOW_REHEARSAL_FAIL_IN=learner    only in the program of this name
//   OXBOW_REHEARSAL_IPC=no             memory is not shared with other processes
//   OXBOW_REHEARSAL_MODE=late          now: kernels run when they are launched (unless told)
//                                      late: they run when somebody waits for them, and not before
//                                      dry: no arithmetic and no memory, shapes alone
//   OXBOW_REHEARSAL_LOG=DIR            each process writes DIR/<program>-<pid>.json when it ends
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace oxbow::rehearsal {

enum class Mode { kNow, kLate, kDry };

struct Settings {
  int devices = 1;
  size_t memory_bytes = std::numeric_limits<size_t>::max();
  uint64_t failing_allocation = 0;  // From 1; 0: none.
  bool shares_memory = true;        // With other processes.
  Mode mode = Mode::kNow;
  std::string log_directory;
};

// Writable for tests, before the device is used. Ends the process with a line on stderr if the
// environment is wrong.
Settings& TheSettings();

}  // namespace oxbow::rehearsal
