# oxbow_library(name SOURCES ... HEADERS ... DEPS ... [TORCH])
#   A static library whose headers are included as "folder/file.h" from src/ or the repository root.
# oxbow_test(name SOURCES ... DEPS ... [TORCH] [LABEL l] [ENV k=v ...])
#   A GoogleTest binary, one per folder; its cases are listed when ctest runs.
# oxbow_binary(name SOURCES ... DEPS ... [TORCH])
#   An executable in build/<preset>/bin.

# Executables that reuse the precompiled torch header must be compiled as it was: -fPIC, not -fPIE.
function(_oxbow_torch_executable target)
  target_link_libraries(${target} PRIVATE oxbow::torch)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  target_precompile_headers(${target} REUSE_FROM oxbow_torch_pch)
endfunction()

function(_oxbow_torch target)
  target_link_libraries(${target} PUBLIC oxbow::torch)
  target_precompile_headers(${target} REUSE_FROM oxbow_torch_pch)
endfunction()

function(oxbow_library name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;HEADERS;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES} ${ARG_HEADERS})
  target_include_directories(${name} PUBLIC "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} Threads::Threads)
  if(ARG_TORCH)
    _oxbow_torch(${name})
  endif()
endfunction()

function(oxbow_binary name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} Threads::Threads)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
  if(ARG_TORCH)
    _oxbow_torch_executable(${name})
  endif()
endfunction()

function(oxbow_test name)
  cmake_parse_arguments(ARG "TORCH" "LABEL" "SOURCES;DEPS;ENV" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}/src" "${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main Threads::Threads)
  target_compile_definitions(${name} PRIVATE
    OXBOW_SOURCE_DIR="${CMAKE_SOURCE_DIR}" OXBOW_BINARY_DIR="${CMAKE_BINARY_DIR}/bin")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  if(ARG_TORCH)
    _oxbow_torch_executable(${name})
  endif()
  set(_env OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=1 ${ARG_ENV})
  # An empty value would vanish on the way, and ctest would take the next name for it.
  set(_label)
  if(ARG_LABEL)
    set(_label LABELS "${ARG_LABEL}")
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST
    PROPERTIES ${_label} TIMEOUT 300 ENVIRONMENT "${_env}")
endfunction()
