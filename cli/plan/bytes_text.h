// SPDX-License-Identifier: Apache-2.0
// A number of bytes as people read it.
#pragma once

#include <cstdint>
#include <string>

namespace oxbow::cli {

// "512 B", "3.7 GiB".
std::string BytesText(uint64_t bytes);

}  // namespace oxbow::cli
