// SPDX-License-Identifier: Apache-2.0
// The names of the CUDA runtime that the project uses.
#pragma once

using cudaStream_t = struct CUstream_st*;

enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
