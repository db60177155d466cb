# SPDX-License-Identifier: Apache-2.0
# Compiler, linker and cache settings shared by every target.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

# GCC 12 warns wrongly of overlapping copies in std::string (bug 105651) and of unset members behind designated
# initialisers (bug 105562).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(_gcc_only -Wno-restrict -Wno-maybe-uninitialized)
endif()
add_compile_options(-pthread -Wall -Wextra -Wno-missing-field-initializers ${_gcc_only} -Werror)
if(OXBOW_SANITIZE)
  list(JOIN OXBOW_SANITIZE "," _sanitizers)
  add_compile_options(-fsanitize=${_sanitizers} -fno-omit-frame-pointer -O1)
  add_link_options(-fsanitize=${_sanitizers})
endif()
# libFuzzer wants to know which edges of all this code an input reaches. Findings of the sanitizer for undefined
# behaviour end the process, as all others do. Its check `vptr` needs type information of libraries, which hide it.
option(OXBOW_FUZZER "Link fuzz targets with libFuzzer (clang)" OFF)
if(OXBOW_FUZZER)
  add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize=vptr,function -fno-sanitize-recover=all)
endif()

find_program(OXBOW_CCACHE ccache)
if(OXBOW_CCACHE)
  # ccache can cache precompiled headers only if it ignores their time stamps.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${OXBOW_CCACHE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endif()
# A program loads the libraries that it uses, and not all that a layer of it names.
add_link_options(LINKER:--as-needed)
find_program(OXBOW_MOLD mold)
if(OXBOW_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
