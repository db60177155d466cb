// SPDX-License-Identifier: Apache-2.0
// OXBOW_VECTORS before a function with simple loops: it is compiled for several processors, and the
// loader takes the best one.
#pragma once

// The loader's choice runs before a sanitizer is ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define OXBOW_VECTORS \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#else
#define OXBOW_VECTORS
#endif
