// SPDX-License-Identifier: Apache-2.0
#include "run/run_uid.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/process.h"
#include "base/status_macros.h"

namespace oxbow::run {
namespace {

constexpr char kUidFile[] = "run_uid";
constexpr size_t kUidBytesMax = 300;
constexpr size_t kDigits = 16;

std::string BeginOf(const std::string& run_name) { return run_name.substr(0, 200) + "-"; }

std::string NewUid(const std::string& run_name) {
  return absl::StrFormat("%s%016x", BeginOf(run_name), RandomBits());
}

}  // namespace

absl::StatusOr<std::string> ReadRunUid(const std::filesystem::path& run_directory) {
  const std::filesystem::path path = run_directory / kUidFile;
  OXBOW_ASSIGN_OR_RETURN(const std::string content, ReadFile(path, 4096));
  const std::string uid(absl::StripAsciiWhitespace(content));
  const bool legible =
      !uid.empty() && uid.size() <= kUidBytesMax &&
      std::all_of(uid.begin(), uid.end(), [](unsigned char c) { return !absl::ascii_iscntrl(c); });
  if (legible) return uid;
  return absl::DataLossError(absl::StrCat("holds no uid of a run: ", path.string()));
}

absl::StatusOr<std::string> RunUidOf(const std::filesystem::path& run_directory,
                                     const std::string& run_name, const std::string& known) {
  absl::StatusOr<std::string> uid = ReadRunUid(run_directory);
  const bool missing = absl::IsNotFound(uid.status());
  if (!missing && (!uid.ok() || known.empty() || known == *uid)) return uid;
  uid = known.empty() ? NewUid(run_name) : known;
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(run_directory / kUidFile, *uid + "\n"));
  return uid;
}

bool IsUidOf(const std::string& run_name, const std::string& uid) {
  const std::string begin = BeginOf(run_name);
  return uid.size() == begin.size() + kDigits && uid.starts_with(begin) &&
         uid.find_first_not_of("0123456789abcdef", begin.size()) == uid.npos;
}

}  // namespace oxbow::run
