// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

namespace c10::cuda {

DeviceIndex device_count();
void set_device(DeviceIndex device);
void device_synchronize();

}  // namespace c10::cuda
