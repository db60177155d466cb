// SPDX-License-Identifier: Apache-2.0
// Reading a file of any size through a small buffer. A disk that cannot be read is an error here,
// where a memory map would end the process.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

#include "absl/status/status.h"

namespace oxbow {

// Gives the file's bytes to `take`, in order. kNotFound if there is none; the first error of `take`
// ends it and is returned.
absl::Status ReadInPieces(const std::filesystem::path& path,
                          const std::function<absl::Status(std::string_view piece)>& take);

}  // namespace oxbow
