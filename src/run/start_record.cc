// SPDX-License-Identifier: Apache-2.0
#include "run/start_record.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"

namespace oxbow::run {
namespace {

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
  nlohmann::ordered_json line = {
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", start.time, absl::UTCTimeZone())},
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

}  // namespace oxbow::run
