#include "cli/pretrain.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/digits_directory.h"
#include "core/flow/schedule.h"
#include "core/pretrain/pretraining.h"

namespace oxbow::cli {
namespace {

constexpr int kSamplingSteps = 10;
constexpr int kPicturesPerPrompt = 16;  // Standard error of an accuracy: .016.
constexpr uint64_t kEvaluationSeed = 1;

struct PretrainFlags {
  std::string out;
  std::string prompts = "configs/prompts/digits_train.txt";
  std::string held_out = "configs/prompts/digits_eval.txt";
  uint64_t seed = 0;
  int64_t steps = 6000;
  int threads = 1;
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

absl::StatusOr<std::vector<task::Digits>> ReadPrompts(const std::string& path) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  absl::StatusOr<std::vector<task::Digits>> prompts = task::ParseDigitsPrompts(text);
  if (!prompts.ok()) return Annotate(prompts.status(), path);
  if (prompts->empty()) return absl::InvalidArgumentError("no prompts: " + path);
  return prompts;
}

void Print(const task::DigitsReport& report) {
  std::printf(
      "held-out pictures %d\nreward            %.3f +- %.3f\nstrict            %.3f\n"
      "speckle           %.4f\nunreadable        %.3f\nminority row      %.3f\n"
      "digit accuracy    %.3f %.3f %.3f\n",
      static_cast<int>(report.pictures), report.reward, report.reward_stderr, report.strict,
      report.speckle, report.unreadable, report.minority_row_share, report.digit_accuracy[0],
      report.digit_accuracy[1], report.digit_accuracy[2]);
}

absl::Status Pretrain(const PretrainFlags& flags) {
  if (std::filesystem::exists(flags.out) && !flags.replace) {
    return absl::InvalidArgumentError("--out exists (remove it or give --replace): " + flags.out);
  }
  OXBOW_ASSIGN_OR_RETURN(const std::vector<task::Digits> prompts, ReadPrompts(flags.prompts));
  OXBOW_ASSIGN_OR_RETURN(const std::vector<task::Digits> held_out, ReadPrompts(flags.held_out));
  at::set_num_threads(flags.threads);
  OXBOW_ASSIGN_OR_RETURN(
      const std::unique_ptr<task::Pretraining> run,
      task::Pretraining::Create({.batch = {.seed = flags.seed}, .steps = flags.steps}, prompts));
  ProgressLine progress(flags.steps, Clock::Steady());
  while (run->steps_done() < flags.steps) {
    OXBOW_ASSIGN_OR_RETURN(const double loss, run->Step());
    progress.Show(run->steps_done(), loss);
  }
  const model::NamedTensors transformer = run->TransformerWeights();
  const model::NamedTensors text = run->TextWeights();
  OXBOW_ASSIGN_OR_RETURN(const task::DigitsReport report,
                         task::EvaluateDigits(transformer, text, held_out, kPicturesPerPrompt,
                                              flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault,
                                                              kSamplingSteps, kDigitsShift),
                                              kEvaluationSeed));
  Print(report);
  const absl::Status fit = task::CheckBaseModel(report);
  // A weak model is a failure of the run, not of a file: exit 1.
  if (!fit.ok()) return absl::InternalError(fit.message());
  OXBOW_RETURN_IF_ERROR(WriteDigitsDirectory(flags.out, transformer, text, flags.replace));
  std::printf("written to        %s\n", flags.out.c_str());
  return absl::OkStatus();
}

}  // namespace

void AddPretrain(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PretrainFlags>();
  CLI::App* command = app.add_subcommand(
      "pretrain", "Make the embedded digits model from nothing and write it if it passes the gate");
  command->add_option("--out", flags->out, "directory to write")->required();
  command->add_option("--seed", flags->seed, "of every draw")->capture_default_str();
  command->add_option("--steps", flags->steps, "optimiser steps")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "torch threads; 1 is repeatable bit for bit")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--prompts", flags->prompts, "prompts to train on")->capture_default_str();
  command->add_option("--held-out", flags->held_out, "prompts of the gate, never trained on")
      ->capture_default_str();
  command->add_flag("--replace", flags->replace, "overwrite --out if it exists");
  command->callback([flags, &exit_code] {
    const absl::Status status = Pretrain(*flags);
    if (!status.ok()) std::cerr << "oxbow pretrain: " << status.message() << "\n";
    exit_code = ExitCodeOf(status);
  });
}

}  // namespace oxbow::cli
