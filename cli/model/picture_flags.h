// The flags of commands that draw pictures.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/model/drawn_pictures.h"

namespace oxbow::cli {

// --model or --run. Both references outlive the parsing.
void AddSourceFlags(CLI::App& command, ModelSource& source);

// How they are drawn; how many is the command's own.
void AddPictureFlags(CLI::App& command, PictureOptions& pictures);

}  // namespace oxbow::cli
