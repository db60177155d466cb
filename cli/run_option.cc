// SPDX-License-Identifier: Apache-2.0
#include "cli/run_option.h"

#include <filesystem>

#include "run/endpoints_file.h"
#include "run/run_lock.h"

namespace oxbow::cli {

namespace fs = std::filesystem;

std::string RunNamed(const std::string& given) {
  std::error_code ignored;
  if (given.empty() || fs::is_directory(given, ignored)) return given;
  const fs::path named = fs::path("runs") / given;
  return fs::is_directory(named, ignored) ? named.string() : given;
}

rpc::TlsOptions TlsOfRun(const rpc::TlsOptions& given, const std::string& run_dir) {
  const rpc::CertificateFiles& files = given.files;
  if (run_dir.empty() || !(files.ca + files.cert + files.key + given.name).empty()) return given;
  if (!run::IsLive(run_dir)) return given;
  const run::RunTls own = run::ReadTls(run_dir);
  std::error_code ignored;
  for (const std::string& file : {own.ca, own.cert, own.key}) {
    if (!fs::exists(file, ignored)) return given;
  }
  rpc::TlsOptions options = given;
  options.files = {.ca = own.ca, .cert = own.cert, .key = own.key};
  options.name = own.name;
  options.roles = own.roles;
  return options;
}

void AddSettings(CLI::App& command, std::vector<std::string>& settings) {
  command.add_option("--set", settings, "KEY=VALUE over everything else; may be repeated")
      ->allow_extra_args(false);
}

void AddFormat(CLI::App& command, std::string& format) {
  command.add_option("--format", format)
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

void AddTimeout(CLI::App& command, double& seconds, const std::string& about) {
  command.add_option("--timeout", seconds, about)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

}  // namespace oxbow::cli
