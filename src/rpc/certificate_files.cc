// SPDX-License-Identifier: Apache-2.0
#include "rpc/certificate_files.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "rpc/openssl_handles.h"

namespace oxbow::rpc {
namespace {

constexpr uint64_t kPemBytesMax = 1 << 20;

using Store = std::unique_ptr<X509_STORE, FreedBy<X509_STORE_free>>;
using StoreContext = std::unique_ptr<X509_STORE_CTX, FreedBy<X509_STORE_CTX_free>>;

struct FreeStack {
  void operator()(STACK_OF(X509) * stack) const { sk_X509_free(stack); }  // Not its elements.
};

absl::Status Unfit(const std::string& flag, const std::string& what, const std::string& path) {
  return absl::FailedPreconditionError(absl::StrCat(flag, ": ", what, ": ", path));
}

absl::StatusOr<Bio> Open(const std::string& flag, const std::string& path, std::string& content) {
  absl::StatusOr<std::string> read = ReadFile(path, kPemBytesMax);
  if (!read.ok()) {
    const bool missing = absl::IsNotFound(read.status());
    return absl::Status(
        missing ? absl::StatusCode::kNotFound : absl::StatusCode::kFailedPrecondition,
        absl::StrCat(flag, ": ", std::string(read.status().message())));
  }
  content = *std::move(read);
  return Bio(BIO_new_mem_buf(content.data(), static_cast<int>(content.size())));
}

absl::StatusOr<std::vector<Certificate>> ReadCertificates(const std::string& flag,
                                                          const std::string& path) {
  std::string content;
  OXBOW_ASSIGN_OR_RETURN(const Bio bio, Open(flag, path, content));
  std::vector<Certificate> found;
  while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    found.emplace_back(one);
  }
  ERR_clear_error();  // OpenSSL reports the end of the file as an error.
  if (found.empty()) return Unfit(flag, "no certificate in PEM", path);
  return found;
}

absl::StatusOr<Key> ReadKey(const std::string& path) {
  std::string content;
  OXBOW_ASSIGN_OR_RETURN(const Bio bio, Open("--tls-key", path, content));
  // Nobody can enter a passphrase: fail at once.
  constexpr auto kNoPassphrase = [](char*, int, int, void*) { return -1; };
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, kNoPassphrase, nullptr));
  ERR_clear_error();
  if (key == nullptr) return Unfit("--tls-key", "no private key in PEM without passphrase", path);
  return key;
}

// As gRPC does: any certificate in the file is a trust anchor, root or not.
absl::Status CheckIssued(const std::vector<Certificate>& anchors,
                         const std::vector<Certificate>& chain, const CertificateFiles& files,
                         absl::Time now) {
  const Store store(X509_STORE_new());
  for (const Certificate& anchor : anchors) X509_STORE_add_cert(store.get(), anchor.get());
  X509_STORE_set_flags(store.get(), X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
  const std::unique_ptr<STACK_OF(X509), FreeStack> intermediates(sk_X509_new_null());
  for (size_t i = 1; i < chain.size(); ++i) sk_X509_push(intermediates.get(), chain[i].get());
  const StoreContext context(X509_STORE_CTX_new());
  X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), intermediates.get());
  X509_STORE_CTX_set_time(context.get(), 0, absl::ToTimeT(now));
  if (X509_verify_cert(context.get()) == 1) return absl::OkStatus();
  const int error = X509_STORE_CTX_get_error(context.get());
  ERR_clear_error();
  return Unfit("--tls-cert",
               absl::StrCat("not one that --tls-ca (", files.ca,
                            ") vouches for: ", X509_verify_cert_error_string(error)),
               files.cert);
}

absl::Time EndOf(const X509& certificate) {
  std::tm end{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(&certificate), &end) != 1) return absl::InfiniteFuture();
  return absl::FromTM(end, absl::UTCTimeZone());
}

}  // namespace

absl::StatusOr<absl::Time> CheckCertificateFiles(const CertificateFiles& files,
                                                 const std::string& name, absl::Time now) {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<Certificate> anchors,
                         ReadCertificates("--tls-ca", files.ca));
  OXBOW_ASSIGN_OR_RETURN(const std::vector<Certificate> chain,
                         ReadCertificates("--tls-cert", files.cert));
  OXBOW_ASSIGN_OR_RETURN(const Key key, ReadKey(files.key));
  X509* const shown = chain[0].get();
  const bool fits = X509_check_private_key(shown, key.get()) == 1;
  ERR_clear_error();
  if (!fits) {
    return Unfit("--tls-key", absl::StrCat("not the key of --tls-cert (", files.cert, ")"),
                 files.key);
  }
  OXBOW_RETURN_IF_ERROR(CheckIssued(anchors, chain, files, now));
  if (!name.empty() && X509_check_host(shown, name.c_str(), name.size(),
                                       X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, nullptr) != 1) {
    return Unfit("--tls-cert", absl::StrCat("no DNS name ", name, " (--tls-name) in it"),
                 files.cert);
  }
  return EndOf(*shown);
}

std::string ANameIn(const std::string& cert) {
  const auto chain = ReadCertificates("--tls-cert", cert);
  if (!chain.ok()) return "";
  const GeneralNames names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(chain->front().get(), NID_subject_alt_name, nullptr, nullptr)));
  std::string address;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_DNS && name->type != GEN_IPADD) continue;
    const unsigned char* const bytes = ASN1_STRING_get0_data(name->d.ia5);
    const int size = ASN1_STRING_length(name->d.ia5);
    if (name->type == GEN_DNS) return std::string(bytes, bytes + size);
    if (size != sizeof(in_addr) && size != sizeof(in6_addr)) continue;
    char text[INET6_ADDRSTRLEN] = {};
    inet_ntop(size == sizeof(in_addr) ? AF_INET : AF_INET6, bytes, text, sizeof text);
    if (address.empty()) address = text;
  }
  return address;
}

absl::Status CheckServesHost(const std::string& cert, const std::string& host) {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<Certificate> chain,
                         ReadCertificates("--tls-cert", cert));
  X509* const shown = chain[0].get();
  if (X509_check_host(shown, host.c_str(), host.size(), X509_CHECK_FLAG_NEVER_CHECK_SUBJECT,
                      nullptr) == 1 ||
      X509_check_ip_asc(shown, host.c_str(), 0) == 1) {
    return absl::OkStatus();
  }
  ERR_clear_error();
  return Unfit("--tls-cert",
               absl::StrCat("processes call each other at ", host,
                            ", which is not in it (give "
                            "--tls-name with a DNS name of it, or make one with oxbow "
                            "certificates --host ",
                            host, ")"),
               cert);
}

}  // namespace oxbow::rpc
