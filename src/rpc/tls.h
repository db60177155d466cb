// SPDX-License-Identifier: Apache-2.0
// Mutual TLS for every gRPC connection of this process, and the cases in which plaintext is
// allowed.
//
//   files set   every server and channel, on loopback too: both sides show a certificate of the
//               authority and refuse a peer without one
//   none set    plaintext; a server that is reachable from other machines only with `plaintext`
//
// Clients check that the server is the host they called. With `name` both sides check for that DNS
// name instead: one certificate for a whole fleet whose members have no lasting addresses.
//
// Certificates also say which part of the fleet their holder is (rpc/identity.h); which calls that
// allows is in rpc/role_table.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rpc/certificate_files.h"
#include "rpc/identity.h"

namespace grpc {
class ChannelArguments;
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace oxbow::rpc {

class Access;

struct TlsOptions {
  CertificateFiles files;  // All three or none.
  std::string name;
  bool plaintext = false;  // Allows servers beyond loopback without TLS.
  // How often the files are checked for changes; new connections use the new content. Whole
  // seconds, at least 1.
  absl::Duration reload_every = absl::Seconds(10);
  bool roles = true;    // False: any certificate of the authority may make any call.
  std::string revoked;  // File of rpc/access.h; empty: none. Only with roles.
  Roles served;         // If not empty: the own certificate must have one of these roles.
};

// Sets what servers and channels use from now on. Call it before the first is made; a later call
// does not change existing ones. Returns when the certificate in the file expires; InfiniteFuture
// without one. kInvalidArgument for an incomplete set of files or contradictions;
// kFailedPrecondition for a certificate without the roles it needs; else as CheckCertificateFiles
// and RevocationList::Open.
absl::StatusOr<absl::Time> UseTls(const TlsOptions& options);

bool UsesTls();
TlsOptions TlsInUse();  // As UseTls got them.

// OK if a server may listen on `address`: it has TLS, stays on this machine, or plaintext was
// allowed. kInvalidArgument otherwise.
absl::Status MayListen(const std::string& address);

// True for addresses that other machines cannot reach: 127.0.0.0/8, ::1, localhost, unix sockets.
// Other host names are not looked up, and are false.
bool IsLoopback(const std::string& address);

// The Access that decides the calls of this process; null without TLS or without roles.
std::shared_ptr<Access> AccessInUse();

// Only for Connect and Server::Start.
std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(grpc::ChannelArguments& arguments);
std::shared_ptr<grpc::ServerCredentials> ServerCredentials();
// For calls of this process to itself: as ClientCredentials, but the server may have any name.
// Looks for one that its certificate has, because gRPC logs an error for each connection without.
std::shared_ptr<grpc::ChannelCredentials> OwnCredentials(grpc::ChannelArguments& arguments);

}  // namespace oxbow::rpc
