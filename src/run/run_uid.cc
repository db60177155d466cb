// SPDX-License-Identifier: Apache-2.0
#include "run/run_uid.h"

#include <algorithm>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace oxbow::run {
namespace {

constexpr size_t kUidBytesMax = 300;

std::string NewUid(const std::string& run_name) {
  std::random_device random;
  const uint64_t bits = uint64_t{random()} << 32 | random();
  return absl::StrFormat("%s-%016x", run_name.substr(0, 200), bits);
}

}  // namespace

absl::StatusOr<std::string> RunUidOf(const std::filesystem::path& run_directory,
                                     const std::string& run_name) {
  const std::filesystem::path path = run_directory / "run_uid";
  const absl::StatusOr<std::string> content = ReadFile(path, 4096);
  if (absl::IsNotFound(content.status())) {
    const std::string uid = NewUid(run_name);
    OXBOW_RETURN_IF_ERROR(WriteFileAtomically(path, uid + "\n"));
    return uid;
  }
  OXBOW_RETURN_IF_ERROR(content.status());
  const std::string uid(absl::StripAsciiWhitespace(*content));
  const bool legible =
      !uid.empty() && uid.size() <= kUidBytesMax &&
      std::all_of(uid.begin(), uid.end(), [](unsigned char c) { return !absl::ascii_iscntrl(c); });
  if (legible) return uid;
  return absl::DataLossError(absl::StrCat("holds no uid of a run: ", path.string()));
}

}  // namespace oxbow::run
