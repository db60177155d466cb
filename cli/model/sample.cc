#include "cli/model/sample.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "base/exit_code.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/model/drawn_pictures.h"
#include "cli/model/picture_flags.h"
#include "core/task/world.h"
#include "io/png.h"

namespace oxbow::cli {
namespace {

constexpr size_t kPicturesMax = 4096;

struct SampleFlags {
  ModelSource source;
  std::string prompts;
  std::vector<std::string> texts;
  PictureOptions pictures;
  std::string out = "grid.png";
};

// Green for right, red for wrong; no frame where the prompt is of another world.
std::optional<io::Colour> FrameOf(const DrawnPicture& drawn) {
  const task::World* const world = task::WorldOfPrompt(drawn.prompt);
  if (world == nullptr) return std::nullopt;
  const absl::StatusOr<bool> right = world->IsRight(drawn.prompt, drawn.picture.pixels);
  if (!right.ok()) return std::nullopt;
  return *right ? io::kRightColour : io::kWrongColour;
}

absl::Status Sample(SampleFlags flags) {
  if (!flags.prompts.empty()) {
    OXBOW_ASSIGN_OR_RETURN(flags.texts, ReadPromptFile(flags.prompts));
  }
  if (flags.texts.size() * flags.pictures.per_prompt > kPicturesMax) {
    return absl::InvalidArgumentError("more pictures than fit a sheet of " +
                                      std::to_string(kPicturesMax));
  }
  OXBOW_ASSIGN_OR_RETURN(const std::vector<DrawnPicture> pictures,
                         DrawPictures(flags.source, flags.texts, flags.pictures));
  std::vector<io::GridCell> cells;
  for (const DrawnPicture& drawn : pictures) {
    cells.push_back({.picture = drawn.picture, .frame = FrameOf(drawn), .label = drawn.prompt});
  }
  return WriteFileAtomically(flags.out, io::EncodePng(io::Grid(cells)));
}

}  // namespace

void AddSample(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<SampleFlags>();
  CLI::App* const command =
      app.add_subcommand("sample", "Draw pictures of a model or a finished run onto a PNG sheet");
  command->footer("Example: oxbow sample --model models/digits --prompt 'text 473' --count 8");
  AddSourceFlags(*command, flags->source);
  CLI::Option_group* const prompts = command->add_option_group("prompts");
  prompts->add_option("--prompts", flags->prompts, "file, one prompt per line");
  prompts->add_option("--prompt", flags->texts, "prompt; may be repeated");
  prompts->require_option(1);
  command->add_option("--count", flags->pictures.per_prompt, "pictures per prompt")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  AddPictureFlags(*command, flags->pictures);
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
