// What the main functions of all services have in common: the shared flags, the order of a start,
// how a start-up error is told, and the exit status.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "rpc/tls.h"

namespace oxbow::rpc {

struct ServiceFlags {
  std::string listen = "127.0.0.1:0";  // Of services that have a server: add it with AddListenFlag.
  std::string metrics_listen = "127.0.0.1:0";
  std::string log_level = "info";
  std::string log_format = "text";
  TlsOptions tls;
};

// `service` names what is served: "ReplayBuffer service".
void AddListenFlag(CLI::App& app, ServiceFlags& flags, const std::string& service);

// The life of a process: blocks stop signals, adds --version, --metrics-listen, the flags of TLS
// and of the log to those of `add_flags`, parses, configures log and TLS, runs `serve`. Prints
// "NAME: message" on stderr when that fails. Returns the exit status (base/exit_code.h).
int RunService(const std::string& name, const std::string& purpose, int argc, char** argv,
               ServiceFlags& flags, const std::function<void(CLI::App&)>& add_flags,
               const std::function<absl::Status()>& serve);

}  // namespace oxbow::rpc
