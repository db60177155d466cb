// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_join.h"
#include "base/exit_code.h"
#include "cli/commands.h"
#include "cli/run/work_progress.h"
#include "io/torch_checkpoint.h"

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
      "Example: oxbow convert-weights sac+logos+ava1-l14-linearMSE.pth aesthetic.safetensors");
  command->add_option("IN", flags->from, "file of torch.save")->required();
  command->add_option("OUT", flags->to, "safetensors file to write")->required();
  command->callback([flags, &exit_code] {
    auto progress = std::make_unique<WorkProgress>("convert-weights");
    progress->Begin("reading and writing weights");
    const auto converted = io::ConvertTorchCheckpoint(flags->from, flags->to);
    progress.reset();
    exit_code = ExitCodeOf(converted.status());
    if (!converted.ok()) {
      std::cerr << "oxbow convert-weights: " << converted.status().message() << "\n";
      return;
    }
    std::cout << "wrote " << converted->tensors << " tensors, " << converted->bytes << " bytes, to "
              << flags->to << "\n";
    if (!converted->renamed.empty()) {
      std::cout << "names of " << converted->renamed << " became those of transformers\n";
    }
    if (!converted->skipped.empty()) {
      std::cout << "left out what is no tensor: " << absl::StrJoin(converted->skipped, ", ")
                << "\n";
    }
  });
}

}  // namespace oxbow::cli
