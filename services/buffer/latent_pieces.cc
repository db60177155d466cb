// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/latent_pieces.h"

#include <algorithm>

namespace oxbow::buffer {

uint64_t LatentPieces::bytes() const {
  uint64_t bytes = 0;
  for (const std::string_view piece : pieces) bytes += piece.size();
  return bytes;
}

LatentPieces LatentPieces::Part(uint64_t offset, uint64_t count) const {
  LatentPieces part{.pieces = {}, .memory = memory};
  for (std::string_view piece : pieces) {
    const uint64_t skipped = std::min<uint64_t>(offset, piece.size());
    offset -= skipped;
    piece = piece.substr(skipped, count);
    count -= piece.size();
    if (!piece.empty()) part.pieces.push_back(piece);
  }
  return part;
}

std::string LatentPieces::Joined() const {
  std::string joined;
  joined.reserve(bytes());
  for (const std::string_view piece : pieces) joined += piece;
  return joined;
}

}  // namespace oxbow::buffer
