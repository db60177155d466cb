# Compiler, linker and cache settings shared by every target.
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")

# GCC 12 sees overlapping copies in std::string that are not there (GCC bug 105651).
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers -Wno-restrict -Werror)
if(OXBOW_SANITIZE)
  list(JOIN OXBOW_SANITIZE "," _sanitizers)
  add_compile_options(-fsanitize=${_sanitizers} -fno-omit-frame-pointer -O1)
  add_link_options(-fsanitize=${_sanitizers})
endif()

find_program(OXBOW_CCACHE ccache)
if(OXBOW_CCACHE)
  # Precompiled headers are only cacheable when their time stamps are ignored.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${OXBOW_CCACHE})
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
endif()
find_program(OXBOW_MOLD mold)
if(OXBOW_MOLD)
  add_link_options(-fuse-ld=mold)
endif()
