# Two precompiled headers serve every target: one with torch, one without. They hold what is dear to
# parse and never changes: the standard library, Abseil, GoogleTest and, with the services, gRPC.
# What a file needs it still includes itself; the preset `core` builds the lower layers without gRPC.
set(_oxbow_dear_headers <string> <vector> <memory> <map> <functional> <absl/status/statusor.h> <absl/strings/str_cat.h>
    <absl/synchronization/mutex.h> <absl/time/time.h> <gmock/gmock.h> <gtest/gtest.h>)
if(OXBOW_BUILD_SERVICES)
  list(APPEND _oxbow_dear_headers <grpcpp/grpcpp.h>)
endif()

# GoogleTest's targets define what its headers find out themselves; with that, tests could not reuse the header.
foreach(_target GTest::gtest GTest::gmock GTest::gtest_main GTest::gmock_main)
  if(TARGET ${_target})
    set_property(TARGET ${_target} PROPERTY INTERFACE_COMPILE_OPTIONS)
  endif()
endforeach()

# oxbow_precompiled_header(name header...): an object library whose header other targets reuse.
function(oxbow_precompiled_header name)
  file(WRITE "${CMAKE_BINARY_DIR}/${name}.cc" "// Holds a precompiled header.\n")
  add_library(${name} OBJECT "${CMAKE_BINARY_DIR}/${name}.cc")
  target_link_libraries(${name} PRIVATE absl::statusor absl::strings absl::synchronization absl::time)
  target_precompile_headers(${name} PRIVATE ${ARGN} ${_oxbow_dear_headers})
endfunction()
oxbow_precompiled_header(oxbow_pch)
