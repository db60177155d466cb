// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "base/exit_code.h"
#include "cli/commands.h"
#include "cli/python_part.h"
#include "config/run_config.h"

namespace oxbow::cli {

void AddConvertWeights(CLI::App& app, int& exit_code) {
  struct Flags {
    std::string from, to;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App* const command = app.add_subcommand(
      "convert-weights", "Turn a .pt or .pth file of torch.save into safetensors");
  command->footer(
      "Takes the tensors of a state dict, or of the entry `state_dict` of a checkpoint, under\n"
      "their names and in their types. Nothing in the file is run: one that asks for anything but\n"
      "tensors is refused with the name of what it asks for.\n"
      "A Mask2Former of mmdetection gets the names of transformers, for the reward geneval.\n"
      "It runs in Python, with torch and safetensors; `make build` has both.\n"
      "Example: oxbow convert-weights sac+logos+ava1-l14-linearMSE.pth aesthetic.safetensors");
  command->add_option("IN", flags->from, "file of torch.save")->required();
  command->add_option("OUT", flags->to, "safetensors file to write")->required();
  command->callback([flags, &exit_code] {
    const absl::Status failed =
        BecomePythonPart({.module = "oxbow.convert.weights",
                          .needs = {"torch", "safetensors", "numpy"},
                          .extra = "convert"},
                         {"--", flags->from, flags->to}, config::ProcessEnvironment());
    std::cerr << "oxbow convert-weights: " << failed.message() << "\n";
    exit_code = ExitCodeOf(failed);
  });
}

}  // namespace oxbow::cli
