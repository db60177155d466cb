// SPDX-License-Identifier: Apache-2.0
// Text of other people in a line of ours: a reason, a prompt.
#pragma once

#include <cstddef>
#include <string>

namespace oxbow {

// One line of at most `bytes_max` bytes, cut between characters; "..." says that it was cut.
// Control characters are blanks.
std::string FirstPart(std::string text, size_t bytes_max);

}  // namespace oxbow
