#include "base/freed_memory.h"

#include <cstdlib>  // Says which library it is.

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace oxbow {

void KeepFreedMemory() {
#ifdef __GLIBC__
  // Blocks below the first come from the heap, which shrinks when more than the second is free at
  // its end. Setting either also stops glibc from moving the first by itself.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}

}  // namespace oxbow
