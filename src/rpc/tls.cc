// SPDX-License-Identifier: Apache-2.0
#include "rpc/tls.h"

#include <arpa/inet.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "rpc/access.h"
#include "rpc/call_checks.h"

namespace oxbow::rpc {
namespace {

namespace tls = grpc::experimental;

struct Credentials {
  TlsOptions options;
  std::shared_ptr<grpc::ChannelCredentials> client = grpc::InsecureChannelCredentials();
  std::shared_ptr<grpc::ServerCredentials> server = grpc::InsecureServerCredentials();
  std::shared_ptr<grpc::ChannelCredentials> own = client;
  std::string name;
  std::string own_name;  // One that the own certificate has.
  bool encrypted = false;
  bool plaintext = false;
  // Shared with the connections that it decides about, which outlive a change of these.
  std::shared_ptr<Access> access;
};

class Process {
 public:
  static Process& This() {
    static Process& process = *new Process;  // Never destroyed: threads may outlive main.
    return process;
  }
  void Set(Credentials credentials) {
    absl::MutexLock lock(&mutex_);
    credentials_ = std::move(credentials);
  }
  Credentials Get() const {
    absl::MutexLock lock(&mutex_);
    return credentials_;
  }

 private:
  mutable absl::Mutex mutex_;
  Credentials credentials_ ABSL_GUARDED_BY(mutex_);
};

// Checks that a caller's certificate has the fleet's name, as a server's certificate must.
class NameVerifier final : public tls::ExternalCertificateVerifier {
 public:
  explicit NameVerifier(std::string name) : name_(std::move(name)) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    const auto names = request->dns_names();
    const bool known = std::any_of(names.begin(), names.end(), [&](const grpc::string_ref& one) {
      return absl::EqualsIgnoreCase(absl::string_view(one.data(), one.size()), name_);
    });
    if (!known) *status = {grpc::StatusCode::UNAUTHENTICATED, "the caller is not of this fleet"};
    return true;  // Decided synchronously.
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  const std::string name_;
};

// One watcher of the files, and so one set of credentials, for all channels and servers: channels
// to the same endpoint share a connection only if they share credentials.
Credentials MakeCredentials(const TlsOptions& options, const std::shared_ptr<Access>& access) {
  const auto files = std::make_shared<tls::FileWatcherCertificateProvider>(
      options.files.key, options.files.cert, options.files.ca,
      static_cast<unsigned>(std::max<int64_t>(1, absl::ToInt64Seconds(options.reload_every))));
  // Each set of credentials takes its options over: a copy would share what is freed once only.
  const auto watch = [&](auto& credentials) {
    credentials.set_certificate_provider(files);
    credentials.watch_root_certs();
    credentials.watch_identity_key_cert_pairs();
  };
  tls::TlsChannelCredentialsOptions client;
  watch(client);
  tls::TlsChannelCredentialsOptions own;
  watch(own);
  own.set_certificate_verifier(std::make_shared<tls::NoOpCertificateVerifier>());
  own.set_check_call_host(false);  // An address that no certificate has to name.
  tls::TlsServerCredentialsOptions server(files);
  server.watch_root_certs();
  server.watch_identity_key_cert_pairs();
  server.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  if (!options.name.empty()) {
    server.set_certificate_verifier(
        tls::ExternalCertificateVerifier::Create<NameVerifier>(options.name));
  }
  Credentials made{.options = options,
                   .client = tls::TlsCredentials(client),
                   .server = tls::TlsServerCredentials(server),
                   .own = tls::TlsCredentials(own),
                   .name = options.name,
                   .own_name = options.name.empty() ? ANameIn(options.files.cert) : options.name,
                   .encrypted = true,
                   .access = access};
  if (access != nullptr) {
    made.client = grpc::CompositeChannelCredentials(made.client, AnswererCheck(access));
    made.server->SetAuthMetadataProcessor(CallerCheck(access));
  }
  return made;
}

// The Access that decides the calls of a process with this certificate; null without roles.
absl::StatusOr<std::shared_ptr<Access>> MakeAccess(const TlsOptions& options) {
  if (!options.roles) return nullptr;
  const auto unfit = [&](const absl::Status& status) {
    return absl::FailedPreconditionError(
        absl::StrCat("--tls-cert: ", std::string(status.message()), ": ", options.files.cert));
  };
  OXBOW_ASSIGN_OR_RETURN(const std::string pem, ReadFile(options.files.cert));
  const absl::StatusOr<Holder> own = HolderOf(pem);
  if (!own.ok()) return unfit(own.status());
  absl::StatusOr<std::string> fleet = FleetOf(*own, options.name);
  if (!fleet.ok()) return unfit(fleet.status());
  if (options.served != Roles() && !own->RolesIn(*fleet).Meets(options.served)) {
    return unfit(absl::FailedPreconditionError(absl::StrCat(
        "this process takes the role ", NamesOf(options.served), ", not ", own->Name())));
  }
  auto revoked = RevocationList::Open(options.revoked, options.reload_every, Clock::Steady());
  if (!revoked.ok()) return Annotate(revoked.status(), "--tls-revoked");
  return std::make_shared<Access>(*std::move(fleet), *std::move(revoked));
}

bool IsLoopbackHost(const std::string& host) {
  if (absl::EqualsIgnoreCase(host, "localhost")) return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return false;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return v6.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&v6);
}

}  // namespace

absl::StatusOr<absl::Time> UseTls(const TlsOptions& options) {
  const CertificateFiles& files = options.files;
  const int given = !files.ca.empty() + !files.cert.empty() + !files.key.empty();
  if (given == 0) {
    if (!options.name.empty()) {
      return absl::InvalidArgumentError(
          "--tls-name is of use only with --tls-ca, --tls-cert and --tls-key");
    }
    if (!options.revoked.empty()) {
      return absl::InvalidArgumentError(
          "--tls-revoked is of use only with --tls-ca, --tls-cert and --tls-key");
    }
    Process::This().Set({.plaintext = options.plaintext});
    return absl::InfiniteFuture();
  }
  if (given < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-ca, --tls-cert and --tls-key belong together; missing:",
                     files.ca.empty() ? " --tls-ca" : "", files.cert.empty() ? " --tls-cert" : "",
                     files.key.empty() ? " --tls-key" : ""));
  }
  if (options.plaintext) {
    return absl::InvalidArgumentError(
        "--plaintext and --tls-cert exclude each other (OXBOW_PLAINTEXT, OXBOW_TLS_CERT in the "
        "environment)");
  }
  OXBOW_ASSIGN_OR_RETURN(const absl::Time end,
                         CheckCertificateFiles(files, options.name, absl::Now()));
  if (!options.roles && !options.revoked.empty()) {
    return absl::InvalidArgumentError("--tls-revoked needs roles, and --tls-roles is off");
  }
  OXBOW_ASSIGN_OR_RETURN(const std::shared_ptr<Access> access, MakeAccess(options));
  Process::This().Set(MakeCredentials(options, access));
  return end;
}

TlsOptions TlsInUse() { return Process::This().Get().options; }

bool UsesTls() { return Process::This().Get().encrypted; }

absl::Status MayListen(const std::string& address) {
  const Credentials credentials = Process::This().Get();
  if (credentials.encrypted || credentials.plaintext || IsLoopback(address)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("listening beyond this machine takes --tls-ca, --tls-cert and --tls-key, or "
                   "--plaintext where the network can be trusted: ",
                   address));
}

bool IsLoopback(const std::string& address) {
  absl::string_view rest = address;
  if (absl::StartsWith(rest, "unix:") || absl::StartsWith(rest, "unix-abstract:")) return true;
  // gRPC's schemes: "ipv4:H:P", "dns:H:P", "dns:///H:P".
  for (const char* scheme : {"ipv4:", "ipv6:", "dns:"}) {
    if (absl::ConsumePrefix(&rest, scheme)) break;
  }
  absl::ConsumePrefix(&rest, "///");
  if (absl::ConsumePrefix(&rest, "[")) {
    return IsLoopbackHost(std::string(rest.substr(0, rest.find(']'))));
  }
  return IsLoopbackHost(std::string(rest.substr(0, rest.rfind(':'))));
}

std::shared_ptr<Access> AccessInUse() { return Process::This().Get().access; }

std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(grpc::ChannelArguments& arguments) {
  const Credentials credentials = Process::This().Get();
  if (!credentials.name.empty()) arguments.SetSslTargetNameOverride(credentials.name);
  return credentials.client;
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentials() {
  return Process::This().Get().server;
}

std::shared_ptr<grpc::ChannelCredentials> OwnCredentials(grpc::ChannelArguments& arguments) {
  const Credentials credentials = Process::This().Get();
  if (!credentials.own_name.empty()) arguments.SetSslTargetNameOverride(credentials.own_name);
  return credentials.own;
}

}  // namespace oxbow::rpc
