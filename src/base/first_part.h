// SPDX-License-Identifier: Apache-2.0
// Text of other people in lines of ours: a reason, a prompt.
#pragma once

#include <cstddef>
#include <string>

namespace oxbow {

// The most of a reason that one process tells another.
inline constexpr size_t kReasonBytesMax = 4096;

// One line of UTF-8 of at most `bytes_max` bytes, cut between characters; "..." says that it was
// cut. Control characters are blanks, and a byte that is of no character is a question mark: in a
// message of the protocol it would make the whole message unreadable.
std::string FirstPart(std::string text, size_t bytes_max);

// The text of a column that begins at `indent`, broken between words to fit `columns`, as are its
// further lines; with 0 columns it is not broken.
std::string Wrapped(const std::string& text, size_t indent, size_t columns);

}  // namespace oxbow
