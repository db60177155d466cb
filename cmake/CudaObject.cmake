# SPDX-License-Identifier: Apache-2.0
# oxbow_cuda_object(library file.cu): compiles the file with nvcc into the library. Files of kernels alone: they see no
# LibTorch. CMake's own CUDA language would link the toolkit's runtime beside the one that LibTorch brings.
#   OXBOW_CUDA_COMPILER        nvcc of CUDA_HOME, else the one beside LibTorch; empty where there is none or OXBOW_CUDA is off
#   OXBOW_CUDA_ARCHITECTURES   machine code for these; later GPUs compile the last one's PTX when a program starts
if(OXBOW_CUDA)
  file(GLOB _wheel_bin "${OXBOW_TORCH_LIB_DIR}/../../nvidia/cu*/bin")
  find_program(OXBOW_CUDA_COMPILER nvcc HINTS "$ENV{CUDA_HOME}/bin" ${_wheel_bin} /usr/local/cuda/bin)
  if(NOT OXBOW_CUDA_COMPILER)
    message(WARNING "No nvcc: PyTorch's kernels take the place of the fused ones, and passes take half as long again. "
                    "tools/install_deps.sh --cuda brings it.")
    set(OXBOW_CUDA_COMPILER "")
  endif()
else()
  set(OXBOW_CUDA_COMPILER "")
endif()
set(OXBOW_CUDA_ARCHITECTURES 80 90 CACHE STRING "Compute capabilities that CUDA kernels are compiled for")

function(oxbow_cuda_object library source)
  set(_object "${CMAKE_CURRENT_BINARY_DIR}/${source}.o")
  get_filename_component(_folder "${_object}" DIRECTORY)
  file(MAKE_DIRECTORY "${_folder}")
  set(_targets)
  foreach(_architecture ${OXBOW_CUDA_ARCHITECTURES})
    list(APPEND _targets -gencode "arch=compute_${_architecture},code=sm_${_architecture}")
  endforeach()
  list(GET OXBOW_CUDA_ARCHITECTURES -1 _last)
  list(APPEND _targets -gencode "arch=compute_${_last},code=compute_${_last}")
  add_custom_command(OUTPUT "${_object}"
    COMMAND "${OXBOW_CUDA_COMPILER}" -std=c++17 -O3 ${_targets} -Xcompiler=-fPIC -Werror all-warnings
            -I "${CMAKE_SOURCE_DIR}/src" -MD -MF "${_object}.d" -c "${CMAKE_CURRENT_SOURCE_DIR}/${source}" -o "${_object}"
    DEPENDS "${source}" DEPFILE "${_object}.d" VERBATIM COMMENT "Compiling CUDA kernels ${source}")
  set_source_files_properties("${_object}" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  target_sources(${library} PRIVATE "${_object}")
endfunction()
