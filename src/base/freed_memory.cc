// SPDX-License-Identifier: Apache-2.0
#include "base/freed_memory.h"

#include <cstdlib>  // Defines __GLIBC__.

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace oxbow {

void KeepFreedMemory([[maybe_unused]] size_t bytes) {
#ifdef __GLIBC__
  // Blocks smaller than the first value come from the heap. The heap shrinks when more than the
  // second value is free at its end. Setting either one also stops glibc from changing the first by
  // itself.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, static_cast<int>(bytes));
#endif
}

void ReturnFreedMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace oxbow
