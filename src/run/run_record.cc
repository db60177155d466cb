// SPDX-License-Identifier: Apache-2.0
#include "run/run_record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/first_part.h"
#include "base/json.h"
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

constexpr char kStartsFile[] = "starts.jsonl";
constexpr uint64_t kStartsBytesMax = 16 << 20;

// The words of a command, quoted as they are.
std::vector<std::string> WordsOf(const std::string& command) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (c == ' ' && !quoted) {
      words.emplace_back();
      continue;
    }
    words.back().push_back(c);
    if (c == '\'') quoted = !quoted;
    if (c == '\\' && !quoted && i + 1 < command.size()) words.back().push_back(command[++i]);
  }
  return words;
}

// Whether a flag of `oxbow train` says where and how its processes talk, which no config holds.
bool IsOfThePlace(const std::string& flag) {
  return flag.starts_with("--listen") || flag.starts_with("--tls-") || flag == "--plaintext";
}

// `oxbow resume RUN_DIR`, with what IsOfThePlace says of `command`.
std::string ResumeCommand(const std::string& command, const std::filesystem::path& run_dir) {
  std::string resume = absl::StrCat("oxbow resume ", Quoted(run_dir.string()));
  bool value = false;  // The word before takes this one.
  for (const std::string& word : WordsOf(command)) {
    const bool flag = IsOfThePlace(word);
    if (flag || value) absl::StrAppend(&resume, " ", word);
    value = flag && word != "--plaintext" && !absl::StrContains(word, "=");
  }
  return resume;
}

}  // namespace

std::string Quoted(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) ||
           std::string_view("-_./=:,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  return plain ? word : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

std::string ThisCommand() {
  const auto words = ReadFile("/proc/self/cmdline");
  if (!words.ok()) return "";
  std::string command;
  for (size_t at = 0; at < words->size();) {
    const size_t end = std::min(words->find('\0', at), words->size());
    const std::string word = words->substr(at, end - at);
    // The program by its name: where it lies is no part of what was asked.
    absl::StrAppend(&command, at == 0 ? "" : " ",
                    Quoted(at == 0 ? std::filesystem::path(word).filename().string() : word));
    at = end + 1;
  }
  return command;
}

std::string CommandToGoOn(const std::string& command, const std::filesystem::path& run_dir) {
  if (command.empty() || command.starts_with("oxbow ")) return ResumeCommand(command, run_dir);
  std::vector<std::string> words;
  bool skipped = false;  // The value of --from.
  for (const std::string& word : WordsOf(command)) {
    if (std::exchange(skipped, word == "--from")) continue;
    if (skipped || word.starts_with("--from=") || word == "--resume" || word == "--resume-if-any" ||
        word == "--set-aside" || word == "--overwrite") {
      continue;
    }
    words.push_back(word);
  }
  words.push_back("--resume");
  return absl::StrJoin(words, " ");
}

absl::Status AppendStart(const std::filesystem::path& run_dir, const StartRecord& start) {
  nlohmann::ordered_json line = {{"time", absl::FormatTime(kTime, start.time, absl::UTCTimeZone())},
                                 {"command", start.command},
                                 {"recipe", start.recipe},
                                 {"version", start.version},
                                 {"host", start.host},
                                 {"resumed", start.resumed}};
  if (!start.changed.empty()) {
    line["step"] = start.step;
    line["changed"] = start.changed;
  }
  OXBOW_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(run_dir / kStartsFile));
  return file.Append(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n",
                     /*sync=*/false);
}

std::vector<StartRecord> ReadStarts(const std::filesystem::path& run_dir) {
  std::vector<StartRecord> starts;
  const auto content = ReadFile(run_dir / kStartsFile, kStartsBytesMax);
  if (!content.ok()) return starts;
  for (size_t at = 0; at < content->size();) {
    const size_t end = std::min(content->find('\n', at), content->size());
    const auto json =
        nlohmann::json::parse(content->begin() + static_cast<std::ptrdiff_t>(at),
                              content->begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    at = end + 1;
    if (!json.is_object()) continue;
    StartRecord start{.command = TextIn(json, "command"),
                      .recipe = TextIn(json, "recipe"),
                      .version = TextIn(json, "version"),
                      .host = TextIn(json, "host"),
                      .resumed = json.value("resumed", nlohmann::json()) == true};
    const auto step = json.value("step", nlohmann::json());
    if (step.is_number_unsigned()) start.step = step.get<uint64_t>();
    for (const auto& one : json.value("changed", nlohmann::json::array())) {
      if (one.is_string()) start.changed.push_back(one.get<std::string>());
    }
    std::string ignored;
    if (absl::ParseTime(absl::RFC3339_full, TextIn(json, "time"), &start.time, &ignored)) {
      starts.push_back(std::move(start));
    }
  }
  return starts;
}

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
