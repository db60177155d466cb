#include <ATen/Parallel.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/model/drawn_images.h"
#include "core/flow/schedule.h"
#include "core/model/clip_text.h"
#include "core/model/sd3.h"
#include "io/clip_tokenizer.h"
#include "io/diffusers_directory.h"
#include "io/tensor_torch.h"
#include "tasks/pretraining/pretraining.h"
#include "tasks/pretraining/task_tensors.h"
#include "tasks/synthetic_task.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;

// The scheduler's shift: a small image needs none.
constexpr double kPretrainedShift = 1.0;
constexpr int kSamplingSteps = 10;
constexpr int kImagesPerPrompt = 16;  // Standard error of an accuracy: .016.
constexpr uint64_t kEvaluationSeed = 1;

struct PretrainFlags {
  std::string task = "digits";
  std::string out;
  std::string prompts;   // Empty: configs/prompts/WORLD_train.txt.
  std::string held_out;  // Empty: configs/prompts/WORLD_eval.txt.
  uint64_t seed = 0;
  int64_t steps = 0;          // 0: as the shipped model.
  double caption_noise = -1;  // Likewise if negative.
  int threads = 1;
  bool weak = false;
  bool replace = false;
};

// On a terminal a line that is redrawn; elsewhere a line every ten seconds.
class ProgressLine {
 public:
  ProgressLine(int64_t steps, const Clock& clock)
      : steps_(steps), clock_(clock), start_(clock.Now()), terminal_(isatty(STDERR_FILENO) != 0) {}

  void Show(int64_t step, double loss) {
    loss_ = step <= 1 ? loss : loss_ + 0.02 * (loss - loss_);
    const absl::Duration now = clock_.Now();
    const absl::Duration pause = terminal_ ? absl::Milliseconds(200) : absl::Seconds(10);
    if (step < steps_ && now - shown_ < pause) return;
    shown_ = now;
    const double seconds = absl::ToDoubleSeconds(now - start_);
    const double left = seconds / static_cast<double>(step) * static_cast<double>(steps_ - step);
    const std::string line =
        absl::StrFormat("pretrain  step %d/%d  loss %.4f  %.1f ms/step  %.0f s left", step, steps_,
                        loss_, 1000 * seconds / static_cast<double>(step), left);
    std::fprintf(stderr, terminal_ ? "\r%s\x1b[K" : "%s\n", line.c_str());
    if (terminal_ && step == steps_) std::fputc('\n', stderr);
  }

 private:
  const int64_t steps_;
  const Clock& clock_;
  const absl::Duration start_;
  const bool terminal_;
  absl::Duration shown_ = -absl::InfiniteDuration();
  double loss_ = 0;
};

std::string PromptFile(const std::string& given, const std::string& task, const char* part) {
  return given.empty() ? "configs/prompts/" + task + "_" + part + ".txt" : given;
}

absl::StatusOr<std::unique_ptr<tasks::TaskTensors>> TaskOf(const PretrainFlags& flags) {
  OXBOW_ASSIGN_OR_RETURN(const tasks::SyntheticTask* const task, tasks::TaskNamed(flags.task));
  const std::string path = PromptFile(flags.prompts, flags.task, "train");
  OXBOW_ASSIGN_OR_RETURN(const std::vector<std::string> prompts, ReadPromptFile(path));
  absl::StatusOr<std::unique_ptr<tasks::TaskTensors>> tensors = tasks::TensorsOf(*task, prompts);
  if (!tensors.ok()) return Annotate(tensors.status(), path);
  return tensors;
}

// Trains to the end.
absl::StatusOr<std::unique_ptr<tasks::Pretraining>> Train(const PretrainFlags& flags,
                                                          const tasks::TaskTensors& task) {
  tasks::PretrainingOptions options;
  options.batch.seed = flags.seed;
  options.batch.caption_noise =
      flags.caption_noise < 0 ? task.caption_noise() : flags.caption_noise;
  options.steps = flags.steps > 0 ? flags.steps : task.steps();
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<tasks::Pretraining> run,
                         tasks::Pretraining::Create(options, task));
  ProgressLine progress(options.steps, Clock::Steady());
  while (run->steps_done() < options.steps) {
    OXBOW_ASSIGN_OR_RETURN(const double loss, run->Step());
    progress.Show(run->steps_done(), loss);
  }
  return run;
}

io::DiffusersContent ContentOf(const tasks::TaskTensors& task,
                               const model::NamedTensors& transformer,
                               const model::NamedTensors& text) {
  const model::ClipTextParams text_params = task.text();
  return {
      .transformer_config_json = model::Sd3ConfigJson(task.transformer()),
      .transformer = io::AllFromTorch(transformer),
      .text_encoder_config_json = model::ClipTextConfigJson(text_params),
      .text_encoder = io::AllFromTorch(text),
      .tokenizer_files = io::ClipTokenizerFiles(task.merges(), text_params.max_position_embeddings),
      .scheduler_config_json = "",  // A plain one: shift kPretrainedShift.
      .metadata = {}};
}

// Writes a pretrained model as a genuine diffusers directory: what diffusers and transformers load
// component by component, and what every oxbow process reads.
//
//   model_index.json
//   transformer/   config.json, diffusion_pytorch_model.safetensors
//   text_encoder/  config.json, model.safetensors
//   tokenizer/     vocab.json, merges.txt, tokenizer_config.json, special_tokens_map.json
//   scheduler/     scheduler_config.json
//
// Writes beside `directory` and renames, so that it is there wholly or not at all. An existing
// directory is kInvalidArgument unless `replace`.
absl::Status WritePretrainedDirectory(const fs::path& directory, const tasks::TaskTensors& task,
                                      const model::NamedTensors& transformer,
                                      const model::NamedTensors& text, bool replace) {
  const fs::path target = fs::absolute(directory).lexically_normal();
  if (fs::exists(target) && !replace) {
    return absl::InvalidArgumentError(
        absl::StrCat("directory exists (remove it or give --replace): ", target.string()));
  }
  const fs::path partial = target.string() + ".partial";
  std::error_code error;
  fs::remove_all(partial, error);
  const absl::Status status =
      io::WriteDiffusersDirectory(partial, ContentOf(task, transformer, text));
  if (!status.ok()) {
    fs::remove_all(partial, error);
    return status;
  }
  fs::remove_all(target, error);
  fs::rename(partial, target, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot rename (", error.message(), "): ", partial.string()));
  }
  return absl::OkStatus();
}

absl::Status Pretrain(const PretrainFlags& flags) {
  if (fs::exists(flags.out) && !flags.replace) {
    return absl::InvalidArgumentError("--out exists (remove it or give --replace): " + flags.out);
  }
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<tasks::TaskTensors> task, TaskOf(flags));
  OXBOW_ASSIGN_OR_RETURN(const std::vector<std::string> held_out,
                         ReadPromptFile(PromptFile(flags.held_out, flags.task, "eval")));
  // Before hours of work: the held-out prompts must be of this task, too.
  OXBOW_RETURN_IF_ERROR(task->TokenIds(held_out).status());
  at::set_num_threads(flags.threads);
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<tasks::Pretraining> run, Train(flags, *task));
  const model::NamedTensors transformer = run->TransformerWeights();
  const model::NamedTensors text = run->TextWeights();
  OXBOW_ASSIGN_OR_RETURN(
      const std::vector<tasks::Measure> report,
      tasks::EvaluatePretrained(
          *task, transformer, text, held_out, kImagesPerPrompt,
          flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, kSamplingSteps, kPretrainedShift),
          kEvaluationSeed));
  for (const tasks::Measure& measure : report) {
    std::printf("%-18s %.4g\n", measure.name.c_str(), measure.value);
  }
  const absl::Status fit = task->CheckBaseModel(report);
  // A weak model is a failure of the run, not of a file: exit 1.
  if (!fit.ok() && !flags.weak) return absl::InternalError(fit.message());
  if (!fit.ok()) std::cerr << "oxbow pretrain: weak as asked for: " << fit.message() << "\n";
  OXBOW_RETURN_IF_ERROR(
      WritePretrainedDirectory(flags.out, *task, transformer, text, flags.replace));
  std::printf("written to         %s\n", flags.out.c_str());
  return absl::OkStatus();
}

}  // namespace

void AddPretrain(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PretrainFlags>();
  CLI::App* command = app.add_subcommand(
      "pretrain", "Make an embedded model from nothing and write it if it passes the gate");
  command->add_option("--task", flags->task, "digits, plates or compose")->capture_default_str();
  command->add_option("--out", flags->out, "directory to write")->required();
  command->add_option("--seed", flags->seed, "of every draw")->capture_default_str();
  command->add_option("--steps", flags->steps, "optimiser steps (default: as the shipped model)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--caption-noise", flags->caption_noise,
                   "probability that a fact of a caption is wrong (default: as the shipped model)")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--threads", flags->threads, "torch threads; 1 is repeatable bit for bit")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--prompts", flags->prompts,
                      "prompts to train on (default: configs/prompts/WORLD_train.txt)");
  command->add_option("--held-out", flags->held_out,
                      "prompts of the gate, never trained on (default: ..._eval.txt)");
  command->add_flag(
      "--weak", flags->weak,
      "write the model even if it fails the gate: a base to which rewards are sparse");
  command->add_flag("--replace", flags->replace, "overwrite --out if it exists");
  command->callback([flags, &exit_code] {
    const absl::Status status = Pretrain(*flags);
    if (!status.ok()) std::cerr << "oxbow pretrain: " << status.message() << "\n";
    exit_code = ExitCodeOf(status);
  });
}

}  // namespace oxbow::cli
