// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/model/drawn_images.h"
#include "cli/model/pretrained_directory.h"
#include "core/flow/schedule.h"
#include "core/model/sd3.h"
#include "io/diffusers_directory.h"
#include "io/graph_files.h"
#include "run/model_facts.h"
#include "tasks/pretraining/networks.h"
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
  std::string transformer;  // Empty: the task's own, or models/WORLD/transformer.
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
                                                          const tasks::TaskTensors& task,
                                                          const tasks::Networks& networks) {
  tasks::PretrainingOptions options;
  options.batch.seed = flags.seed;
  options.batch.caption_noise =
      flags.caption_noise < 0 ? task.caption_noise() : flags.caption_noise;
  options.steps = flags.steps > 0 ? flags.steps : task.steps();
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<tasks::Pretraining> run,
                         tasks::Pretraining::Create(options, task, networks));
  ProgressLine progress(options.steps, Clock::Steady());
  while (run->steps_done() < options.steps) {
    OXBOW_ASSIGN_OR_RETURN(const double loss, run->Step());
    progress.Show(run->steps_done(), loss);
  }
  return run;
}

// The task's own networks, or those around the transformer of a directory.
struct ChosenNetworks {
  tasks::Networks networks;
  std::string pipeline;
  std::map<std::string, std::string> transformer_files;
};

absl::StatusOr<const io::Pipeline*> PipelineWith(const std::string& transformer) {
  io::DiffusersComponents components;
  components["transformer"].class_name = transformer;
  return io::PipelineOf(components);
}

absl::StatusOr<ChosenNetworks> ChosenNetworksOf(const PretrainFlags& flags,
                                                const tasks::TaskTensors& task) {
  ChosenNetworks chosen;
  if (flags.transformer.empty() && task.transformer()) {
    OXBOW_ASSIGN_OR_RETURN(chosen.networks, tasks::OwnNetworks(task));
    chosen.transformer_files["config.json"] = model::Sd3ConfigJson(*task.transformer());
  } else {
    const fs::path directory =
        flags.transformer.empty() ? "models/" + flags.task + "/transformer" : flags.transformer;
    OXBOW_ASSIGN_OR_RETURN(const std::string config, ReadFile(directory / "config.json"));
    const auto json = ParseJson(config);
    const io::DiffusersComponent component{
        .class_name = json.is_object() ? json.value("_class_name", "") : "",
        .directory = directory,
        .config_json = config,
        .weights_base = {}};
    OXBOW_ASSIGN_OR_RETURN(auto architecture, run::ArchitectureOf(component));
    OXBOW_ASSIGN_OR_RETURN(const io::Pipeline* pipeline, PipelineWith(component.class_name));
    OXBOW_ASSIGN_OR_RETURN(chosen.networks,
                           tasks::MakeNetworks(std::move(architecture), pipeline->text_side, task));
    chosen.transformer_files["config.json"] = config;
    const fs::path graph = io::FindGraphFiles(component).own;
    if (!graph.empty()) {
      OXBOW_ASSIGN_OR_RETURN(chosen.transformer_files[graph.filename().string()], ReadFile(graph));
    }
  }
  OXBOW_ASSIGN_OR_RETURN(const io::Pipeline* pipeline,
                         PipelineWith(chosen.networks.transformer->class_name()));
  chosen.pipeline = pipeline->class_name;
  return chosen;
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
  OXBOW_ASSIGN_OR_RETURN(const ChosenNetworks chosen, ChosenNetworksOf(flags, *task));
  at::set_num_threads(flags.threads);
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<tasks::Pretraining> run,
                         Train(flags, *task, chosen.networks));
  const tasks::ComponentWeights weights = run->Weights();
  OXBOW_ASSIGN_OR_RETURN(
      const std::vector<tasks::Measure> report,
      tasks::EvaluatePretrained(
          *task, chosen.networks, weights, held_out, kImagesPerPrompt,
          flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, kSamplingSteps, kPretrainedShift),
          kEvaluationSeed));
  for (const tasks::Measure& measure : report) {
    std::printf("%-18s %.4g\n", measure.name.c_str(), measure.value);
  }
  const absl::Status fit = task->CheckBaseModel(report);
  // A weak model is a failure of the run, not of a file: exit 1.
  if (!fit.ok() && !flags.weak) return absl::InternalError(fit.message());
  if (!fit.ok()) std::cerr << "oxbow pretrain: weak as asked for: " << fit.message() << "\n";
  OXBOW_RETURN_IF_ERROR(WritePretrainedDirectory(flags.out,
                                                 {.task = *task,
                                                  .networks = chosen.networks,
                                                  .pipeline = chosen.pipeline,
                                                  .transformer_files = chosen.transformer_files},
                                                 weights, flags.replace));
  std::printf("written to         %s\n", flags.out.c_str());
  return absl::OkStatus();
}

}  // namespace

void AddPretrain(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PretrainFlags>();
  CLI::App* command = app.add_subcommand(kPretrain.name, kPretrain.says);
  command->footer("Example: oxbow pretrain --task digits --out mine/digits");
  command->add_option("--task", flags->task, "digits, plates or clip")->capture_default_str();
  command->add_option(
      "--transformer", flags->transformer,
      "directory with config.json and graph.json.gz of another transformer to train "
      "(default: the task's own; of clip models/clip/transformer)");
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
