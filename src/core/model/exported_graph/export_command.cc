// SPDX-License-Identifier: Apache-2.0
#include "core/model/exported_graph/export_command.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace oxbow::model::exported {
namespace {

constexpr char kArguments[] = "--config CONFIG --out DIR";

}  // namespace

std::string ExportCommand(const std::string& class_name, const std::string& directory) {
  const std::string command = absl::StrCat(
      "make it once, in oxbow's source tree: `pip install -r "
      "tools/export_model/requirements.txt && cd tools && python3 -m export_model export ",
      class_name, " ", kArguments, "`");
  return directory.empty() ? command : WithPaths(command, directory);
}

std::string WithPaths(const std::string& text, const std::string& directory) {
  return absl::StrReplaceAll(
      text, {{kArguments, absl::StrCat("--config ", directory, "/config.json --out ", directory)}});
}

}  // namespace oxbow::model::exported
