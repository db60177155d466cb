#include "tests/testing/certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "absl/time/clock.h"
#include "base/check.h"
#include "base/file.h"

namespace oxbow::testing {
namespace {

template <auto Function>
struct FreedBy {
  template <typename T>
  void operator()(T* object) const {
    Function(object);
  }
};
using Bio = std::unique_ptr<BIO, FreedBy<BIO_free>>;
using Certificate = std::unique_ptr<X509, FreedBy<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, FreedBy<EVP_PKEY_free>>;

Key NewKey() {
  Key key(EVP_EC_gen("P-256"));
  OXBOW_CHECK(key != nullptr);
  return key;
}

void AddExtension(X509& certificate, X509& issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, &issuer, &certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  OXBOW_CHECK(extension != nullptr) << value;
  X509_add_ext(&certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// A certificate without issuer, extensions and signature.
Certificate Blank(const std::string& common_name, EVP_PKEY& key, absl::Duration starts,
                  absl::Duration ends) {
  Certificate made(X509_new());
  X509_set_version(made.get(), 2);  // 2 means version 3.
  uint32_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(made.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), absl::ToInt64Seconds(starts));
  X509_gmtime_adj(X509_getm_notAfter(made.get()), absl::ToInt64Seconds(ends));
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                             0);
  X509_set_pubkey(made.get(), &key);
  return made;
}

template <typename Write>
std::string Pem(Write write) {
  const Bio bio(BIO_new(BIO_s_mem()));
  OXBOW_CHECK(write(bio.get()) == 1);
  char* bytes = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(bio.get(), &bytes));
  return {bytes, size};
}

std::string Pem(X509* certificate) {
  return Pem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

}  // namespace

struct Authority::Keys {
  Key key;
  Certificate certificate;
};

Authority::Authority(const std::string& common_name) : keys_(std::make_unique<Keys>()) {
  keys_->key = NewKey();
  keys_->certificate = Blank(common_name, *keys_->key, -absl::Hours(1), absl::Hours(24));
  X509& own = *keys_->certificate;
  X509_set_issuer_name(&own, X509_get_subject_name(&own));
  AddExtension(own, own, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(own, own, NID_key_usage, "critical,keyCertSign,cRLSign");
  OXBOW_CHECK(X509_sign(&own, keys_->key.get(), EVP_sha256()) > 0);
}

Authority::~Authority() = default;

void Authority::Write(const std::filesystem::path& directory, const Issue& issue) const {
  const Key key = NewKey();
  const Certificate made = Blank("member", *key, issue.starts, issue.ends);
  X509_set_issuer_name(made.get(), X509_get_subject_name(keys_->certificate.get()));
  AddExtension(*made, *keys_->certificate, NID_subject_alt_name, issue.names);
  AddExtension(*made, *keys_->certificate, NID_ext_key_usage, "serverAuth,clientAuth");
  OXBOW_CHECK(X509_sign(made.get(), keys_->key.get(), EVP_sha256()) > 0);
  const auto write = [&](const char* name, const std::string& content) {
    const absl::Status written = WriteFileAtomically(directory / name, content);
    OXBOW_CHECK(written.ok()) << written.ToString();
  };
  std::filesystem::create_directories(directory);
  write("ca.crt", Pem(keys_->certificate.get()));
  write("tls.crt", Pem(made.get()));
  write("tls.key", Pem([&](BIO* bio) {
          return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
        }));
}

}  // namespace oxbow::testing
