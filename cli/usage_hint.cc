// SPDX-License-Identifier: Apache-2.0
#include "cli/usage_hint.h"

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "config/key_names.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::cli {
namespace {

constexpr size_t kKeysShown = 4;  // More are no hint.

// "--lr=3" -> "lr"; "" for what is no long option.
std::string OptionName(const std::string& word) {
  if (!absl::StartsWith(word, "--")) return "";
  return word.substr(2, word.find('=') - 2);
}

// How to give one of the settings `keys`.
std::string SettingsHint(const std::vector<std::string>& keys) {
  const auto set = [](std::string* out, const std::string& key) {
    absl::StrAppend(out, "--set ", key, "=VALUE");
  };
  return absl::StrCat("settings of a run are given with --set: ", absl::StrJoin(keys, " or ", set),
                      "\n");
}

std::string OptionHint(const std::string& name, const KnownWords& known) {
  const v1::RunConfig& any = v1::RunConfig::default_instance();
  if (known.takes_settings) {
    const auto keys = config::KeysNamed(name, *any.GetDescriptor());
    if (!keys.empty() && keys.size() <= kKeysShown) return SettingsHint(keys);
  }
  if (const std::string nearest = NearestName(name, known.options); !nearest.empty()) {
    return absl::StrCat("did you mean --", nearest, "?\n");
  }
  if (known.takes_settings) {
    const auto keys = config::KeysMeantBy(name, *any.GetDescriptor());
    if (keys.size() == 1) return SettingsHint(keys);
  }
  return absl::StrCat("its options are --", absl::StrJoin(known.options, ", --"), "\n");
}

}  // namespace

std::vector<std::string> AskedFor(std::vector<std::string> words) {
  if (!words.empty() && words.front() == "version") words.front() = "--version";
  if (words.empty() || words.front() != "help") return words;
  words.erase(words.begin());
  words.push_back("--help");
  return words;
}

std::string UsageHint(const std::vector<std::string>& words, const KnownWords& known) {
  if (words.empty()) return "";
  const std::string& first = words.front();
  if (first == "pretrain") return "`oxbow pretrain` is examples/pretrain/train.py of the sources\n";
  const std::string command = known.depth < words.size() ? words[known.depth] : "-";
  if (!known.commands.empty() && !absl::StartsWith(command, "-") &&
      !absl::c_linear_search(known.commands, command)) {
    std::vector<std::string> meant(words.begin(), words.begin() + known.depth);
    meant.push_back(NearestName(command, known.commands));
    return meant.back().empty()
               ? ""
               : absl::StrCat("did you mean `oxbow ", absl::StrJoin(meant, " "), "`?\n");
  }
  for (const std::string& word : words) {
    const std::string name = OptionName(word);
    if (!name.empty() && !absl::c_linear_search(known.options, name))
      return OptionHint(name, known);
  }
  return "";
}

}  // namespace oxbow::cli
