// SPDX-License-Identifier: Apache-2.0
// The common part of the main functions of all services: flags, the order of a start, the report
// of start-up errors, and the exit status.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "rpc/tls.h"

namespace oxbow::rpc {

struct ServiceFlags {
  std::string listen = "127.0.0.1:0";  // Only for processes that serve: add it with AddListenFlag.
  std::string metrics_listen = "127.0.0.1:0";
  std::string log_level = "info";
  std::string log_format = "text";
  TlsOptions tls;
  bool reflection = false;
};

// `service` names what is served, for example "ReplayBuffer service".
void AddListenFlag(CLI::App& app, ServiceFlags& flags, const std::string& service);

// Runs a process: blocks stop signals, adds --version, --metrics-listen and the flags of TLS and
// log to those of `add_flags`, parses the command line, configures log and TLS, and calls `serve`.
// On failure prints "NAME: message" on stderr. Returns the exit status (base/exit_code.h).
int RunService(const std::string& name, const std::string& purpose, int argc, char** argv,
               ServiceFlags& flags, const std::function<void(CLI::App&)>& add_flags,
               const std::function<absl::Status()>& serve);

}  // namespace oxbow::rpc
