// SPDX-License-Identifier: Apache-2.0
// OpenSSL's objects as values that free themselves.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509v3.h>

#include <memory>

namespace oxbow::rpc {

template <auto Function>
struct FreedBy {
  template <typename T>
  void operator()(T* object) const {
    Function(object);
  }
};

using Bio = std::unique_ptr<BIO, FreedBy<BIO_free>>;
using Certificate = std::unique_ptr<X509, FreedBy<X509_free>>;
using GeneralNames = std::unique_ptr<GENERAL_NAMES, FreedBy<GENERAL_NAMES_free>>;
using Key = std::unique_ptr<EVP_PKEY, FreedBy<EVP_PKEY_free>>;

}  // namespace oxbow::rpc
