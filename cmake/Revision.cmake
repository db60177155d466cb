# SPDX-License-Identifier: Apache-2.0
# Writes ${HEADER} with the commit that is checked out; runs at every build and leaves an equal file as it is.
#   cmake -DHEADER=... -DSOURCE=... [-DREVISION=...] -P Revision.cmake
if(NOT REVISION)
  execute_process(COMMAND git rev-parse --short=10 HEAD WORKING_DIRECTORY "${SOURCE}"
    OUTPUT_VARIABLE REVISION OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT REVISION)
  set(REVISION unknown)
endif()
file(CONFIGURE OUTPUT "${HEADER}" CONTENT "#define OXBOW_GIT_HASH \"${REVISION}\"\n")
