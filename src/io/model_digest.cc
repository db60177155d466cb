// SPDX-License-Identifier: Apache-2.0
#include "io/model_digest.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/machine_share.h"
#include "base/sha256.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;
using Digests = std::map<std::string, std::string>;

constexpr char kRecordFormat[] = "oxbow tensor digests 1\n";
constexpr uint64_t kRecordBytesMax = 64 << 20;
constexpr uint64_t kWorthRemembering = 16 << 20;  // Bytes.
constexpr uint64_t kTokenizerBytesMax = 256 << 20;
constexpr const char* kTokenizerFiles[] = {"vocab.json",
                                           "merges.txt",
                                           "spiece.model",
                                           "special_tokens_map.json",
                                           "tokenizer_config.json",
                                           "tokenizer.json",
                                           "chat_template.jinja"};
constexpr size_t kDigits = 64;
constexpr unsigned kThreadsMax = 8;
constexpr uint64_t kWorthThreads = 64 << 20;  // Bytes.

// Empty: nothing is remembered.
fs::path RecordDirectory() {
  const auto value = [](const char* name) {
    const char* const text = std::getenv(name);
    return fs::path(text == nullptr ? "" : text);
  };
  fs::path cache = value("XDG_CACHE_HOME");
  if (cache.empty() && !value("HOME").empty()) cache = value("HOME") / ".cache";
  return cache.empty() ? cache : cache / "oxbow" / "digests";
}

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// The second line of a record; empty for a file that needs none, that cannot be looked at, or that
// may still change.
std::string FactsOf(const std::string& path, absl::Duration settled) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return "";
  if (static_cast<uint64_t>(facts.st_size) < kWorthRemembering) return "";
  if (absl::Now() - absl::TimeFromTimespec(facts.st_ctim) < settled) return "";
  return absl::StrCat(facts.st_size, " ", Nanoseconds(facts.st_mtim), " ",
                      Nanoseconds(facts.st_ctim), " ", facts.st_ino, " ", facts.st_dev, "\n");
}

// Named by the file that a link of a download cache leads to.
fs::path RecordOf(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::canonical(path, error);
  const fs::path directory = RecordDirectory();
  if (error || directory.empty()) return "";
  return directory / Sha256Hex(whole.string()).substr(0, 32);
}

// Empty: it is not the record of these tensors.
Digests ReadRecord(const fs::path& record, const std::string& facts,
                   const std::vector<std::string>& names) {
  const auto text = ReadFile(record, kRecordBytesMax);
  const std::string head = kRecordFormat + facts;
  if (!text.ok() || !absl::StartsWith(*text, head)) return {};
  Digests digests;
  for (size_t at = head.size(); at < text->size();) {
    const size_t end = text->find('\n', at);
    if (end == text->npos || end - at < kDigits + 2) return {};
    digests[text->substr(at + kDigits + 1, end - at - kDigits - 1)] = text->substr(at, kDigits);
    at = end + 1;
  }
  const bool same = digests.size() == names.size() &&
                    std::all_of(names.begin(), names.end(),
                                [&](const std::string& name) { return digests.contains(name); });
  return same ? digests : Digests();
}

// A digest that cannot be remembered is made again.
void WriteRecord(const fs::path& record, const std::string& facts, const Digests& digests) {
  std::string text = kRecordFormat + facts;
  for (const auto& [name, digest] : digests) {
    if (absl::StrContains(name, "\n")) return;
    absl::StrAppend(&text, digest, " ", name, "\n");
  }
  if (!MakeDirectories(record.parent_path()).ok()) return;
  SweepTemporaries(record.parent_path());
  WriteFileAtomically(record, text).IgnoreError();
}

// Reads every byte of these tensors.
Digests Hash(const WeightFiles& files, const std::vector<std::string>& names) {
  std::vector<std::string> digests(names.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < names.size(); i = next++) {
      digests[i] = Sha256Hex(files.BytesOf(names[i]));
      files.Release(names[i]);
    }
  };
  uint64_t bytes = 0;
  for (const std::string& name : names) bytes += files.BytesOf(name).size();
  const unsigned threads =
      bytes < kWorthThreads ? 1 : std::min(static_cast<unsigned>(UsableThreads()), kThreadsMax);
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  Digests named;
  for (size_t i = 0; i < names.size(); ++i) named[names[i]] = std::move(digests[i]);
  return named;
}

Digests DigestsOfFile(const WeightFiles& files, const std::string& path,
                      const std::vector<std::string>& names, absl::Duration settled) {
  const fs::path record = RecordOf(path);
  const std::string facts = record.empty() ? "" : FactsOf(path, settled);
  if (facts.empty()) return Hash(files, names);
  if (Digests known = ReadRecord(record, facts, names); !known.empty()) return known;
  Digests digests = Hash(files, names);
  if (FactsOf(path, settled) == facts) WriteRecord(record, facts, digests);
  return digests;
}

}  // namespace

Digests TensorDigests(const WeightFiles& files, absl::Duration settled) {
  std::map<std::string, std::vector<std::string>> by_file;
  for (const auto& [name, header] : files.headers()) by_file[files.FileOf(name)].push_back(name);
  Digests digests;
  for (const auto& [path, names] : by_file)
    digests.merge(DigestsOfFile(files, path, names, settled));
  return digests;
}

std::string ConfigWithoutNotes(const std::string& config_json) {
  auto config = ParseJson(config_json);
  if (!config.is_object()) return config_json;
  for (const char* note :
       {"_name_or_path", "transformers_version", "torch_dtype", "dtype", "_diffusers_version"}) {
    config.erase(note);
  }
  return JsonText(config);
}

std::string DigestLine(const std::string& name, std::string_view content) {
  return absl::StrCat(name, " ", content.size(), " ", Sha256Hex(content), "\n");
}

std::string TensorLines(const std::string& component, const WeightFiles& files) {
  std::string lines;
  const Digests digests = TensorDigests(files);
  for (const auto& [tensor, header] : files.headers()) {
    absl::StrAppend(&lines, component, " ", tensor, " ", std::string(NameOf(header.dtype)), " [",
                    absl::StrJoin(header.shape, ","), "] ", files.BytesOf(tensor).size(), " ",
                    digests.at(tensor), "\n");
  }
  return lines;
}

absl::StatusOr<std::string> TokenizerLines(const std::string& component,
                                           const DiffusersComponent& tokenizer) {
  std::string lines;
  for (const char* file : kTokenizerFiles) {
    const auto content = ReadFile(tokenizer.directory / file, kTokenizerBytesMax);
    if (absl::IsNotFound(content.status())) continue;
    if (!content.ok()) return content.status();
    lines += DigestLine(absl::StrCat(component, " ", file), *content);
  }
  return lines;
}

absl::StatusOr<Digests> ModelDigests(const DiffusersComponents& components) {
  Digests digests;
  for (const auto& [name, component] : components) {
    std::string lines = DigestLine(name, component.class_name);
    if (!component.config_json.empty()) {
      lines += DigestLine(name + " config", ConfigWithoutNotes(component.config_json));
    }
    if (absl::StartsWith(name, "tokenizer")) {
      OXBOW_ASSIGN_OR_RETURN(const std::string files, TokenizerLines(name, component));
      lines += files;
    }
    if (!component.weights_base.empty()) {
      const absl::StatusOr<WeightFiles> files = OpenComponentWeights(component);
      if (absl::IsNotFound(files.status())) continue;
      if (!files.ok()) return files.status();
      lines += TensorLines(name, *files);
    }
    digests[name] = Sha256Hex(lines);
  }
  return digests;
}

}  // namespace oxbow::io
