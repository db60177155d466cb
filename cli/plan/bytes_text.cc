// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/bytes_text.h"

#include <iterator>

#include "absl/strings/str_format.h"

namespace oxbow::cli {

std::string BytesText(uint64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return unit == 0 ? absl::StrFormat("%d B", bytes)
                   : absl::StrFormat("%.1f %s", value, units[unit]);
}

}  // namespace oxbow::cli
