// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "cli/commands.h"

namespace oxbow::cli {
namespace {

// What may follow each command, by the command's words: "replay list" -> "--run --buffer".
void Collect(const CLI::App& app, const std::string& words,
             std::map<std::string, std::string>& next) {
  std::string& here = next[words];
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name().empty()) continue;
    absl::StrAppend(&here, command->get_name(), " ");
    Collect(*command, absl::StrCat(words, words.empty() ? "" : " ", command->get_name()), next);
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) absl::StrAppend(&here, "--", name, " ");
  }
}

// Bash; zsh runs it through bashcompinit. Files are completed where nothing else fits.
std::string Script(const CLI::App& app, bool zsh) {
  std::map<std::string, std::string> next;
  Collect(app, "", next);
  std::string script = zsh ? "autoload -U +X bashcompinit && bashcompinit\n" : "";
  script +=
      "_oxbow() {\n  local words='' word i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    word=${COMP_WORDS[i]}\n"
      "    [[ $word == -* || $word == */* ]] || words=\"${words:+$words }$word\"\n"
      "  done\n"
      "  while :; do\n    case \"$words\" in\n";
  for (const auto& [words, after] : next) {
    absl::StrAppend(&script, "      '", words, "') COMPREPLY=($(compgen -W '", after,
                    "' -- \"${COMP_WORDS[COMP_CWORD]}\")); return;;\n");
  }
  // A value of a flag is no command: without it the words are those of a command.
  return script +
         "    esac\n    [[ $words == *' '* ]] && words=${words% *} || words=''\n"
         "  done\n}\n"
         "complete -o default -F _oxbow oxbow\n";
}

}  // namespace

void AddCompletion(CLI::App& app, int& exit_code) {
  CLI::App* const command =
      app.add_subcommand("completion", "Print a script that completes commands and flags");
  command->footer("bash: source <(oxbow completion bash)   zsh: source <(oxbow completion zsh)");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell)->required()->check(CLI::IsMember({"bash", "zsh"}));
  command->callback([&app, shell, &exit_code] {
    std::cout << Script(app, *shell == "zsh");
    exit_code = kExitOk;
  });
}

}  // namespace oxbow::cli
