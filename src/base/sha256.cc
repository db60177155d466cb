// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include "absl/strings/escaping.h"
#include "base/check.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace oxbow {

std::string Sha256(std::string_view bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

std::string HexOf(std::string_view raw) {
  return absl::BytesToHexString(absl::string_view(raw.data(), raw.size()));
}

std::string Sha256Hex(std::string_view bytes) { return HexOf(Sha256(bytes)); }

uint64_t Fingerprint64(std::string_view bytes) {
  const std::string digest = Sha256(bytes);
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i)
    value = (value << 8) | static_cast<unsigned char>(digest[static_cast<size_t>(i)]);
  return value;
}

struct Sha256Stream::Context {
  Context() : evp(EVP_MD_CTX_new()) {
    OXBOW_CHECK(evp != nullptr && EVP_DigestInit_ex(evp, EVP_sha256(), nullptr) == 1) << "SHA-256";
  }
  ~Context() { EVP_MD_CTX_free(evp); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  EVP_MD_CTX* const evp;
};

Sha256Stream::Sha256Stream() : context_(std::make_unique<Context>()) {}
Sha256Stream::Sha256Stream(Sha256Stream&&) noexcept = default;
Sha256Stream::~Sha256Stream() = default;

void Sha256Stream::Update(std::string_view bytes) {
  OXBOW_CHECK(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) == 1) << "SHA-256";
  bytes_ += bytes.size();
}

std::string Sha256Stream::Hex() {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  OXBOW_CHECK(EVP_DigestFinal_ex(context_->evp, reinterpret_cast<unsigned char*>(digest.data()),
                                 nullptr) == 1)
      << "SHA-256";
  return HexOf(digest);
}

absl::StatusOr<FileDigest> DigestOfFile(const std::filesystem::path& path) {
  Sha256Stream stream;
  OXBOW_RETURN_IF_ERROR(ReadInPieces(path, [&](std::string_view piece) {
    stream.Update(piece);
    return absl::OkStatus();
  }));
  const uint64_t bytes = stream.bytes();
  return FileDigest{.sha256 = stream.Hex(), .bytes = bytes};
}

}  // namespace oxbow
