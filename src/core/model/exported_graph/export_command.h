// SPDX-License-Identifier: Apache-2.0
// The command that makes the exported graph of a class, for errors.
#pragma once

#include <string>

namespace oxbow::model::exported {

// `directory` holds the component's config.json, and gets its graph. Without it the words that
// WithPaths replaces stand there.
std::string ExportCommand(const std::string& class_name, const std::string& directory = "");

// `text` with the paths of `directory` in the command that it holds, if it holds one.
std::string WithPaths(const std::string& text, const std::string& directory);

}  // namespace oxbow::model::exported
