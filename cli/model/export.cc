#include "cli/model/export.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "base/exit_code.h"
#include "cli/model/exported_run.h"

namespace oxbow::cli {

void AddExport(CLI::App& app, int& exit_code) {
  struct Flags {
    ExportRequest request;
    uint64_t step = 0;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App* const command =
      app.add_subcommand("export", "Write a run's weights as files that other tools load");
  command->footer(
      "Formats: diffusers  pytorch_lora_weights.safetensors, or transformer/ of a full fine-tune\n"
      "         peft       adapter_model.safetensors and adapter_config.json\n"
      "         comfyui    RUN.safetensors for models/loras\n"
      "         merged     transformer/ with the adapter added to the base model's weights\n"
      "Example: oxbow export runs/sd35m --format diffusers --out adapters/sd35m");
  command->add_option("RUN_DIR", flags->request.run, "the run's directory")->required();
  command->add_option("--format", flags->request.format, "of the files")
      ->required()
      ->check(CLI::IsMember({"diffusers", "peft", "comfyui", "merged"}));
  command->add_option("--out", flags->request.out, "directory (default: RUN_DIR/export/FORMAT)");
  CLI::Option* const step =
      command->add_option("--step", flags->step, "of a checkpoint (default: the newest)");
  command->add_flag("--raw", flags->request.raw, "the last weights, not their running average");
  command->callback([flags, step, &exit_code] {
    if (step->count() > 0) flags->request.step = flags->step;
    const absl::StatusOr<std::filesystem::path> written = ExportRun(flags->request);
    exit_code = ExitCodeOf(written.status());
    if (written.ok()) {
      std::cout << written->string() << "\n";
    } else {
      std::cerr << "oxbow export: " << written.status().message() << "\n";
    }
  });
}

}  // namespace oxbow::cli
