// SPDX-License-Identifier: Apache-2.0
// The flags of mutual TLS, the same for every program that calls a service or is one. Each flag can
// come from the environment: --tls-ca from OXBOW_TLS_CA, and so on.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "rpc/tls.h"

namespace oxbow::rpc {

// Adds --tls-ca, --tls-cert, --tls-key, --tls-name, --tls-roles and --tls-revoked, which fill
// `options` for UseTls.
void AddTlsFlags(CLI::App& app, TlsOptions& options);

// Adds --plaintext, for programs that listen.
void AddPlaintextFlag(CLI::App& app, TlsOptions& options);

// "NAME=value" for each flag that was set; for child processes.
std::vector<std::string> TlsEnvironment(const TlsOptions& options);

}  // namespace oxbow::rpc
