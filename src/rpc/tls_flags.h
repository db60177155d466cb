// The flags of mutual TLS, the same for every program that speaks to a service or is one. Each may
// come from the environment: --tls-ca from OXBOW_TLS_CA, and so on.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "rpc/tls.h"

namespace oxbow::rpc {

// --tls-ca, --tls-cert, --tls-key, --tls-name. UseTls takes what they said.
void AddTlsFlags(CLI::App& app, TlsOptions& options);

// --plaintext, of those that listen.
void AddPlaintextFlag(CLI::App& app, TlsOptions& options);

// "NAME=value" of each that was said, for processes that are started.
std::vector<std::string> TlsEnvironment(const TlsOptions& options);

}  // namespace oxbow::rpc
