// How the C library treats freed memory.
#pragma once

namespace oxbow {

// Keeps up to a few hundred megabytes of freed memory for the next allocation, instead of returning
// every large block to the system at once. In processes that receive weights and latents, fresh
// pages would cost more than receiving the bytes. Call it first in main.
void KeepFreedMemory();

}  // namespace oxbow
