// SPDX-License-Identifier: Apache-2.0
// For any text: a scheduler's config is refused, or it gives a positive, finite shift.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "io/diffusers_directory.h"
#include "io/scheduler.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  oxbow::io::DiffusersComponent scheduler;
  scheduler.config_json.assign(reinterpret_cast<const char*>(data), size);
  const auto shift = oxbow::io::SchedulerShift(scheduler, /*image_tokens=*/1024);
  const double value = shift.ok() ? *shift : 1;
  OXBOW_CHECK(value > 0 && std::isfinite(value)) << value;
  return 0;
}
