// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdlib>
#include <iostream>

namespace oxbow {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  message_ << file << ":" << line << ": check failed: " << condition << " ";
}

CheckFailure::~CheckFailure() {
  std::cerr << message_.str() << std::endl;
  std::abort();
}

}  // namespace oxbow
