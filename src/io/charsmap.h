// sentencepiece's table of character normalisation ("precompiled_charsmap"): which short strings of
// a text become which others, NFKC for the most part.
//
//   u32 LE  T           bytes of the trie, a multiple of 4
//   T bytes             double-array trie of u32 LE units, from a string to a position
//   the rest            replacements in UTF-8, each ended by a zero byte
//
// A unit holds an offset (bits 10 to 30, times 256 where bit 9 is set), whether a value hangs below
// it (bit 8) and its own label (bits 0 to 7, and 31); a value is the lower 31 bits of its unit.
// Walking a byte c goes from position p to p ^ c, whose label must be c, and on by its offset.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::io {

class Charsmap {
 public:
  Charsmap() = default;                                           // Leaves every text as it is.
  static absl::StatusOr<Charsmap> Parse(std::string_view bytes);  // kDataLoss.

  // The text with every listed string replaced, as the tokenizers library does: a whole grapheme of
  // under six bytes by the entry that is its shortest prefix, and otherwise character by character.
  // (sentencepiece itself takes the longest match at each place: marks after a character that
  // stands for several are kept there and dropped here.) Malformed UTF-8 becomes U+FFFD.
  std::string Normalised(std::string_view text) const;

 private:
  std::optional<std::string_view> Find(std::string_view key) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace oxbow::io
