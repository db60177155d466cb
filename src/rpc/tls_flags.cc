// SPDX-License-Identifier: Apache-2.0
#include "rpc/tls_flags.h"

#include "rpc/channel.h"

namespace oxbow::rpc {
namespace {

constexpr char kCa[] = "OXBOW_TLS_CA";
constexpr char kCert[] = "OXBOW_TLS_CERT";
constexpr char kKey[] = "OXBOW_TLS_KEY";
constexpr char kName[] = "OXBOW_TLS_NAME";
constexpr char kRoles[] = "OXBOW_TLS_ROLES";
constexpr char kRevoked[] = "OXBOW_TLS_REVOKED";
constexpr char kPlaintext[] = "OXBOW_PLAINTEXT";
constexpr char kHttpProxy[] = "OXBOW_HTTP_PROXY";
constexpr char kGroup[] = "Connections between machines";  // On the page of --help.

void ComesFrom(const char* variable, CLI::Option* option) {
  option->envname(variable)->group(kGroup);
}

}  // namespace

void AddTlsFlags(CLI::App& app, TlsOptions& options) {
  ComesFrom(kCa,
            app.add_option("--tls-ca", options.files.ca, "PEM file of the authorities to believe"));
  ComesFrom(kCert, app.add_option("--tls-cert", options.files.cert,
                                  "PEM file of this process's certificate"));
  ComesFrom(kKey, app.add_option("--tls-key", options.files.key, "PEM file of its private key"));
  ComesFrom(kName, app.add_option("--tls-name", options.name,
                                  "DNS name in every certificate of the fleet; default: a server's "
                                  "is its host"));
  ComesFrom(
      kRoles,
      app.add_option_function<std::string>(
             "--tls-roles", [&options](const std::string& word) { options.roles = word != "off"; },
             "required: each certificate has roles, which say what its holder may call; off: "
             "all members may call everything; default: required")
          ->check(CLI::IsMember({"required", "off"})));
  ComesFrom(kRevoked,
            app.add_option("--tls-revoked", options.revoked,
                           "file of certificates that are refused: an identity or serial number a "
                           "line, read again when it changes"));
  ComesFrom(kHttpProxy,
            app.add_flag_callback(
                "--http-proxy", [] { UseHttpProxy(true); },
                "call services through the proxy that http_proxy, https_proxy or grpc_proxy names; "
                "else these are not looked at"));
}

void AddPlaintextFlag(CLI::App& app, TlsOptions& options) {
  ComesFrom(kPlaintext,
            app.add_flag("--plaintext", options.plaintext,
                         "listen beyond loopback without TLS, on a network that can be trusted"));
}

std::vector<std::string> ConnectionEnvironment(const TlsOptions& options) {
  std::vector<std::string> environment;
  const auto add = [&](const std::string& variable, const std::string& value) {
    if (!value.empty()) environment.push_back(variable + "=" + value);
  };
  add(kCa, options.files.ca);
  add(kCert, options.files.cert);
  add(kKey, options.files.key);
  add(kName, options.name);
  add(kRoles, options.roles ? "" : "off");
  add(kRevoked, options.revoked);
  add(kPlaintext, options.plaintext ? "1" : "");
  add(kHttpProxy, UsesHttpProxy() ? "1" : "");
  return environment;
}

}  // namespace oxbow::rpc
