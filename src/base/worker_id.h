// What may be the name of a worker. It comes from the wire and goes into logs, tables and metrics.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace oxbow {

// OK for 1 to 128 letters, digits and characters of "-_.:@/". kInvalidArgument otherwise.
absl::Status CheckWorkerId(std::string_view id);

}  // namespace oxbow
