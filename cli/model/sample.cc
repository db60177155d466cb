#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "base/exit_code.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/model/drawn_images.h"
#include "io/image.h"
#include "tasks/synthetic_task.h"

namespace oxbow::cli {
namespace {

constexpr size_t kImagesMax = 4096;

struct SampleFlags {
  ModelSource source;
  std::string prompts;
  std::vector<std::string> texts;
  ImageOptions images;
  std::string out = "grid.png";
};

// Green for right, red for wrong; no frame where the prompt is of another task.
std::optional<io::Colour> FrameOf(const DrawnImage& drawn) {
  const tasks::SyntheticTask* const task = tasks::TaskOfPrompt(drawn.prompt);
  if (task == nullptr) return std::nullopt;
  const absl::StatusOr<bool> right = task->IsRight(drawn.prompt, drawn.image.pixels);
  if (!right.ok()) return std::nullopt;
  return *right ? io::kRightColour : io::kWrongColour;
}

absl::Status Sample(SampleFlags flags) {
  if (!flags.prompts.empty()) {
    OXBOW_ASSIGN_OR_RETURN(flags.texts, ReadPromptFile(flags.prompts));
  }
  if (flags.texts.size() * flags.images.per_prompt > kImagesMax) {
    return absl::InvalidArgumentError("more images than fit a sheet of " +
                                      std::to_string(kImagesMax));
  }
  OXBOW_ASSIGN_OR_RETURN(const std::vector<DrawnImage> images,
                         DrawImages(flags.source, flags.texts, flags.images));
  std::vector<io::GridCell> cells;
  for (const DrawnImage& drawn : images) {
    cells.push_back({.image = drawn.image, .frame = FrameOf(drawn), .label = drawn.prompt});
  }
  return WriteFileAtomically(flags.out, io::EncodePng(io::Grid(cells)));
}

}  // namespace

void AddSample(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<SampleFlags>();
  CLI::App* const command =
      app.add_subcommand("sample", "Draw images of a model or a finished run onto a PNG sheet");
  command->footer("Example: oxbow sample --model models/digits --prompt 'text 473' --count 8");
  AddSourceFlags(*command, flags->source);
  CLI::Option_group* const prompts = command->add_option_group("prompts");
  prompts->add_option("--prompts", flags->prompts, "file, one prompt per line");
  prompts->add_option("--prompt", flags->texts, "prompt; may be repeated");
  prompts->require_option(1);
  command->add_option("--count", flags->images.per_prompt, "images per prompt")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  AddImageFlags(*command, flags->images);
  command->add_option("--out", flags->out, "PNG file to write")->capture_default_str();
  command->callback([flags, &exit_code] {
    const absl::Status status = Sample(*flags);
    exit_code = ExitCodeOf(status);
    if (status.ok()) {
      std::cout << flags->out << "\n";
    } else {
      std::cerr << "oxbow sample: " << status.message() << "\n";
    }
  });
}

}  // namespace oxbow::cli
