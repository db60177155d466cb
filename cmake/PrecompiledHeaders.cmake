# SPDX-License-Identifier: Apache-2.0
# Four precompiled headers serve every target: with and without torch, for programs and for tests. They
# hold what is dear to parse and never changes: the standard library, Abseil, with the services gRPC, and
# for tests GoogleTest.
# A file still includes what it needs itself; the preset `core` builds the lower layers without gRPC.
set(_oxbow_dear_headers <string> <vector> <memory> <map> <functional> <absl/status/statusor.h> <absl/strings/str_cat.h>
    <absl/synchronization/mutex.h> <absl/time/time.h>)
if(OXBOW_BUILD_SERVICES)
  list(APPEND _oxbow_dear_headers <grpcpp/grpcpp.h>)
endif()

# GoogleTest's targets define what its headers find out themselves; with that, tests could not reuse the header.
foreach(_target GTest::gtest GTest::gmock GTest::gtest_main GTest::gmock_main)
  if(TARGET ${_target})
    set_property(TARGET ${_target} PROPERTY INTERFACE_COMPILE_OPTIONS)
  endif()
endforeach()

# Tests are run once or twice after each change: half of the compiler's time went into making them fast.
set(OXBOW_TEST_OPTIMISATION -O1)

# oxbow_precompiled_headers(name header...): the object libraries `name` for programs and `name_of_tests`,
# whose headers other targets reuse.
function(oxbow_precompiled_headers name)
  file(WRITE "${CMAKE_BINARY_DIR}/${name}.cc" "// Holds a precompiled header.\n")
  foreach(_target ${name} ${name}_of_tests)
    add_library(${_target} OBJECT "${CMAKE_BINARY_DIR}/${name}.cc")
    target_link_libraries(${_target} PRIVATE absl::statusor absl::strings absl::synchronization absl::time)
  endforeach()
  target_precompile_headers(${name} PRIVATE ${ARGN} ${_oxbow_dear_headers})
  target_precompile_headers(${name}_of_tests PRIVATE ${ARGN} ${_oxbow_dear_headers} <gmock/gmock.h> <gtest/gtest.h>)
  target_compile_options(${name}_of_tests PRIVATE ${OXBOW_TEST_OPTIMISATION})
endfunction()
oxbow_precompiled_headers(oxbow_pch)
