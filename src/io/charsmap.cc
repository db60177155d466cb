#include "io/charsmap.h"

#include <unicode/brkiter.h>
#include <unicode/locid.h>
#include <unicode/unistr.h>

#include <cstring>
#include <memory>

#include "base/check.h"

namespace oxbow::io {
namespace {

constexpr size_t kGraphemeBytesMax = 6;  // From here on a grapheme is taken apart.

size_t OffsetOf(uint32_t unit) { return size_t{unit >> 10} << ((unit & (1u << 9)) >> 6); }
uint32_t LabelOf(uint32_t unit) { return unit & (0x80000000u | 0xffu); }

std::string Utf8(const icu::UnicodeString& text) {
  std::string out;
  text.toUTF8String(out);
  return out;
}

}  // namespace

absl::StatusOr<Charsmap> Charsmap::Parse(std::string_view bytes) {
  Charsmap map;
  if (bytes.empty()) return map;
  uint32_t trie_bytes = 0;
  if (bytes.size() >= 4) std::memcpy(&trie_bytes, bytes.data(), 4);
  if (bytes.size() < 4 || trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > bytes.size() - 4) {
    return absl::DataLossError("broken precompiled_charsmap");
  }
  map.units_.resize(trie_bytes / 4);
  std::memcpy(map.units_.data(), bytes.data() + 4, trie_bytes);
  map.replacements_ = std::string(bytes.substr(4 + trie_bytes));
  return map;
}

std::optional<std::string_view> Charsmap::Find(std::string_view key) const {
  if (units_.empty()) return std::nullopt;
  size_t position = OffsetOf(units_[0]);
  for (const char character : key) {
    const auto byte = static_cast<unsigned char>(character);
    position ^= byte;
    if (byte == 0 || position >= units_.size() || LabelOf(units_[position]) != byte) break;
    const bool has_value = ((units_[position] >> 8) & 1) != 0;
    position ^= OffsetOf(units_[position]);
    if (!has_value) continue;
    if (position >= units_.size()) break;
    const size_t start = units_[position] & 0x7fffffffu;
    if (start >= replacements_.size()) break;
    const size_t end = replacements_.find('\0', start);
    return std::string_view(replacements_).substr(start, end - start);
  }
  return std::nullopt;
}

std::string Charsmap::Normalised(std::string_view text) const {
  const auto piece = icu::StringPiece(text.data(), static_cast<int32_t>(text.size()));
  const icu::UnicodeString source = icu::UnicodeString::fromUTF8(piece);
  UErrorCode error = U_ZERO_ERROR;
  const std::unique_ptr<icu::BreakIterator> graphemes(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), error));
  OXBOW_CHECK(U_SUCCESS(error)) << u_errorName(error);
  graphemes->setText(source);
  std::string result;
  for (int32_t start = 0, end = graphemes->next(); end != icu::BreakIterator::DONE;
       start = end, end = graphemes->next()) {
    const std::string grapheme = Utf8(source.tempSubStringBetween(start, end));
    if (grapheme.size() < kGraphemeBytesMax) {
      if (const auto replacement = Find(grapheme); replacement.has_value()) {
        result += *replacement;
        continue;
      }
    }
    for (int32_t i = start; i < end; i = source.moveIndex32(i, 1)) {
      const std::string character = Utf8(icu::UnicodeString(source.char32At(i)));
      result += Find(character).value_or(character);
    }
  }
  return result;
}

}  // namespace oxbow::io
