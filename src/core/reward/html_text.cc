// SPDX-License-Identifier: Apache-2.0
#include "core/reward/html_text.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>

namespace oxbow::reward {
namespace {

constexpr size_t kNameCharactersMax = 32;
constexpr uint32_t kReplacement = 0xFFFD;
constexpr uint32_t kBeyondUnicode = 0x110000;

// Characters of the numbers from 0x80 to 0x9F: those of windows-1252.
constexpr uint32_t kWindows[32] = {0x20AC, 0x81,   0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021,
                                   0x02C6, 0x2030, 0x0160, 0x2039, 0x0152, 0x8D,   0x017D, 0x8F,
                                   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                   0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x9D,   0x017E, 0x0178};

void AppendUtf8(uint32_t point, std::string& text) {
  const auto tail = [&](int shift) {
    text.push_back(static_cast<char>(0x80 | ((point >> shift) & 0x3F)));
  };
  if (point < 0x80) {
    text.push_back(static_cast<char>(point));
  } else if (point < 0x800) {
    text.push_back(static_cast<char>(0xC0 | point >> 6));
    tail(0);
  } else if (point < 0x10000) {
    text.push_back(static_cast<char>(0xE0 | point >> 12));
    tail(6);
    tail(0);
  } else {
    text.push_back(static_cast<char>(0xF0 | point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

using Names = std::unordered_map<std::string_view, std::string>;

const Names& KnownNames() {
  static const Names& names = *[] {
    auto* const all = new Names;
    for (size_t at = 0; at < kHtmlEntities.size();) {
      const size_t equals = kHtmlEntities.find('=', at), end = kHtmlEntities.find(' ', equals);
      std::string value;
      uint32_t point = 0;
      for (size_t i = equals + 1; i <= end; ++i) {
        const int digit = HexDigit(kHtmlEntities[i]);
        if (digit >= 0) {
          point = point * 16 + static_cast<uint32_t>(digit);
        } else {
          AppendUtf8(point, value);
          point = 0;
        }
      }
      all->emplace(kHtmlEntities.substr(at, equals - at), value);
      at = end + 1;
    }
    return all;
  }();
  return names;
}

// Control characters and the like, which stand for nothing.
bool IsNothing(uint32_t point) {
  return (point >= 0x1 && point <= 0x8) || point == 0xB || (point >= 0xE && point <= 0x1F) ||
         (point >= 0x7F && point <= 0x9F) || (point >= 0xFDD0 && point <= 0xFDEF) ||
         (point & 0xFFFE) == 0xFFFE;
}

void AppendNumber(uint32_t point, std::string& text) {
  if (point == 0 || (point >= 0xD800 && point <= 0xDFFF) || point >= kBeyondUnicode) {
    AppendUtf8(kReplacement, text);
  } else if (point >= 0x80 && point <= 0x9F) {
    AppendUtf8(kWindows[point - 0x80], text);
  } else if (!IsNothing(point)) {
    AppendUtf8(point, text);
  }
}

// "#38;" or "#x26;" at the start of `text`: appends its character. Returns how long it is; 0: it is
// no number.
size_t TakeNumber(std::string_view text, std::string& out) {
  const bool hex = text.size() > 1 && (text[1] == 'x' || text[1] == 'X');
  const size_t begin = hex ? 2 : 1;
  size_t end = begin;
  uint32_t point = 0;
  for (; end < text.size(); ++end) {
    const int digit = HexDigit(text[end]);
    if (digit < 0 || (!hex && digit > 9)) break;
    const uint32_t more = point * (hex ? 16U : 10U) + static_cast<uint32_t>(digit);
    point = std::min(more, kBeyondUnicode);
  }
  if (end == begin) return 0;
  AppendNumber(point, out);
  return end < text.size() && text[end] == ';' ? end + 1 : end;
}

// How many bytes of `text` may be a name: up to 32 characters, and ';'.
size_t NameLength(std::string_view text) {
  size_t end = 0;
  for (size_t characters = 0; end < text.size(); ++end) {
    const char c = text[end];
    if (std::string_view("\t\n\f <&#;").find(c) != std::string_view::npos) break;
    const bool begins = (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    if (begins && ++characters > kNameCharactersMax) break;
  }
  return end > 0 && end < text.size() && text[end] == ';' ? end + 1 : end;
}

// The longest known name at the start of `text`. Returns its length; 0: there is none. A name that
// is not complete has two characters at least.
size_t TakeName(std::string_view text, std::string& out) {
  const size_t longest = NameLength(text);
  for (size_t length = longest; length > 0 && (length == longest || length > 1); --length) {
    const auto found = KnownNames().find(text.substr(0, length));
    if (found == KnownNames().end()) continue;
    out += found->second;
    return length;
  }
  return 0;
}

}  // namespace

std::string UnescapeHtml(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t ampersand = std::min(text.find('&', at), text.size());
    out += text.substr(at, ampersand - at);
    if (ampersand == text.size()) break;
    const std::string_view rest = text.substr(ampersand + 1);
    const size_t taken = rest.starts_with('#') ? TakeNumber(rest, out) : TakeName(rest, out);
    if (taken == 0) out.push_back('&');
    at = ampersand + 1 + taken;
  }
  return out;
}

}  // namespace oxbow::reward
