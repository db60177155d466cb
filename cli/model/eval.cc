#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/model/drawn_images.h"
#include "tasks/synthetic_task.h"

namespace oxbow::cli {
namespace {

struct EvalFlags {
  ModelSource source;
  std::string prompts = "configs/prompts/digits_eval.txt";
  uint32_t images = 128;
  ImageOptions drawing;
  bool json = false;
};

// Whole rounds over the prompts, at least one: as near to `images` as that allows from above.
absl::StatusOr<std::vector<tasks::Measure>> Evaluate(EvalFlags flags) {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<std::string> prompts, ReadPromptFile(flags.prompts));
  const tasks::SyntheticTask* const task = tasks::TaskOfPrompt(prompts.front());
  if (task == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt is of no synthetic task, the only prompts that can be measured here: ",
                     prompts.front()));
  }
  const auto count = static_cast<uint32_t>(prompts.size());
  flags.drawing.per_prompt = std::max(1U, (flags.images + count - 1) / count);
  OXBOW_ASSIGN_OR_RETURN(const std::vector<DrawnImage> images,
                         DrawImages(flags.source, prompts, flags.drawing));
  const std::unique_ptr<tasks::TaskReport> report = task->NewReport();
  for (const DrawnImage& drawn : images) {
    OXBOW_RETURN_IF_ERROR(report->Add(drawn.prompt, drawn.image.pixels));
  }
  return report->Report();
}

void PrintTable(const std::vector<tasks::Measure>& report) {
  for (const tasks::Measure& measure : report) {
    std::printf("%-18s  %.4g\n", measure.name.c_str(), measure.value);
  }
}

void PrintJson(const std::vector<tasks::Measure>& report) {
  nlohmann::ordered_json json;
  for (const tasks::Measure& measure : report) json[measure.name] = measure.value;
  std::cout << json.dump() << "\n";
}

}  // namespace

void AddEval(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<EvalFlags>();
  CLI::App* const command = app.add_subcommand(
      "eval", "Measure a model or a finished run: reward, strict, speckle, diversity");
  command->footer("Example: oxbow eval --run runs/digits --json");
  AddSourceFlags(*command, flags->source);
  command->add_option("--prompts", flags->prompts, "file, one prompt per line")
      ->capture_default_str();
  command->add_option("--images", flags->images, "images, rounded up to whole rounds of prompts")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  AddImageFlags(*command, flags->drawing);
  command->add_flag("--json", flags->json, "for programs");
  command->callback([flags, &exit_code] {
    const absl::StatusOr<std::vector<tasks::Measure>> report = Evaluate(*flags);
    exit_code = ExitCodeOf(report.status());
    if (!report.ok()) {
      std::cerr << "oxbow eval: " << report.status().message() << "\n";
    } else if (flags->json) {
      PrintJson(*report);
    } else {
      PrintTable(*report);
    }
  });
}

}  // namespace oxbow::cli
