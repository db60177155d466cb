// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/oncall/machine_checks.h"
#include "cli/run/work_progress.h"
#include "cli/terminal.h"
#include "config/run_config.h"
#include "core/model/device.h"
#include "io/diffusers_directory.h"
#include "io/prompts/encoded_prompts.h"
#include "io/prompts/prompt_store.h"
#include "run/prompt_files.h"
#include "run/trainer_options.h"

namespace oxbow::cli {
namespace {

constexpr char kBf16[] = "bf16";

struct EncodeFlags {
  std::string file;  // A run, or what follows:
  std::vector<std::string> set;
  std::string model;
  std::vector<std::string> prompts;
  std::string cache;
  int64_t t5_length = 0;  // The model's own.
  std::string dtype = "f32";
  std::string negative;  // The prompt that guidance leads away from.
  std::string device;    // Empty: the run's, or the CPU.
  int threads = 1;
  size_t batch = 16;
};

// Takes from a run what it says, in place of the flags.
absl::Status ReadRun(EncodeFlags& flags) {
  if (!flags.model.empty() || !flags.prompts.empty() || !flags.cache.empty()) {
    return absl::InvalidArgumentError(
        "give a run file, or --model, --prompts and --cache, but not both");
  }
  OXBOW_ASSIGN_OR_RETURN(
      const config::ResolvedConfig resolved,
      config::LoadRunConfig(flags.file, flags.set, config::ProcessEnvironment()));
  const v1::PromptConfig& prompts = resolved.config.prompts();
  if (prompts.cache().empty()) {
    return absl::InvalidArgumentError(
        "the run keeps no prompts on disk: set prompts.cache in it, or add --set "
        "prompts.cache=DIR here and in `oxbow train`");
  }
  flags.model = resolved.config.model().path();
  flags.cache = prompts.cache();
  flags.t5_length = prompts.t5_length();
  if (run::EncoderType(resolved.config.model()) == at::kBFloat16) flags.dtype = kBf16;
  if (flags.device.empty()) flags.device = resolved.config.model().encoder_device();
  flags.negative = resolved.config.sampling().negative_prompt();
  for (const auto& [path, split] : {std::pair(prompts.train(), run::PromptSplit::kTrain),
                                    std::pair(prompts.eval(), run::PromptSplit::kHeldOut)}) {
    if (path.empty()) continue;
    OXBOW_ASSIGN_OR_RETURN(const std::filesystem::path file, run::PromptFile(path, split));
    flags.prompts.push_back(file.string());
  }
  return absl::OkStatus();
}

// The prompts that a flag names: those of a file, or of both splits of a directory.
absl::StatusOr<std::vector<v1::Prompt>> ReadNamed(const std::string& path) {
  OXBOW_ASSIGN_OR_RETURN(std::vector<v1::Prompt> prompts,
                         run::ReadPrompts(path, run::PromptSplit::kTrain));
  if (!std::filesystem::is_directory(path)) return prompts;
  if (!run::PromptFile(path, run::PromptSplit::kHeldOut).ok()) return prompts;
  OXBOW_ASSIGN_OR_RETURN(const std::vector<v1::Prompt> held_out,
                         run::ReadPrompts(path, run::PromptSplit::kHeldOut));
  prompts.insert(prompts.end(), held_out.begin(), held_out.end());
  return prompts;
}

absl::Status CheckFlags(const EncodeFlags& flags) {
  if (flags.model.empty() || flags.prompts.empty() || flags.cache.empty()) {
    return absl::InvalidArgumentError("give a run file, or --model, --prompts and --cache");
  }
  if (flags.t5_length >= 0 && flags.t5_length <= io::kT5LengthMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("T5's length must be at most ", io::kT5LengthMax,
                                                 ", or 0 for the model's own: ", flags.t5_length));
}

// kResourceExhausted where what is missing does not fit.
absl::Status CheckRoom(const EncodeFlags& flags, const io::EncodedPrompts& encoded,
                       const std::vector<std::string>& texts) {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<std::string> missing, encoded.Missing(texts));
  const uint64_t bytes =
      missing.size() * io::StoredBytes(encoded.encoders().row_shapes(), flags.dtype == kBf16);
  const Disk disk = LookAtDisks({{"prompts.cache", flags.cache, bytes, bytes}}).front();
  if (bytes <= disk.free) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(missing.size(), " prompts take about ",
                                                   BytesText(bytes), ", and ", BytesText(disk.free),
                                                   " is free: free some space, or choose another "
                                                   "prompts.cache: ",
                                                   disk.path));
}

absl::Status Encode(EncodeFlags flags) {
  if (!flags.file.empty()) OXBOW_RETURN_IF_ERROR(ReadRun(flags));
  OXBOW_RETURN_IF_ERROR(CheckFlags(flags));
  if (!std::filesystem::is_directory(flags.cache)) {
    OXBOW_RETURN_IF_ERROR(CheckPlace(flags.cache, /*folder=*/true));
  }
  at::set_num_threads(flags.threads);
  if (flags.device.empty()) flags.device = "cpu";
  OXBOW_ASSIGN_OR_RETURN(const at::Device device, model::DeviceNamed(flags.device));
  std::vector<std::string> texts = {flags.negative};
  for (const std::string& path : flags.prompts) {
    OXBOW_ASSIGN_OR_RETURN(const std::vector<v1::Prompt> prompts, ReadNamed(path));
    for (const v1::Prompt& prompt : prompts) texts.push_back(prompt.text());
  }
  OXBOW_ASSIGN_OR_RETURN(const io::DiffusersComponents components,
                         io::OpenDiffusersDirectory(flags.model));
  OXBOW_ASSIGN_OR_RETURN(
      const std::unique_ptr<io::EncodedPrompts> encoded,
      io::EncodedPrompts::Open(
          components, {.directory = flags.cache,
                       .encoders = {.t5_length = flags.t5_length,
                                    .device = device,
                                    .dtype = flags.dtype == kBf16 ? at::kBFloat16 : at::kFloat},
                       .batch = flags.batch}));
  OXBOW_ASSIGN_OR_RETURN(const auto cut, io::CountCut(components, flags.t5_length, texts));
  if (cut.has_value() && cut->cut > 0) {
    std::cerr << "oxbow encode: warning: " << io::CutText(*cut) << "\n";
  }
  OXBOW_RETURN_IF_ERROR(CheckRoom(flags, *encoded, texts));
  size_t count = 0;
  {
    WorkProgress progress("encode");
    progress.Begin("encoding");
    OXBOW_ASSIGN_OR_RETURN(count, encoded->Prepare(texts, [&](const auto& so_far) {
      progress.Count(static_cast<double>(so_far.done), so_far.total, "prompts");
    }));
  }
  std::cout << "encoded " << count << " prompts into " << encoded->directory().string() << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddEncode(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<EncodeFlags>();
  CLI::App* const command = app.add_subcommand(kEncode.name, kEncode.says);
  command->footer(
      "Prompts that are on disk already are left alone; a run with the same prompts.cache and\n"
      "prompts.t5_length and model.encoder_dtype finds them all.\n"
      "Example: oxbow encode run.yaml --set prompts.cache=prompts");
  CLI::Option* const run = command->add_option(
      "file", flags->file,
      "run YAML: its model, prompts, cache, T5 length, dtype and negative prompt");
  command->add_option("--set", flags->set, "KEY=VALUE over the run's; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--model", flags->model, "diffusers directory");
  command
      ->add_option("--prompts", flags->prompts,
                   ".txt or .jsonl file, or a directory of train and test files; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--cache", flags->cache, "directory to fill");
  command->add_option("--negative-prompt", flags->negative, "what guidance leads away from")
      ->excludes(run);
  command->add_option("--t5-length", flags->t5_length, "tokens of T5; 0: the model's own number")
      ->capture_default_str()
      ->excludes(run);
  command->add_option("--dtype", flags->dtype, "of the encoders' weights and products")
      ->check(CLI::IsMember({"f32", kBf16}))
      ->capture_default_str()
      ->excludes(run);
  command->add_option("--device", flags->device,
                      "where the encoders run: cpu, cuda or cuda:N; default: the run's "
                      "model.encoder_device, else cpu");
  command->add_option("--threads", flags->threads, "torch threads")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--batch", flags->batch, "prompts that are encoded at a time")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->callback([flags, &exit_code] { exit_code = Ended("encode", Encode(*flags)); });
}

}  // namespace oxbow::cli
