// SPDX-License-Identifier: Apache-2.0
#include "rpc/certificate_authority.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "rpc/openssl_handles.h"

namespace oxbow::rpc {
namespace {

constexpr absl::Duration kClocksDiffer = absl::Hours(1);

Key NewKey() {
  Key key(EVP_EC_gen("P-256"));
  OXBOW_CHECK(key != nullptr) << "OpenSSL makes no P-256 key";
  return key;
}

// False if OpenSSL does not understand `value`.
bool AddExtension(X509& certificate, X509& issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, &issuer, &certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  ERR_clear_error();
  if (extension == nullptr) return false;
  X509_add_ext(&certificate, extension, -1);
  X509_EXTENSION_free(extension);
  return true;
}

// A certificate without issuer, extensions and signature.
Certificate Blank(const std::string& common_name, EVP_PKEY& key, absl::Duration starts,
                  absl::Duration ends) {
  Certificate made(X509_new());
  X509_set_version(made.get(), 2);  // 2 means version 3.
  uint64_t serial = 0;
  OXBOW_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(made.get()), serial >> 1);  // Positive as int64.
  X509_time_adj_ex(X509_getm_notBefore(made.get()), 0, absl::ToInt64Seconds(starts), nullptr);
  X509_time_adj_ex(X509_getm_notAfter(made.get()), 0, absl::ToInt64Seconds(ends), nullptr);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
  X509_set_pubkey(made.get(), &key);
  return made;
}

template <typename Write>
std::string PemBy(Write write) {
  const Bio bio(BIO_new(BIO_s_mem()));
  OXBOW_CHECK(write(bio.get()) == 1) << "OpenSSL writes no PEM";
  char* bytes = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(bio.get(), &bytes));
  return {bytes, size};
}

KeyedCertificate PemOfBoth(X509& certificate, EVP_PKEY& key) {
  return {.certificate = PemBy([&](BIO* bio) { return PEM_write_bio_X509(bio, &certificate); }),
          .key = PemBy([&](BIO* bio) {
            return PEM_write_bio_PrivateKey(bio, &key, nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

}  // namespace

struct CertificateAuthority::Keys {
  Key key;
  Certificate certificate;
};

CertificateAuthority::CertificateAuthority(std::unique_ptr<Keys> keys) : keys_(std::move(keys)) {}
CertificateAuthority::~CertificateAuthority() = default;
CertificateAuthority::CertificateAuthority(CertificateAuthority&&) noexcept = default;

CertificateAuthority CertificateAuthority::Create(const std::string& common_name,
                                                  absl::Duration ends) {
  auto keys = std::make_unique<Keys>();
  keys->key = NewKey();
  keys->certificate = Blank(common_name, *keys->key, -kClocksDiffer, ends);
  X509& own = *keys->certificate;
  X509_set_issuer_name(&own, X509_get_subject_name(&own));
  OXBOW_CHECK(AddExtension(own, own, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  OXBOW_CHECK(AddExtension(own, own, NID_key_usage, "critical,keyCertSign,cRLSign"));
  OXBOW_CHECK(X509_sign(&own, keys->key.get(), EVP_sha256()) > 0);
  return CertificateAuthority(std::move(keys));
}

absl::StatusOr<CertificateAuthority> CertificateAuthority::Open(const KeyedCertificate& pem) {
  const auto read = [](const std::string& text) {
    return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  };
  auto keys = std::make_unique<Keys>();
  keys->certificate.reset(
      PEM_read_bio_X509(read(pem.certificate).get(), nullptr, nullptr, nullptr));
  constexpr auto kNoPassphrase = [](char*, int, int, void*) { return -1; };
  keys->key.reset(PEM_read_bio_PrivateKey(read(pem.key).get(), nullptr, kNoPassphrase, nullptr));
  const bool fits = keys->certificate != nullptr && keys->key != nullptr &&
                    X509_check_private_key(keys->certificate.get(), keys->key.get()) == 1 &&
                    X509_check_ca(keys->certificate.get()) == 1;
  ERR_clear_error();
  if (!fits) return absl::InvalidArgumentError("not the certificate and key of an authority");
  return CertificateAuthority(std::move(keys));
}

absl::StatusOr<KeyedCertificate> CertificateAuthority::Issue(const Request& request) const {
  const Key key = NewKey();
  const Certificate made = Blank(request.common_name, *key, request.starts, request.ends);
  X509& issuer = *keys_->certificate;
  X509_set_issuer_name(made.get(), X509_get_subject_name(&issuer));
  if (!AddExtension(*made, issuer, NID_subject_alt_name, request.names)) {
    return absl::InvalidArgumentError(absl::StrCat("not names of a certificate: ", request.names));
  }
  OXBOW_CHECK(AddExtension(*made, issuer, NID_key_usage, "critical,digitalSignature"));
  OXBOW_CHECK(AddExtension(*made, issuer, NID_ext_key_usage, "serverAuth,clientAuth"));
  OXBOW_CHECK(X509_sign(made.get(), keys_->key.get(), EVP_sha256()) > 0);
  return PemOfBoth(*made, *key);
}

KeyedCertificate CertificateAuthority::Pem() const {
  return PemOfBoth(*keys_->certificate, *keys_->key);
}

}  // namespace oxbow::rpc
