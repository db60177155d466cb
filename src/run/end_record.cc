// SPDX-License-Identifier: Apache-2.0
#include "run/end_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/first_part.h"
#include "base/json.h"

namespace oxbow::run {
namespace {

constexpr char kEndedFile[] = "ended.json";
constexpr char kFormerFile[] = "stopped.json";
constexpr uint64_t kEndBytesMax = 1 << 16;
constexpr size_t kRoom = 4096;
constexpr size_t kReasonMax = 1500;  // Bytes.
constexpr size_t kCauseMax = 40;
constexpr char kTime[] = "%Y-%m-%dT%H:%M:%SZ";
constexpr std::pair<RunEnd, const char*> kWords[] = {{RunEnd::kDone, "done"},
                                                     {RunEnd::kByRule, "by rule"},
                                                     {RunEnd::kInterrupted, "interrupted"},
                                                     {RunEnd::kFailed, "failed"},
                                                     {RunEnd::kRolledBack, "rolled back"},
                                                     {RunEnd::kUnsaid, "stopped"}};
// Short names for errors of the system and of this program, which end it with this exit code: a
// reward's own text may have the same words. 0: any.
constexpr std::tuple<const char*, const char*, int> kCauses[] = {
    {"No space left on device", "disk full", kExitFull},
    {"Disk quota exceeded", "disk quota reached", kExitFull},
    {"Address already in use", "port taken", 0},
    {"ended by signal 9", "killed: out of memory?", 0},
    {"out of memory", "out of memory", kExitOutOfMemory}};

// Over the bytes that the file has. False where that is not possible.
bool WriteInPlace(const std::filesystem::path& path, const std::string& bytes) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  struct stat facts {};
  const auto size = static_cast<ssize_t>(bytes.size());
  const bool written = ::fstat(descriptor, &facts) == 0 && facts.st_size == size &&
                       ::pwrite(descriptor, bytes.data(), bytes.size(), 0) == size &&
                       ::fsync(descriptor) == 0;
  ::close(descriptor);
  return written;
}

absl::Status Put(const std::filesystem::path& run_dir, std::string text) {
  text.resize(std::max(kRoom - 1, text.size()), ' ');
  text += "\n";
  const std::filesystem::path path = run_dir / kEndedFile;
  return WriteInPlace(path, text) ? absl::OkStatus() : WriteFileAtomically(path, text);
}

// An older version recorded no other end.
std::optional<EndRecord> ReadFormer(const std::filesystem::path& run_dir) {
  const auto text = ReadFile(run_dir / kFormerFile, kEndBytesMax);
  if (!text.ok()) return std::nullopt;
  const auto json = ParseJson(*text);
  if (!json.is_object()) return std::nullopt;
  const auto step = json.find("step"), reason = json.find("reason");
  if (step == json.end() || !step->is_number_unsigned()) return std::nullopt;
  if (reason == json.end() || !reason->is_string()) return std::nullopt;
  return EndRecord{.end = RunEnd::kByRule,
                   .step = step->get<uint64_t>(),
                   .exit_code = kExitStopped,
                   .reason = reason->get<std::string>()};
}

}  // namespace

const char* WordOf(RunEnd end) {
  for (const auto& [value, word] : kWords) {
    if (value == end) return word;
  }
  return "";
}

std::string CauseOf(const EndRecord& record) {
  for (const auto& [words, cause, exit_code] : kCauses) {
    const bool its_code = exit_code == 0 || exit_code == record.exit_code;
    if (its_code && absl::StrContains(record.reason, words)) return cause;
  }
  return FirstPart(record.reason, kCauseMax);
}

std::string UncopiedOf(const EndRecord& record) {
  return record.reason.substr(std::min(record.reason.find(kUncopied), record.reason.size()));
}

std::string EndText(const EndRecord& record) {
  std::string text = WordOf(record.end);
  if (record.step > 0) absl::StrAppend(&text, " at step ", record.step);
  if (!record.reason.empty()) absl::StrAppend(&text, ": ", record.reason);
  if (record.end == RunEnd::kFailed && !absl::StrContains(text, "exit code")) {
    absl::StrAppend(&text, " (exit code ", record.exit_code, ")");
  }
  return text;
}

absl::Status ReserveEnd(const std::filesystem::path& run_dir) {
  std::error_code ignored;
  std::filesystem::remove(run_dir / kFormerFile, ignored);
  return Put(run_dir, "");
}

absl::Status WriteEnd(const std::filesystem::path& run_dir, const EndRecord& record) {
  const nlohmann::ordered_json json = {
      {"time", absl::FormatTime(kTime, record.time, absl::UTCTimeZone())},
      {"state", WordOf(record.end)},
      {"step", record.step},
      {"exit_code", record.exit_code},
      {"reason", FirstPart(record.reason, kReasonMax)}};
  return Put(run_dir, json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::optional<EndRecord> ReadEnd(const std::filesystem::path& run_dir) {
  const auto text = ReadFile(run_dir / kEndedFile, kEndBytesMax);
  if (absl::IsNotFound(text.status())) return ReadFormer(run_dir);
  if (!text.ok() || text->empty()) return std::nullopt;
  if (absl::StripAsciiWhitespace(*text).empty()) {
    return EndRecord{.reason = "nobody wrote why: it was killed, or its machine went down"};
  }
  const auto json = ParseJson(*text);
  if (!json.is_object()) return std::nullopt;
  const auto of = [&](const char* key) { return json.value(key, nlohmann::json()); };
  if (!of("step").is_number_unsigned() || !of("exit_code").is_number_integer()) return std::nullopt;
  if (!of("state").is_string() || !of("reason").is_string()) return std::nullopt;
  EndRecord record{.step = of("step").get<uint64_t>(),
                   .exit_code = of("exit_code").get<int>(),
                   .reason = of("reason").get<std::string>()};
  std::string ignored;
  if (of("time").is_string()) {
    absl::ParseTime(kTime, of("time").get<std::string>(), &record.time, &ignored);
  }
  for (const auto& [end, word] : kWords) {
    if (of("state") == word) record.end = end;
  }
  return record;
}

}  // namespace oxbow::run
