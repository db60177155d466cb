#include "base/sha256.h"

#include <openssl/sha.h>

namespace oxbow {

std::string Sha256(std::string_view bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

std::string HexOf(std::string_view raw) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * raw.size());
  for (const unsigned char byte : raw) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::string Sha256Hex(std::string_view bytes) { return HexOf(Sha256(bytes)); }

uint64_t Fingerprint64(std::string_view bytes) {
  const std::string digest = Sha256(bytes);
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i)
    value = (value << 8) | static_cast<unsigned char>(digest[static_cast<size_t>(i)]);
  return value;
}

}  // namespace oxbow
