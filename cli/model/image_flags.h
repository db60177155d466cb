// The flags of commands that draw images.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/model/drawn_images.h"

namespace oxbow::cli {

// --model or --run. Both references outlive the parsing.
void AddSourceFlags(CLI::App& command, ModelSource& source);

// How they are drawn; how many is the command's own.
void AddImageFlags(CLI::App& command, ImageOptions& images);

}  // namespace oxbow::cli
