// SPDX-License-Identifier: Apache-2.0
#include "cli/run/child_log.h"

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace oxbow::cli {
namespace {

constexpr std::uintmax_t kTailBytes = std::uintmax_t{256} << 10;

// The last lines from `begin` on; the first may have lost its beginning.
std::vector<std::string> Tail(const std::filesystem::path& log, std::uintmax_t begin) {
  std::error_code none;
  const std::uintmax_t size = std::filesystem::file_size(log, none);
  if (none || size <= begin) return {};
  std::ifstream file(log);
  file.seekg(static_cast<std::streamoff>(std::max(begin, size - std::min(size, kTailBytes))));
  std::string text(std::istreambuf_iterator<char>(file), {});
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

// A line of base/log.h of one of these levels: letters in text, names in JSON.
bool IsEvent(const std::string& line, std::initializer_list<std::pair<char, const char*>> levels) {
  return std::any_of(levels.begin(), levels.end(), [&](const auto& level) {
    return absl::StartsWith(line, std::string(1, level.first) + " ") ||
           absl::StrContains(line, absl::StrCat("\"level\":\"", level.second, "\""));
  });
}

}  // namespace

std::filesystem::path FormerLog(const std::filesystem::path& log) {
  return std::filesystem::path(log) += ".1";
}

bool MoveIfLarge(const std::filesystem::path& log, std::uintmax_t bytes_max) {
  std::error_code error;
  if (std::filesystem::file_size(log, error) <= bytes_max || error) return false;
  const std::filesystem::path copy = std::filesystem::path(log) += ".moving";
  std::filesystem::copy_file(log, copy, std::filesystem::copy_options::overwrite_existing, error);
  if (!error) std::filesystem::rename(copy, FormerLog(log), error);
  if (!error) {
    // Lines that came while it was copied.
    std::ifstream rest(log);
    std::ofstream former(FormerLog(log), std::ios::app);
    rest.seekg(static_cast<std::streamoff>(std::filesystem::file_size(FormerLog(log), error)));
    if (rest.peek() != std::ifstream::traits_type::eof()) former << rest.rdbuf();
    former.flush();
    if (former.good()) std::filesystem::resize_file(log, 0, error);
    return former.good() && !error;
  }
  std::error_code ignored;
  std::filesystem::remove(copy, ignored);
  return false;
}

std::string LastWords(const std::filesystem::path& log, std::uintmax_t begin,
                      const std::string& name) {
  std::string own;
  std::string error;
  std::string any;
  for (const std::string& line : Tail(log, begin)) {
    if (absl::StartsWith(line, name + ": ")) own = line;
    if (IsEvent(line, {{'E', "error"}})) error = line;
    // Its debug, info and warning lines say nothing of its end.
    const bool event = IsEvent(line, {{'D', "debug"}, {'I', "info"}, {'W', "warning"}});
    if (!line.empty() && !event) any = line;
  }
  return !own.empty() ? own : !error.empty() ? error : any;
}

std::string LogTail(const std::filesystem::path& log, int lines, std::uintmax_t begin) {
  const std::vector<std::string> all = Tail(log, begin);
  const size_t first = all.size() > static_cast<size_t>(lines) ? all.size() - lines : 0;
  return absl::StrJoin(all.begin() + static_cast<std::ptrdiff_t>(first), all.end(), "\n");
}

}  // namespace oxbow::cli
