// SPDX-License-Identifier: Apache-2.0
#include "rpc/port_language.h"

#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/descriptor.h"
#include "base/listening_sockets.h"
#include "rpc/openssl_handles.h"
#include "rpc/tls.h"

namespace oxbow::rpc {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(1);
constexpr unsigned char kHttp2[] = {2, 'h', '2'};

using Context = std::unique_ptr<SSL_CTX, FreedBy<SSL_CTX_free>>;
using Session = std::unique_ptr<SSL, FreedBy<SSL_free>>;
using Found = std::unique_ptr<addrinfo, FreedBy<freeaddrinfo>>;

// A connected socket; none if nothing listens. gRPC's other kinds of address are not for people.
Descriptor ConnectedTo(const std::string& endpoint, absl::Duration timeout) {
  const std::string address = WithBrackets(endpoint);
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return Descriptor();
  absl::string_view host = absl::string_view(address).substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (getaddrinfo(std::string(host).c_str(), address.substr(colon + 1).c_str(), &hints, &first) !=
      0) {
    return Descriptor();
  }
  const Found found(first);
  const timeval patience = absl::ToTimeval(timeout);
  for (const addrinfo* info = first; info != nullptr; info = info->ai_next) {
    Descriptor socket(::socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    for (const int option : {SO_SNDTIMEO, SO_RCVTIMEO}) {
      ::setsockopt(socket.value, SOL_SOCKET, option, &patience, sizeof patience);
    }
    if (::connect(socket.value, info->ai_addr, info->ai_addrlen) == 0) return socket;
  }
  return Descriptor();
}

// OpenSSL writes to sockets without MSG_NOSIGNAL. While this lives, a write to a peer that has gone
// is an error of that write alone, in this thread.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    const timespec now{};
    while (sigtimedwait(&pipe_, nullptr, &now) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_;
  sigset_t before_;
};

// With the files of this process, if it has some; nobody is refused in the handshake itself.
Context ContextOf(const CertificateFiles& files) {
  Context context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  SSL_CTX_set_alpn_protos(context.get(), kHttp2, sizeof kHttp2);
  if (files.cert.empty()) return context;
  SSL_CTX_load_verify_locations(context.get(), files.ca.c_str(), nullptr);
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context.get()),
                              X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
  SSL_CTX_use_certificate_chain_file(context.get(), files.cert.c_str());
  SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM);
  return context;
}

// Whether the peer refuses this process's certificate. Under TLS 1.3 it looks at it after the
// handshake, and ends the connection in place of its first bytes.
bool RefusesOurs(SSL& session) {
  char byte = 0;
  ERR_clear_error();
  const int count = SSL_read(&session, &byte, 1);
  return count <= 0 && SSL_get_error(&session, count) != SSL_ERROR_WANT_READ;  // Then it is silent.
}

std::string SpokenUnderTls(const TlsOptions& own, SSL& session) {
  if (own.files.cert.empty()) {
    return "this port speaks TLS, and this process does not: give it --tls-ca, --tls-cert and "
           "--tls-key (OXBOW_TLS_CA, ...)";
  }
  if (SSL_get_verify_result(&session) != X509_V_OK) {
    return absl::StrCat(
        "the certificate of what listens there is of another authority than "
        "--tls-ca: ",
        own.files.ca);
  }
  if (RefusesOurs(session)) {
    return absl::StrCat(
        "what listens there refuses this process's certificate (is it of another "
        "authority?): --tls-cert ",
        own.files.cert);
  }
  return "";
}

}  // namespace

std::string WhyNotUnderstood(const std::string& endpoint, absl::Duration timeout) {
  const NoPipeSignal no_signal;
  const TlsOptions own = TlsInUse();
  const Descriptor socket = ConnectedTo(endpoint, timeout);
  if (socket.value < 0) return "";
  const Context context = ContextOf(own.files);
  const Session session(SSL_new(context.get()));
  SSL_set_fd(session.get(), socket.value);
  ERR_clear_error();
  std::string why;
  if (SSL_connect(session.get()) == 1) {
    why = SpokenUnderTls(own, *session);
  } else if (!own.files.cert.empty() &&
             ERR_GET_REASON(ERR_peek_error()) == SSL_R_WRONG_VERSION_NUMBER) {
    why =
        "this port does not speak TLS, and this process does: give it the files of TLS, or call "
        "it without";
  }
  ERR_clear_error();
  return why;
}

absl::Status Explained(const absl::Status& status, const std::string& endpoint) {
  if (!absl::IsUnavailable(status)) return status;
  const std::string why = WhyNotUnderstood(endpoint, kPatience);
  return why.empty() ? status : absl::UnavailableError(why);
}

}  // namespace oxbow::rpc
