// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/model/drawn_pictures.h"
#include "cli/run/work_progress.h"
#include "cli/terminal.h"
#include "core/reward/synthetic_task.h"
#include "io/film.h"
#include "run/run_record.h"

namespace oxbow::cli {
namespace {

constexpr size_t kSampledMax = 4096;

struct SampleFlags {
  ModelSource source;
  std::string prompts;
  std::vector<std::string> texts;
  DrawingOptions drawing;
  std::string out = "grid.png";
  bool frames = false;
  bool replace = false;
};

// Green for right, red for wrong; no frame where the prompt is of another task.
std::optional<io::Colour> FrameOf(const DrawnPicture& drawn) {
  const reward::SyntheticTask* const task = reward::TaskOfPrompt(drawn.prompt);
  if (task == nullptr) return std::nullopt;
  const absl::StatusOr<bool> right = task->IsRight(drawn.prompt, reward::PixelsOf(drawn.frames));
  if (!right.ok()) return std::nullopt;
  return *right ? io::kRightColour : io::kWrongColour;
}

// grid.png -> grid_0003.png, and grid_0003_0012.png of one frame.
std::string Beside(const std::string& sheet, size_t sample, std::optional<size_t> frame = {}) {
  std::filesystem::path path = sheet;
  std::string name = absl::StrFormat("%s_%04d", path.stem().string(), sample);
  if (frame) absl::StrAppendFormat(&name, "_%04d", *frame);
  return path.replace_filename(name + ".png").string();
}

// Each picture or video in its own size, and the frames of videos if they are wanted.
absl::Status WriteEach(const SampleFlags& flags, const std::vector<DrawnPicture>& pictures) {
  for (size_t i = 0; i < pictures.size(); ++i) {
    const std::vector<Image8>& frames = pictures[i].frames;
    OXBOW_RETURN_IF_ERROR(
        WriteFileAtomically(Beside(flags.out, i), io::EncodeFilm({.frames = frames})));
    for (size_t k = 0; flags.frames && frames.size() > 1 && k < frames.size(); ++k) {
      OXBOW_RETURN_IF_ERROR(WriteFileAtomically(Beside(flags.out, i, k), io::EncodePng(frames[k])));
    }
  }
  return absl::OkStatus();
}

// Neither the sheet nor a file beside it replaces another one unasked.
absl::Status CheckFree(const SampleFlags& flags, size_t count) {
  if (flags.replace) return absl::OkStatus();
  std::vector<std::string> paths = {flags.out};
  for (size_t i = 0; i < count; ++i) paths.push_back(Beside(flags.out, i));
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) continue;
    return absl::InvalidArgumentError(
        "--out exists (remove it, choose another name or give --replace): " + path);
  }
  return absl::OkStatus();
}

absl::Status Sample(SampleFlags flags) {
  if (std::filesystem::path(flags.out).extension() != ".png") {
    return absl::InvalidArgumentError("--out is a PNG file, so its name ends in .png, got " +
                                      flags.out);
  }
  OXBOW_RETURN_IF_ERROR(CheckPlace(flags.out));
  if (!flags.prompts.empty()) {
    OXBOW_ASSIGN_OR_RETURN(flags.texts, ReadPromptFile(flags.prompts));
  }
  if (flags.texts.size() * flags.drawing.per_prompt > kSampledMax) {
    return absl::InvalidArgumentError("more images than fit a sheet of " +
                                      std::to_string(kSampledMax));
  }
  OXBOW_RETURN_IF_ERROR(CheckFree(flags, flags.texts.size() * flags.drawing.per_prompt));
  std::vector<DrawnPicture> pictures;
  {
    WorkProgress progress("sample");
    OXBOW_ASSIGN_OR_RETURN(pictures,
                           DrawPictures(flags.source, flags.texts, flags.drawing, progress));
  }
  for (const std::string& warning : PromptWarnings(flags.source, flags.texts)) {
    std::cerr << "oxbow sample: warning: " << warning << "\n";
  }
  std::vector<io::FilmCell> cells;
  for (const DrawnPicture& drawn : pictures) {
    cells.push_back({.frames = drawn.frames,
                     .border = FrameOf(drawn),
                     .label = absl::StrFormat("%04d", cells.size())});
  }
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(flags.out, io::EncodeFilm(io::FilmGrid(cells))));
  return WriteEach(flags, pictures);
}

}  // namespace

void AddSample(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<SampleFlags>();
  CLI::App* const command = app.add_subcommand(kSample.name, kSample.says);
  command->footer(
      "The sheet's cells have the numbers of the files, which are in the order of the prompts.\n"
      "Examples: oxbow sample runs/digits --prompt 'text 473' --count 8\n"
      "          oxbow sample --model models/digits --prompt 'text 473'");
  AddSourceFlags(*command, flags->source);
  CLI::Option_group* const prompts = command->add_option_group("prompts");
  prompts->add_option("--prompts", flags->prompts, "file, one prompt per line");
  prompts->add_option("--prompt", flags->texts, "prompt; may be repeated")->allow_extra_args(false);
  prompts->require_option(1);
  command->add_option("--count", flags->drawing.per_prompt, "images per prompt")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  AddDrawingFlags(*command, flags->drawing);
  command
      ->add_option("--out", flags->out,
                   "PNG sheet to write, of videos animated; each picture is in a file beside it, "
                   "NAME_0000.png")
      ->capture_default_str();
  command->add_flag("--frames", flags->frames, "of videos a PNG file of each frame, too");
  command->add_flag("--replace", flags->replace, "overwrite --out if it exists");
  command->callback([flags, &exit_code] {
    const absl::Status status = Sample(*flags);
    exit_code = Ended("sample", status);
    if (!status.ok()) return;
    std::cout << flags->out << "\n";
    if (flags->source.run.empty()) return;
    const std::string run = run::Quoted(flags->source.run);
    std::cerr << "next: oxbow eval " << run << " measures it, oxbow export " << run
              << " --format diffusers writes it for other tools\n";
  });
}

}  // namespace oxbow::cli
