// SPDX-License-Identifier: Apache-2.0
#include "run/endpoints_file.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json.h"
#include "base/process.h"
#include "base/status_macros.h"

namespace oxbow::run {

namespace {

constexpr char kEndpointsFile[] = "endpoints.json";

absl::Status Damaged(const std::filesystem::path& run_dir) {
  return absl::DataLossError(absl::StrCat("damaged: ", (run_dir / kEndpointsFile).string()));
}

absl::StatusOr<nlohmann::json> ReadRoot(const std::filesystem::path& run_dir) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(run_dir / kEndpointsFile, 1 << 20));
  nlohmann::json root = ParseJson(text);
  if (!root.is_object()) return Damaged(run_dir);
  return root;
}

}  // namespace

absl::Status WriteEndpoints(const std::filesystem::path& run_dir,
                            const std::vector<ServiceEndpoint>& services, const RunTls& tls) {
  nlohmann::json list = nlohmann::json::array();
  for (const ServiceEndpoint& s : services) {
    list.push_back({{"name", s.name}, {"grpc", s.grpc}, {"metrics", s.metrics}});
    if (s.pid != 0) list.back()["pid"] = s.pid;
    if (!s.trouble.empty()) list.back()["trouble"] = s.trouble;
  }
  nlohmann::json root = {{"supervisor_pid", getpid()}, {"host", HostName()}, {"services", list}};
  if (!tls.cert.empty()) {
    const auto whole = [](const std::string& file) {
      return std::filesystem::absolute(file).string();
    };
    root["tls"] = {{"ca", whole(tls.ca)},
                   {"cert", whole(tls.cert)},
                   {"key", whole(tls.key)},
                   {"name", tls.name},
                   {"roles", tls.roles}};
  }
  // The last words of a process may be any bytes.
  return WriteFileAtomically(run_dir / kEndpointsFile, JsonText(root, 2) + "\n");
}

absl::StatusOr<std::vector<ServiceEndpoint>> ReadEndpoints(const std::filesystem::path& run_dir) {
  OXBOW_ASSIGN_OR_RETURN(const nlohmann::json root, ReadRoot(run_dir));
  if (!root.contains("services") || !root["services"].is_array()) return Damaged(run_dir);
  std::vector<ServiceEndpoint> services;
  for (const nlohmann::json& item : root["services"]) {
    const bool has_pid =
        item.is_object() && item.contains("pid") && item["pid"].is_number_integer();
    services.push_back({TextIn(item, "name"), TextIn(item, "grpc"), TextIn(item, "metrics"),
                        has_pid ? item["pid"].get<pid_t>() : 0, TextIn(item, "trouble")});
    if (services.back().name.empty()) return Damaged(run_dir);
  }
  return services;
}

absl::StatusOr<RunStarter> ReadStarter(const std::filesystem::path& run_dir) {
  OXBOW_ASSIGN_OR_RETURN(const nlohmann::json root, ReadRoot(run_dir));
  RunStarter starter;
  const auto pid = root.find("supervisor_pid");
  if (pid == root.end() || !pid->is_number_integer()) return Damaged(run_dir);
  starter.pid = pid->get<pid_t>();
  starter.host = TextIn(root, "host");
  return starter;
}

RunTls ReadTls(const std::filesystem::path& run_dir) {
  const auto root = ReadRoot(run_dir);
  const auto tls = root.ok() ? root->find("tls") : nlohmann::json::const_iterator();
  if (!root.ok() || tls == root->end() || !tls->is_object()) return {};
  const auto roles = tls->find("roles");
  return {.ca = TextIn(*tls, "ca"),
          .cert = TextIn(*tls, "cert"),
          .key = TextIn(*tls, "key"),
          .name = TextIn(*tls, "name"),
          .roles = roles == tls->end() || *roles != false};
}

std::vector<std::filesystem::path> ReplayDirectories(const std::filesystem::path& run_dir,
                                                     uint32_t shards) {
  if (shards <= 1) return {run_dir / "replay"};
  std::vector<std::filesystem::path> directories;
  for (uint32_t i = 0; i < shards; ++i) {
    directories.push_back(run_dir / absl::StrCat("replay-", absl::Dec(i, absl::kZeroPad2)));
  }
  return directories;
}

}  // namespace oxbow::run
