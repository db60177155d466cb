#include "rpc/tls_flags.h"

namespace oxbow::rpc {
namespace {

constexpr char kCa[] = "OXBOW_TLS_CA";
constexpr char kCert[] = "OXBOW_TLS_CERT";
constexpr char kKey[] = "OXBOW_TLS_KEY";
constexpr char kName[] = "OXBOW_TLS_NAME";
constexpr char kPlaintext[] = "OXBOW_PLAINTEXT";

}  // namespace

void AddTlsFlags(CLI::App& app, TlsOptions& options) {
  app.add_option("--tls-ca", options.files.ca, "PEM file of the authorities to believe")
      ->envname(kCa);
  app.add_option("--tls-cert", options.files.cert, "PEM file of this process's certificate")
      ->envname(kCert);
  app.add_option("--tls-key", options.files.key, "PEM file of its private key")->envname(kKey);
  app.add_option("--tls-name", options.name,
                 "DNS name in every certificate of the fleet; default: a server's is its host")
      ->envname(kName);
}

void AddPlaintextFlag(CLI::App& app, TlsOptions& options) {
  app.add_flag("--plaintext", options.plaintext,
               "listen beyond loopback without TLS, on a network that can be trusted")
      ->envname(kPlaintext);
}

std::vector<std::string> TlsEnvironment(const TlsOptions& options) {
  std::vector<std::string> environment;
  const auto add = [&](const std::string& variable, const std::string& value) {
    if (!value.empty()) environment.push_back(variable + "=" + value);
  };
  add(kCa, options.files.ca);
  add(kCert, options.files.cert);
  add(kKey, options.files.key);
  add(kName, options.name);
  return environment;
}

}  // namespace oxbow::rpc
