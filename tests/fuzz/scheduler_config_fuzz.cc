// SPDX-License-Identifier: Apache-2.0
// For any text: a scheduler's config is refused, or it gives falling noise levels from a finite
// shift.
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
  const auto own = oxbow::io::ReadPipelineSchedule(
      {{"transformer", {.class_name = "LTXVideoTransformer3DModel"}}, {"scheduler", scheduler}},
      /*image_tokens=*/1024, /*steps=*/4);
  OXBOW_CHECK(own.ok() || !shift.ok() || absl::IsDataLoss(own.status())) << own.status().ToString();
  if (!own.ok()) return 0;
  OXBOW_CHECK(own->shift == value && own->shift_terminal >= 0 && own->shift_terminal < 1);
  return 0;
}
