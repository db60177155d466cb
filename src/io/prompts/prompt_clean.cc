// SPDX-License-Identifier: Apache-2.0
#include <unicode/normalizer2.h>
#include <unicode/unistr.h>

#include <array>
#include <utility>

#include "base/check.h"
#include "core/reward/html_text.h"
#include "io/prompts/text_sides.h"

namespace oxbow::io {
namespace {

constexpr UChar32 kFirstWide = 0xff01, kLastWide = 0xffef, kWideSpace = 0x3000;

// ftfy's ligatures: NFKC of all of them, but for one that keeps its long s.
bool IsLigature(UChar32 c) {
  return c == 0x132 || c == 0x133 || c == 0x149 || (c >= 0x1c4 && c <= 0x1cc) ||
         (c >= 0x1f1 && c <= 0x1f3) || (c >= 0xfb00 && c <= 0xfb06);
}

bool IsControl(UChar32 c) {
  return c < 0x09 || c == 0x0b || (c >= 0x0e && c <= 0x1f) || c == 0x7f ||
         (c >= 0x206a && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffc);
}

// Python's str.isspace().
bool IsSpace(UChar32 c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

const icu::Normalizer2& Normalizer(const icu::Normalizer2* (*instance)(UErrorCode&)) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* const normalizer = instance(error);
  OXBOW_CHECK(U_SUCCESS(error)) << u_errorName(error);
  return *normalizer;
}

icu::UnicodeString Normalised(const icu::Normalizer2& normalizer, const icu::UnicodeString& text) {
  UErrorCode error = U_ZERO_ERROR;
  icu::UnicodeString result = normalizer.normalize(text, error);
  OXBOW_CHECK(U_SUCCESS(error)) << u_errorName(error);
  return result;
}

// A character as ftfy leaves it.
icu::UnicodeString Plain(UChar32 c) {
  static constexpr UChar32 kLongSAndT = 0xfb05, kModifierApostrophe = 0x2bc;
  if (c == kModifierApostrophe || (c >= 0x2018 && c <= 0x201b)) return {UChar32{'\''}};
  if (c >= 0x201c && c <= 0x201f) return {UChar32{'"'}};
  if (c == 0x149) return {"'n"};
  if (c == kLongSAndT) return icu::UnicodeString(UChar32{0x17f}).append(UChar32{'t'});
  if (c == kWideSpace) return {UChar32{' '}};
  if (!IsLigature(c) && (c < kFirstWide || c > kLastWide)) return {c};
  return Normalised(Normalizer(icu::Normalizer2::getNFKCInstance), icu::UnicodeString(c));
}

icu::UnicodeString Utf16(std::string_view text) {
  return icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
}

std::string Utf8(const icu::UnicodeString& text) {
  std::string out;
  text.toUTF8String(out);
  return out;
}

icu::UnicodeString Repaired(const icu::UnicodeString& text) {
  icu::UnicodeString plain;
  for (int32_t i = 0; i < text.length(); i = text.moveIndex32(i, 1)) {
    const UChar32 c = text.char32At(i);
    if (!IsControl(c)) plain += Plain(c);
  }
  return Normalised(Normalizer(icu::Normalizer2::getNFCInstance), plain);
}

}  // namespace

std::string CleanedPrompt(std::string_view text) {
  const std::string repaired = Utf8(Repaired(Utf16(text)));
  const icu::UnicodeString read = Utf16(reward::UnescapeHtml(reward::UnescapeHtml(repaired)));
  icu::UnicodeString clean;
  bool space = false;
  for (int32_t i = 0; i < read.length(); i = read.moveIndex32(i, 1)) {
    const UChar32 c = read.char32At(i);
    if (IsSpace(c)) {
      space = true;
      continue;
    }
    if (space && !clean.isEmpty()) clean += UChar32{' '};
    space = false;
    clean += c;
  }
  return Utf8(clean);
}

}  // namespace oxbow::io
