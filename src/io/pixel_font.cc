#include "io/pixel_font.h"

namespace oxbow::io {
namespace {

constexpr Glyph kDigits[10] = {{7, 5, 5, 5, 7}, {2, 6, 2, 2, 7}, {7, 1, 7, 4, 7}, {7, 1, 7, 1, 7},
                               {5, 5, 7, 1, 1}, {7, 4, 7, 1, 7}, {7, 4, 7, 5, 7}, {7, 1, 1, 1, 1},
                               {7, 5, 7, 5, 7}, {7, 5, 7, 1, 7}};

constexpr Glyph kLetters[26] = {{2, 5, 7, 5, 5}, {6, 5, 6, 5, 6}, {3, 4, 4, 4, 3}, {6, 5, 5, 5, 6},
                                {7, 4, 6, 4, 7}, {7, 4, 6, 4, 4}, {3, 4, 5, 5, 3}, {5, 5, 7, 5, 5},
                                {7, 2, 2, 2, 7}, {1, 1, 1, 5, 2}, {5, 5, 6, 5, 5}, {4, 4, 4, 4, 7},
                                {5, 7, 7, 5, 5}, {6, 5, 5, 5, 5}, {2, 5, 5, 5, 2}, {6, 5, 6, 4, 4},
                                {2, 5, 5, 6, 3}, {6, 5, 6, 5, 5}, {3, 4, 2, 1, 6}, {7, 2, 2, 2, 2},
                                {5, 5, 5, 5, 7}, {5, 5, 5, 5, 2}, {5, 5, 7, 7, 5}, {5, 5, 2, 5, 5},
                                {5, 5, 2, 2, 2}, {7, 1, 2, 4, 7}};

}  // namespace

Glyph GlyphOf(char character) {
  if (character >= '0' && character <= '9') return kDigits[character - '0'];
  if (character >= 'A' && character <= 'Z') return kLetters[character - 'A'];
  if (character >= 'a' && character <= 'z') return kLetters[character - 'a'];
  switch (character) {
    case '.':
      return {0, 0, 0, 0, 2};
    case ',':
      return {0, 0, 0, 2, 4};
    case '-':
      return {0, 0, 7, 0, 0};
    case '+':
      return {0, 2, 7, 2, 0};
    case '_':
      return {0, 0, 0, 0, 7};
    case '=':
      return {0, 7, 0, 7, 0};
    case ':':
      return {0, 2, 0, 2, 0};
    case '/':
      return {1, 1, 2, 4, 4};
    case '%':
      return {5, 1, 2, 4, 5};
    case '?':
      return {7, 1, 2, 0, 2};
    case '!':
      return {2, 2, 2, 0, 2};
    case '(':
      return {1, 2, 2, 2, 1};
    case ')':
      return {4, 2, 2, 2, 4};
    case '\'':
      return {2, 2, 0, 0, 0};
    default:
      return {0, 0, 0, 0, 0};
  }
}

}  // namespace oxbow::io
