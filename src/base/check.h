// SPDX-License-Identifier: Apache-2.0
// OXBOW_CHECK(condition) << "values": aborts when an invariant of the program is broken.
//
// For errors from outside (input, files, peers) return absl::Status instead. The prefix avoids a
// clash with the CHECK and LOG macros that torch headers define.
#pragma once

#include <sstream>

namespace oxbow {

// Prints file, line, condition and message to stderr, then aborts, at the end of the statement.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

}  // namespace oxbow

#define OXBOW_CHECK(condition) \
  if (condition) [[likely]] {  \
  } else /* NOLINT */          \
    ::oxbow::CheckFailure(__FILE__, __LINE__, #condition).stream()
