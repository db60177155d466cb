// SPDX-License-Identifier: Apache-2.0
// The flags of connections, the same for every program that calls a service or is one: mutual TLS,
// and whether calls go through a proxy. Each flag can come from the environment: --tls-ca from
// OXBOW_TLS_CA, and so on.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "rpc/tls.h"

namespace oxbow::rpc {

// Adds --tls-ca, --tls-cert, --tls-key, --tls-name, --tls-roles and --tls-revoked, which fill
// `options` for UseTls; and --http-proxy, which calls UseHttpProxy.
void AddTlsFlags(CLI::App& app, TlsOptions& options);

// Adds --plaintext, for programs that listen.
void AddPlaintextFlag(CLI::App& app, TlsOptions& options);

// "NAME=value" for each flag that was set; for child processes.
std::vector<std::string> ConnectionEnvironment(const TlsOptions& options);

}  // namespace oxbow::rpc
