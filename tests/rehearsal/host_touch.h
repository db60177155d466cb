// SPDX-License-Identifier: Apache-2.0
// The host must not read or write device memory.
#pragma once

namespace oxbow::rehearsal {

// From now on a touch, in any thread, prints THE HOST TOUCHED DEVICE MEMORY, the GPU and a stack on
// stderr, and ends the process with SIGSEGV. Other faults go to the handler that was there before.
void DieWhenTheHostTouchesDeviceMemory();

}  // namespace oxbow::rehearsal
