// SPDX-License-Identifier: Apache-2.0
// The parts of a model beside its trained transformer, so that a directory loads as a whole.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"

namespace oxbow::cli {

// Puts the files of all parts that model_index.json of `model` names, but for the part `except`,
// into `out`: hard links where the file system has them, else copies; what is there is replaced.
// model_index.json comes last, so that a cut export is not taken for a model. kNotFound if a part
// is missing. Requires that `out` is not `model`.
absl::Status AddOtherParts(const std::filesystem::path& model, const std::string& except,
                           const std::filesystem::path& out);

}  // namespace oxbow::cli
