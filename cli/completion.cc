// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/exit_code.h"
#include "cli/commands.h"

namespace oxbow::cli {
namespace {

// The words that may follow, by the words before: "replay list" -> "--run --buffer",
// "export --format" -> "diffusers peft".
using Followers = std::map<std::string, std::string>;

// "{bash,zsh}" in what the help says of an option: its values are these. Empty without it.
std::string ValuesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}', open);
  if (open == std::string::npos || close == std::string::npos) return "";
  return absl::StrReplaceAll(type.substr(open + 1, close - open - 1), {{",", " "}});
}

std::string Joined(const std::string& words, const std::string& word) {
  return absl::StrCat(words, words.empty() ? "" : " ", word);
}

// `values` has the flags that take a value.
void Collect(const CLI::App& app, const std::string& words, Followers& next, Followers& values) {
  std::string& here = next[words];
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name().empty()) continue;
    absl::StrAppend(&here, command->get_name(), " ");
    Collect(*command, Joined(words, command->get_name()), next, values);
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) absl::StrAppend(&here, ValuesOf(*option), " ");
    for (const std::string& name : option->get_lnames()) {
      absl::StrAppend(&here, "--", name, " ");
      if (option->get_items_expected_max() == 0) continue;
      values[absl::StrCat(words, " --", name)] = ValuesOf(*option);
    }
  }
}

// Lines of a `case` that offer what may follow.
std::string Cases(const Followers& followers) {
  std::string lines;
  for (const auto& [words, after] : followers) {
    absl::StrAppend(&lines, "      '", words, "') COMPREPLY=($(compgen -W '", after,
                    "' -- \"$now\")); return;;\n");
  }
  return lines;
}

// Bash; zsh runs it through bashcompinit. Files are completed where nothing else fits, as they are
// for the value of a flag that may be anything.
std::string Script(const CLI::App& app, bool zsh) {
  Followers next, values;
  Collect(app, "", next, values);
  return absl::StrCat(
      zsh ? "autoload -U +X bashcompinit && bashcompinit\n" : "",
      "_oxbow() {\n  local words='' word i\n"
      "  local now=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    word=${COMP_WORDS[i]}\n"
      "    [[ $word == -* || $word == */* ]] || words=\"${words:+$words }$word\"\n"
      "  done\n"
      "  while :; do\n    case \"$words $before\" in\n",
      Cases(values), "    esac\n    case \"$words\" in\n", Cases(next),
      // A value of a flag is no command: without it the words are those of a command.
      "    esac\n    [[ $words == *' '* ]] && words=${words% *} || words=''\n"
      "  done\n}\n"
      "complete -o default -F _oxbow oxbow\n");
}

}  // namespace

void AddCompletion(CLI::App& app, int& exit_code) {
  CLI::App* const command = app.add_subcommand(kCompletion.name, kCompletion.says);
  command->footer("bash: source <(oxbow completion bash)   zsh: source <(oxbow completion zsh)");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell)->required()->check(CLI::IsMember({"bash", "zsh"}));
  command->callback([&app, shell, &exit_code] {
    std::cout << Script(app, *shell == "zsh");
    exit_code = kExitOk;
  });
}

}  // namespace oxbow::cli
