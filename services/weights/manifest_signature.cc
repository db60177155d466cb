// SPDX-License-Identifier: Apache-2.0
#include "services/weights/manifest_signature.h"

#include <openssl/evp.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace oxbow::weights {
namespace {

constexpr size_t kKeyBytes = 32;
constexpr size_t kSignatureBytes = 64;

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_MD_CTX, FreeContext>;
struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};

void Append(std::string& text, const std::string& bytes) {
  absl::StrAppend(&text, bytes.size(), " ", bytes);
}

// The bytes of a number, so that no rounding of a printed one matters.
template <typename Number>
void AppendNumber(std::string& text, Number number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  text.append(bytes, sizeof bytes);
}

// What is signed. It begins with its own name, so that a signature is good for nothing else; each
// string follows its length. All machines of a run are little-endian (docs/formats.md).
std::string SignedBytes(const v1::SnapshotManifest& manifest) {
  std::string text = "oxbow manifest 1\n";
  AppendNumber(text, manifest.epoch());
  AppendNumber(text, manifest.policy_version());
  AppendNumber(text, manifest.learner_step());
  AppendNumber(text, manifest.chunk_bytes());
  Append(text, manifest.sha256());
  Append(text, manifest.base_sha256());
  const v1::SnapshotManifest::Probe& probe = manifest.probe();
  AppendNumber(text, probe.seed());
  AppendNumber(text, probe.tolerance());
  Append(text, probe.digest());
  AppendNumber(text, static_cast<uint64_t>(probe.outputs_size()));
  for (const float output : probe.outputs()) AppendNumber(text, output);
  return text;
}

const unsigned char* Bytes(const std::string& text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

struct ManifestSigner::Key {
  std::unique_ptr<EVP_PKEY, FreeKey> pair;
};

ManifestSigner::ManifestSigner() : key_(std::make_unique<Key>()) {
  key_->pair.reset(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  OXBOW_CHECK(key_->pair != nullptr) << "OpenSSL makes no Ed25519 key";
  public_key_.resize(kKeyBytes);
  size_t size = kKeyBytes;
  OXBOW_CHECK(EVP_PKEY_get_raw_public_key(key_->pair.get(),
                                          reinterpret_cast<unsigned char*>(public_key_.data()),
                                          &size) == 1 &&
              size == kKeyBytes);
}

ManifestSigner::~ManifestSigner() = default;

void ManifestSigner::Sign(v1::SnapshotManifest& manifest) const {
  const std::string text = SignedBytes(manifest);
  std::string signature(kSignatureBytes, '\0');
  size_t size = signature.size();
  const Context context(EVP_MD_CTX_new());
  OXBOW_CHECK(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_->pair.get()) == 1 &&
              EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()),
                             &size, Bytes(text), text.size()) == 1 &&
              size == kSignatureBytes)
      << "OpenSSL does not sign";
  manifest.set_signature(signature);
}

absl::Status CheckSignature(const v1::SnapshotManifest& manifest, const std::string& public_key) {
  const auto refused = [&](const char* why) {
    return absl::DataLossError(absl::StrCat(why, ": policy version ", manifest.policy_version()));
  };
  const std::unique_ptr<EVP_PKEY, FreeKey> key(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, Bytes(public_key), public_key.size()));
  if (key == nullptr) return refused("the learner's key for manifests is no Ed25519 key");
  if (manifest.signature().empty()) return refused("the manifest is not signed");
  const std::string text = SignedBytes(manifest);
  const Context context(EVP_MD_CTX_new());
  const bool good =
      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
      EVP_DigestVerify(context.get(), Bytes(manifest.signature()), manifest.signature().size(),
                       Bytes(text), text.size()) == 1;
  return good ? absl::OkStatus() : refused("the manifest is not signed by the learner");
}

}  // namespace oxbow::weights
