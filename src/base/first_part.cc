// SPDX-License-Identifier: Apache-2.0
#include "base/first_part.h"

#include <algorithm>

namespace oxbow {

std::string FirstPart(std::string text, size_t bytes_max) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  if (text.size() <= bytes_max) return text;
  size_t end = bytes_max > 3 ? bytes_max - 3 : 0;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + std::string(std::min<size_t>(bytes_max, 3), '.');
}

}  // namespace oxbow
