// SPDX-License-Identifier: Apache-2.0
#include "base/first_part.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace oxbow {
namespace {

// Bytes of the character with which the text begins (RFC 3629); 0: it begins with none.
size_t FirstCharacter(std::string_view text) {
  const auto byte = [&](size_t i) -> uint8_t {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : 0;
  };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  const uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

std::string FirstPart(std::string text, size_t bytes_max) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = FirstCharacter(std::string_view(text).substr(i));
    if (length == 0) text[i] = '?';
    if (length == 1 && static_cast<unsigned char>(text[i]) < 0x20) text[i] = ' ';
    i += std::max<size_t>(length, 1);
  }
  if (text.size() <= bytes_max) return text;
  size_t end = bytes_max > 3 ? bytes_max - 3 : 0;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + std::string(std::min<size_t>(bytes_max, 3), '.');
}

}  // namespace oxbow
