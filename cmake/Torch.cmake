# SPDX-License-Identifier: Apache-2.0
# Defines the imported target oxbow::torch from a LibTorch directory.
#
# find_package(Torch) is avoided: in a CUDA build its config insists on every CUDA library's
# development files, and it defines protobuf::libprotobuf wrongly when it runs first. The include
# directories go in with -idirafter because the wheel ships protobuf 3.13 headers that would shadow
# the system's.
set(_candidates "${OXBOW_TORCH_DIR}" "$ENV{OXBOW_TORCH_DIR}")
# CUDA builds have their own LibTorch, so that both kinds can be built from one checkout.
if(OXBOW_CUDA)
  set(_venv_name cuda-venv)
else()
  set(_venv_name venv)
endif()
file(GLOB _venv "${CMAKE_SOURCE_DIR}/.deps/${_venv_name}/lib/python3*/site-packages/torch")
list(APPEND _candidates ${_venv})
foreach(_prefix ${CMAKE_PREFIX_PATH})
  list(APPEND _candidates "${_prefix}" "${_prefix}/torch")
endforeach()
set(_torch_dir "")
foreach(_dir ${_candidates})
  if(_dir AND EXISTS "${_dir}/include/ATen/ATen.h")
    set(_torch_dir "${_dir}")
    break()
  endif()
endforeach()
if(NOT _torch_dir)
  message(FATAL_ERROR "LibTorch not found. Run tools/install_deps.sh, or pass -DOXBOW_TORCH_DIR=<directory with include/ and lib/>.")
endif()
message(STATUS "LibTorch: ${_torch_dir}")
set(OXBOW_TORCH_LIB_DIR "${_torch_dir}/lib")
set(OXBOW_TORCH_RPATH "${OXBOW_TORCH_LIB_DIR}" CACHE STRING "Where executables look for LibTorch's libraries")

add_library(oxbow_torch_interface INTERFACE)
add_library(oxbow::torch ALIAS oxbow_torch_interface)
# -pthread everywhere: gRPC's targets add it, and a precompiled header and its users must have the same flags.
target_compile_options(oxbow_torch_interface INTERFACE
  -pthread
  "SHELL:-idirafter ${_torch_dir}/include"
  "SHELL:-idirafter ${_torch_dir}/include/torch/csrc/api/include")
if(OXBOW_CUDA)
  if(NOT EXISTS "${OXBOW_TORCH_LIB_DIR}/libtorch_cuda.so")
    message(FATAL_ERROR "This LibTorch has no CUDA: ${_torch_dir}. Run tools/install_deps.sh --cuda, or pass -DOXBOW_TORCH_DIR.")
  endif()
  # The toolkit's headers come before those of the wheel; NCCL's headers come from the wheel.
  find_path(OXBOW_CUDA_INCLUDE_DIR cuda_runtime_api.h HINTS "$ENV{CUDA_HOME}/include" /usr/local/cuda/include NO_DEFAULT_PATH)
  file(GLOB _wheel_includes "${_torch_dir}/../nvidia/nccl/include" "${_torch_dir}/../nvidia/cu*/include")
  file(GLOB _wheel_libs "${_torch_dir}/../nvidia/*/lib")
  foreach(_dir ${OXBOW_CUDA_INCLUDE_DIR} ${_wheel_includes})
    target_compile_options(oxbow_torch_interface INTERFACE "SHELL:-idirafter ${_dir}")
  endforeach()
  foreach(_header crt/host_config.h nv/target)
    find_path(OXBOW_CUDA_HAS_${_header} ${_header} HINTS ${OXBOW_CUDA_INCLUDE_DIR} ${_wheel_includes})
    if(NOT OXBOW_CUDA_HAS_${_header})
      message(FATAL_ERROR "${_header} of CUDA was found neither in the toolkit nor beside LibTorch. Set CUDA_HOME, or install the Python "
                          "packages nvidia-cuda-crt and nvidia-cuda-cccl beside LibTorch, as tools/install_deps.sh --cuda does.")
    endif()
  endforeach()
  foreach(_dir ${_wheel_libs})
    target_link_options(oxbow_torch_interface INTERFACE "-Wl,-rpath-link,${_dir}")
  endforeach()
  # LibTorch's headers call the CUDA runtime directly. Link the wheel's runtime: otherwise one process has two
  # runtimes.
  file(GLOB _cudart "${_torch_dir}/../nvidia/*/lib/libcudart.so.*")
  if(NOT _cudart)
    file(GLOB _cudart "$ENV{CUDA_HOME}/lib64/libcudart.so" /usr/local/cuda/lib64/libcudart.so)
  endif()
  if(NOT _cudart)
    message(FATAL_ERROR "libcudart was not found, neither beside LibTorch nor in the toolkit: set CUDA_HOME.")
  endif()
  list(GET _cudart 0 _cudart)
  get_filename_component(_cudart_dir "${_cudart}" DIRECTORY)
endif()
# --no-as-needed: a linker that drops unreferenced backends would remove CUDA without any message. A build without CUDA
# does not load it where LibTorch has it: that costs each process .3 s of a CPU and 390 MB of resident memory.
set(_libs "${OXBOW_TORCH_LIB_DIR}/libc10.so" "${OXBOW_TORCH_LIB_DIR}/libtorch_cpu.so")
if(OXBOW_CUDA)
  list(APPEND _libs "${OXBOW_TORCH_LIB_DIR}/libtorch.so" "${OXBOW_TORCH_LIB_DIR}/libc10_cuda.so"
    "${OXBOW_TORCH_LIB_DIR}/libtorch_cuda.so" "${_cudart}")
  # The wheel's runtime moves with LibTorch's libraries.
  file(RELATIVE_PATH _cudart_place "${OXBOW_TORCH_LIB_DIR}" "${_cudart_dir}")
  if(_cudart_place MATCHES "^\\.\\./\\.\\./nvidia/")
    set(_cudart_dir "${OXBOW_TORCH_RPATH}/${_cudart_place}")
  endif()
  target_link_options(oxbow_torch_interface INTERFACE "-Wl,-rpath,${_cudart_dir}")
endif()
list(JOIN _libs " " _libs_flat)
target_link_options(oxbow_torch_interface INTERFACE
  "SHELL:-Wl,--push-state,--no-as-needed ${_libs_flat} -Wl,--pop-state"
  "-Wl,-rpath,${OXBOW_TORCH_RPATH}" "-Wl,-rpath-link,${OXBOW_TORCH_LIB_DIR}")

oxbow_precompiled_headers(oxbow_torch_pch <ATen/ATen.h>)
target_link_libraries(oxbow_torch_pch PRIVATE oxbow::torch)
target_link_libraries(oxbow_torch_pch_of_tests PRIVATE oxbow::torch)
