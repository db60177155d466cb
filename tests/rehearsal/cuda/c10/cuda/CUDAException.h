// SPDX-License-Identifier: Apache-2.0
#pragma once

#define C10_CUDA_KERNEL_LAUNCH_CHECK() (void)0
