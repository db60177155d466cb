// SPDX-License-Identifier: Apache-2.0
#include "base/first_part.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace oxbow {
namespace {

constexpr size_t kWrappedMin = 20;  // Columns, however narrow the terminal is.

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

std::string Wrapped(const std::string& text, size_t indent, size_t columns) {
  const size_t width = std::max(kWrappedMin, columns - std::min(columns, indent));
  std::string wrapped;
  size_t used = 0;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (used > 0 && columns > 0 && used + 1 + word.size() > width) {
      absl::StrAppend(&wrapped, "\n", std::string(indent, ' '));
      used = 0;
    }
    absl::StrAppend(&wrapped, used > 0 ? " " : "", word);
    used += (used > 0) + word.size();
  }
  return wrapped;
}

}  // namespace oxbow
