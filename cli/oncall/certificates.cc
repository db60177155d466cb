// SPDX-License-Identifier: Apache-2.0
#include "cli/oncall/certificates.h"

#include <arpa/inet.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "rpc/certificate_authority.h"
#include "rpc/identity.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kAll[] = "all";
// The names that the processes of one machine call each other by.
constexpr char kThisMachine[] = ",DNS:localhost,IP:127.0.0.1,IP:::1";

absl::Status WriteKey(const fs::path& path, const std::string& pem, bool readable) {
  // Nobody else can open the file between its creation and the change of its mode.
  const mode_t before = ::umask(0077);
  absl::Status written = WriteFileAtomically(path, pem);
  ::umask(before);
  if (!written.ok()) return written;
  std::error_code error;
  fs::permissions(path, static_cast<fs::perms>(readable ? 0444 : 0600), error);
  if (error) return absl::UnavailableError(absl::StrCat(error.message(), ": ", path.string()));
  return absl::OkStatus();
}

absl::StatusOr<rpc::CertificateAuthority> OpenOrCreate(const fs::path& directory,
                                                       const FleetCertificates& wanted) {
  const fs::path certificate = directory / "ca.crt";
  const fs::path key = directory / "ca.key";
  if (fs::exists(certificate) || fs::exists(key)) {
    OXBOW_ASSIGN_OR_RETURN(const std::string certificate_pem, ReadFile(certificate));
    OXBOW_ASSIGN_OR_RETURN(const std::string key_pem, ReadFile(key));
    auto opened = rpc::CertificateAuthority::Open({certificate_pem, key_pem});
    if (opened.ok()) return opened;
    return absl::FailedPreconditionError(absl::StrCat(std::string(opened.status().message()), ": ",
                                                      certificate.string(), ", ", key.string()));
  }
  rpc::CertificateAuthority made = rpc::CertificateAuthority::Create(
      wanted.fleet + "-ca", absl::Hours(24) * wanted.authority_days);
  OXBOW_RETURN_IF_ERROR(WriteKey(key, made.Pem().key, /*readable=*/false));
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(certificate, made.Pem().certificate));
  return made;
}

// The URIs of a member: one role, or every role for `all`.
absl::StatusOr<std::string> UrisOf(const std::string& fleet, const std::string& member) {
  std::string uris;
  for (const rpc::Role role : rpc::kEveryRole) {
    if (member == kAll) absl::StrAppend(&uris, ",URI:", rpc::UriOf({fleet, role, ""}));
  }
  if (!uris.empty()) return uris;
  OXBOW_ASSIGN_OR_RETURN(const rpc::Identity identity,
                         rpc::ParseIdentity(absl::StrCat("oxbow://", fleet, "/", member)));
  return ",URI:" + rpc::UriOf(identity);
}

absl::StatusOr<std::string> NamesOf(const FleetCertificates& wanted, const std::string& member) {
  std::string names = "DNS:" + wanted.fleet;
  for (const std::string& host : wanted.hosts) {
    in6_addr any{};
    const bool address = ::inet_pton(AF_INET, host.c_str(), &any) == 1 ||
                         ::inet_pton(AF_INET6, host.c_str(), &any) == 1;
    if (host.empty() || host.find(',') != std::string::npos) {
      return absl::InvalidArgumentError("not a host name or address: " + host);
    }
    absl::StrAppend(&names, address ? ",IP:" : ",DNS:", host);
  }
  if (member == kAll) absl::StrAppend(&names, kThisMachine);
  OXBOW_ASSIGN_OR_RETURN(const std::string uris, UrisOf(wanted.fleet, member));
  return names + uris;
}

}  // namespace

absl::StatusOr<std::vector<fs::path>> WriteCertificates(const fs::path& directory,
                                                        const FleetCertificates& wanted) {
  std::vector<std::string> members = wanted.members;
  if (members.empty()) {
    for (const rpc::Role role : rpc::kEveryRole) members.emplace_back(rpc::NameOf(role));
    members.emplace_back(kAll);
  }
  std::vector<std::string> names;  // Checked before anything is written.
  for (const std::string& member : members) {
    OXBOW_ASSIGN_OR_RETURN(names.emplace_back(), NamesOf(wanted, member));
  }
  std::error_code error;
  fs::create_directories(directory, error);
  fs::permissions(directory, fs::perms::owner_all, error);
  if (error) return absl::UnavailableError(absl::StrCat(error.message(), ": ", directory.string()));
  OXBOW_ASSIGN_OR_RETURN(const rpc::CertificateAuthority authority,
                         OpenOrCreate(directory, wanted));
  std::vector<fs::path> folders;
  for (size_t i = 0; i < members.size(); ++i) {
    OXBOW_ASSIGN_OR_RETURN(
        const rpc::KeyedCertificate made,
        authority.Issue(
            {.common_name = members[i], .names = names[i], .ends = absl::Hours(24) * wanted.days}));
    const fs::path folder = directory / absl::StrReplaceAll(members[i], {{"/", "-"}});
    fs::create_directories(folder, error);
    OXBOW_RETURN_IF_ERROR(WriteFileAtomically(folder / "ca.crt", authority.Pem().certificate));
    OXBOW_RETURN_IF_ERROR(WriteKey(folder / "tls.key", made.key, wanted.readable));
    OXBOW_RETURN_IF_ERROR(WriteFileAtomically(folder / "tls.crt", made.certificate));
    folders.push_back(folder);
  }
  return folders;
}

void AddCertificates(CLI::App& app, int& exit_code) {
  struct Flags {
    std::string directory;
    FleetCertificates wanted;
  };
  const auto flags = std::make_shared<Flags>();  // Lives as long as the callback below.
  CLI::App* command = app.add_subcommand(
      "certificates", "Make or renew an authority and the certificates of a fleet's processes");
  command->footer(
      "DIR/ca.key is the authority's: keep it away from the machines of the run. DIR/MEMBER has "
      "the "
      "files\nfor --tls-ca, --tls-cert and --tls-key; `all` has every role, for the processes of "
      "one "
      "machine.\n"
      "Examples: oxbow certificates tls\n"
      "          oxbow certificates tls --member worker/gpu-a --member worker/gpu-b");
  command->add_option("DIR", flags->directory, "folder of the authority and the certificates")
      ->required();
  command->add_option("--fleet", flags->wanted.fleet, "name of the deployment, for --tls-name")
      ->capture_default_str();
  command
      ->add_option("--member", flags->wanted.members,
                   "learner, worker, worker/ID, buffer, reward, operator or all; may be repeated; "
                   "default: each of them without ID")
      ->allow_extra_args(false);
  command
      ->add_option("--host", flags->wanted.hosts,
                   "one more host name or address in every certificate; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--days", flags->wanted.days, "how long the certificates are valid")
      ->check(CLI::Range(1, 3650))
      ->capture_default_str();
  command->add_flag("--readable", flags->wanted.readable,
                    "members' keys may be read by every user who can open DIR (containers)");
  command->callback([flags, &exit_code] {
    const auto folders = WriteCertificates(flags->directory, flags->wanted);
    exit_code = Ended("certificates", folders.status());
    if (!folders.ok()) return;
    for (const fs::path& folder : *folders) std::cout << folder.string() << "\n";
  });
}

}  // namespace oxbow::cli
