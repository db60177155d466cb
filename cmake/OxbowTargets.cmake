# SPDX-License-Identifier: Apache-2.0
# oxbow_library(name SOURCES ... DEPS ... [TORCH] [OBJECT] [APART ...])
#   A static library whose headers are included as "folder/file.h" from src/ or the repository root. OBJECT: all of it is
#   in each program that names it, for what its objects do before main.
# oxbow_sources(library SOURCES ... [DEPS ...] [APART ...])
#   Sources of another folder that are part of that library.
# oxbow_test(name SOURCES ... DEPS ... [TORCH] [APART ...] [LABEL l] [ENV k=v ...])
#   A GoogleTest binary, one per folder. It is one test of ctest: a process that loads LibTorch takes half a second, and
#   there are thousands of cases. With LABEL, each of its cases is one, and they are listed when ctest runs.
# oxbow_binary(name SOURCES ... DEPS ... [TORCH])
#   An executable in build/<preset>/bin.
# APART: sources that are always compiled alone (OXBOW_UNITY): of a test, those whose anonymous namespaces have a name of
#   another one's; of a library, what only some of its programs need, or what hides functions of the C library.

function(_oxbow_apart target)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
option(OXBOW_UNITY "Compile the sources of a target twelve at a time: the first build is twice as fast, and \
one after an edit is slower" OFF)
# The headers that its sources share, which are most of what they include, are compiled once.
function(_oxbow_unity target batch)
  if(NOT OXBOW_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
  _oxbow_apart(${target} ${ARGN})
  # A class of a source with a member from its anonymous namespace: fine in a source, not in a header.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

# Under the thread sanitizer every executable says what absl::Mutex does, to libraries as well.
if(OXBOW_SANITIZE MATCHES "thread")
  add_library(oxbow_tsan_mutex OBJECT "${CMAKE_SOURCE_DIR}/tests/sanitizers/absl_mutex_for_tsan.cc")
endif()
function(_oxbow_executable target)
  if(TARGET oxbow_tsan_mutex)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:oxbow_tsan_mutex>)
    target_link_options(${target} PRIVATE -rdynamic)
  endif()
endfunction()
# Executables that reuse a precompiled header must be compiled as it was: -fPIC, not -fPIE.
function(_oxbow_precompiled_executable target pch)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  target_precompile_headers(${target} REUSE_FROM ${pch})
endfunction()
# Links torch where it is wanted, and chooses the precompiled header.
function(_oxbow_headers target visibility torch suffix)
  set(_pch oxbow_pch${suffix})
  if(torch)
    set(_pch oxbow_torch_pch${suffix})
    target_link_libraries(${target} ${visibility} oxbow::torch)
  endif()
  get_target_property(_type ${target} TYPE)
  if(_type STREQUAL "EXECUTABLE")
    _oxbow_precompiled_executable(${target} ${_pch})
  else()
    target_precompile_headers(${target} REUSE_FROM ${_pch})
  endif()
endfunction()

function(oxbow_library name)
  cmake_parse_arguments(ARG "TORCH;OBJECT" "" "SOURCES;DEPS;APART" ${ARGN})
  set(_kind STATIC)
  if(ARG_OBJECT)
    set(_kind OBJECT)
  endif()
  add_library(${name} ${_kind} ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} Threads::Threads)
  _oxbow_headers(${name} PUBLIC ${ARG_TORCH} "")
  _oxbow_unity(${name} 12 ${ARG_APART})
endfunction()

function(oxbow_sources library)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;APART" ${ARGN})
  target_sources(${library} PRIVATE ${ARG_SOURCES})
  target_link_libraries(${library} PUBLIC ${ARG_DEPS})
  _oxbow_apart(${library} ${ARG_APART})
endfunction()

function(oxbow_binary name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} Threads::Threads)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
  _oxbow_executable(${name})
  _oxbow_headers(${name} PRIVATE ${ARG_TORCH} "")
  _oxbow_unity(${name} 12)
endfunction()

function(oxbow_test name)
  cmake_parse_arguments(ARG "TORCH" "LABEL" "SOURCES;DEPS;ENV;APART" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} oxbow_testing GTest::gmock GTest::gtest Threads::Threads)
  # GCC 12 sees copies beyond the end of temporary strings (bug 105651) in long test bodies.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${name} PRIVATE -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
  endif()
  target_compile_definitions(${name} PRIVATE
    OXBOW_SOURCE_DIR="${CMAKE_SOURCE_DIR}" OXBOW_BINARY_DIR="${CMAKE_BINARY_DIR}/bin")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  _oxbow_executable(${name})
  target_compile_options(${name} PRIVATE ${OXBOW_TEST_OPTIMISATION})
  _oxbow_headers(${name} PRIVATE ${ARG_TORCH} _of_tests)
  _oxbow_unity(${name} 8 ${ARG_APART})
  set(_env OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=1 ${ARG_ENV})
  if(OXBOW_SANITIZE MATCHES "thread")
    list(APPEND _env "TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/sanitizers/tsan.supp \
ignore_noninstrumented_modules=1 second_deadlock_stack=1")
  endif()
  if(NOT ARG_LABEL)
    add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES TIMEOUT 600 ENVIRONMENT "${_env}")
    return()
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
    PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT 300)
  # Discovery takes one variable and loses the others, so they are set once the cases are known.
  set(_file "${CMAKE_CURRENT_BINARY_DIR}/${name}_environment.cmake")
  file(WRITE "${_file}" "if(${name}_TESTS)
  set_tests_properties(\${${name}_TESTS} PROPERTIES ENVIRONMENT \"${_env}\")
endif()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${_file}")
endfunction()
