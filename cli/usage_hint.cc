// SPDX-License-Identifier: Apache-2.0
#include "cli/usage_hint.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/nearest_name.h"
#include "config/key_names.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::cli {
namespace {

// "--lr=3" -> "lr"; "" for what is no long option.
std::string OptionName(const std::string& word) {
  if (!absl::StartsWith(word, "--")) return "";
  return word.substr(2, word.find('=') - 2);
}

}  // namespace

std::vector<std::string> AskedFor(std::vector<std::string> words) {
  if (!words.empty() && words.front() == "version") words.front() = "--version";
  if (words.empty() || words.front() != "help") return words;
  words.erase(words.begin());
  words.push_back("--help");
  return words;
}

std::string UsageHint(const std::vector<std::string>& words,
                      const std::vector<std::string>& commands) {
  if (words.empty()) return "";
  const std::string& first = words.front();
  if (!absl::StartsWith(first, "-") &&
      std::find(commands.begin(), commands.end(), first) == commands.end()) {
    const std::string nearest = NearestName(first, commands);
    return nearest.empty() ? "" : absl::StrCat("did you mean `oxbow ", nearest, "`?\n");
  }
  for (const std::string& word : words) {
    const std::string name = OptionName(word);
    if (name.empty()) continue;
    const auto keys = config::KeysMeantBy(name, *v1::RunConfig::descriptor());
    if (keys.size() == 1) {
      return absl::StrCat("settings of a run are given with --set: --set ", keys.front(),
                          "=VALUE\n");
    }
  }
  return "";
}

}  // namespace oxbow::cli
