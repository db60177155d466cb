// What the C library does with memory that was freed.
#pragma once

namespace oxbow {

// Keeps up to a few hundred megabytes of it for the next allocation instead of giving every large
// block back to the system at once: processes through which weights and latents run would pay more
// for fresh pages than for receiving the bytes. Call first thing in main.
void KeepFreedMemory();

}  // namespace oxbow
