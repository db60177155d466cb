// SPDX-License-Identifier: Apache-2.0
#include "rpc/service_main.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>

#include <iostream>
#include <map>

#include "base/build_version.h"
#include "base/exit_code.h"
#include "base/help_page.h"
#include "base/log.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "rpc/server.h"
#include "rpc/tls_flags.h"

namespace oxbow::rpc {
namespace {

const std::map<std::string, LogLevel> kLevels = {{"debug", LogLevel::kDebug},
                                                 {"info", LogLevel::kInfo},
                                                 {"warning", LogLevel::kWarning},
                                                 {"error", LogLevel::kError}};

const std::map<std::string, Role> kRoleOf = {{"learner", Role::kLearner},
                                             {"rollout_worker", Role::kWorker},
                                             {"replay_buffer", Role::kBuffer},
                                             {"reward_server", Role::kReward}};

void AddSharedFlags(CLI::App& app, ServiceFlags& flags, const std::string& name) {
  app.set_version_flag("--version", name + " " + BuildVersion());
  app.add_option("--metrics-listen", flags.metrics_listen, "host:port of /metrics; port 0: any");
  app.add_option("--log-level", flags.log_level, "least severe line to log")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  app.add_option("--log-format", flags.log_format, "of log lines")
      ->check(CLI::IsMember({"text", "json"}));
  AddTlsFlags(app, flags.tls);
  for (CLI::Option* option : app.get_options()) option->capture_default_str();
}

// Debian's Abseil is built with assertions: of each mutex, also of gRPC's, it keeps which others
// were held with it. That is 3 % of a busy service's processor time, and 1 to 2 KiB a stream.
// Release builds go without, as those of Abseil do; tests and other builds look for wrong orders of
// locks.
void ForgetLockOrder() {
#ifdef NDEBUG
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
}

// Refuses a bad address before a model is loaded.
absl::Status ConfigureTls(const ServiceFlags& flags) {
  OXBOW_ASSIGN_OR_RETURN(const absl::Time end, UseTls(flags.tls));
  if (const std::string& cert = flags.tls.files.cert; !cert.empty()) {
    OXBOW_LOG(Info) << "mutual TLS" << Field("cert", cert) << Field("name", flags.tls.name)
                    << Field("valid_until", absl::FormatTime(end, absl::UTCTimeZone()));
  }
  return MayListen(flags.listen);
}

}  // namespace

void AddListenFlag(CLI::App& app, ServiceFlags& flags, const std::string& service) {
  app.add_option("--listen", flags.listen, "host:port of the " + service + "; port 0: any");
  AddPlaintextFlag(app, flags.tls);
  app.add_flag("--reflection", flags.reflection,
               "describe the services to whoever asks (grpcurl); under TLS to operators");
}

int RunService(const std::string& name, const std::string& purpose, int argc, char** argv,
               ServiceFlags& flags, const std::function<void(CLI::App&)>& add_flags,
               const std::function<absl::Status()>& serve) {
  ForgetLockOrder();
  BlockStopSignals();
  RaiseDescriptorLimit();
  CLI::App app(purpose, name);
  UseHelpPage(app);
  add_flags(app);
  AddSharedFlags(app, flags, name);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  flags.tls.served = kRoleOf.at(name);
  ConfigureLog(kLevels.at(flags.log_level),
               flags.log_format == "json" ? LogFormat::kJson : LogFormat::kText, name);
  if (flags.reflection) grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  absl::Status status = ConfigureTls(flags);
  if (status.ok()) status = serve();
  if (!status.ok()) std::cerr << name << ": " << status.message() << "\n";
  return ExitCodeOf(status);
}

}  // namespace oxbow::rpc
