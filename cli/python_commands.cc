// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/child_program.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "config/run_config.h"

namespace oxbow::cli {

namespace {

struct BenchFlags {
  std::string plan;
  std::string out;
  uint32_t seeds = 0;  // 0: as in the plan.
  double level = 0;    // 0: as in the plan.
  uint32_t jobs = 1;
  bool table_only = false;
};

std::vector<std::string> BenchWords(const BenchFlags& flags) {
  std::vector<std::string> words = {absl::StrCat("--jobs=", flags.jobs)};
  if (!flags.out.empty()) words.push_back("--out=" + flags.out);
  if (flags.seeds > 0) words.push_back(absl::StrCat("--seeds=", flags.seeds));
  if (flags.level > 0) words.push_back(absl::StrFormat("--level=%.17g", flags.level));
  if (flags.table_only) words.emplace_back("--table-only");
  words.insert(words.end(), {"--", flags.plan});
  return words;
}

}  // namespace

void AddBench(CLI::App& app, int& exit_code) {
  CLI::App* const bench = app.add_subcommand("bench", "Compare recipes");
  bench->footer("Example: oxbow bench learning configs/bench/digits.yaml");
  bench->require_subcommand(1);
  CLI::App* const command = bench->add_subcommand(
      "learning",
      "Train every recipe of a comparison with every seed; steps, time and cost to a level. "
      "Finished runs are not trained again.");
  command->footer(
      "It runs in Python, with numpy, PyYAML and matplotlib; `make build` has them.\n"
      "Example: oxbow bench learning configs/bench/digits.yaml");
  const auto flags = std::make_shared<BenchFlags>();
  command->add_option("PLAN", flags->plan, "comparison, a YAML file")->required();
  command->add_option("--out", flags->out,
                      "directory of runs and table (default: runs/bench/NAME)");
  command->add_option("--seeds", flags->seeds, "seeds of each recipe (default: the plan's)")
      ->check(CLI::Range(1, 1000));
  command
      ->add_option("--level", flags->level,
                   "held-out reward to reach (default: the plan's, or the baseline's at its end)")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--jobs", flags->jobs,
                   "runs that train at once (default: 1); times are comparable with 1 alone")
      ->check(CLI::Range(1, 1000));
  command->add_flag("--table-only", flags->table_only, "train nothing, show what is finished");
  command->callback([flags, &exit_code] {
    exit_code =
        Ended("bench learning", BecomePythonPart({.module = "oxbow.bench.command",
                                                  .needs = {"numpy", "PyYAML", "matplotlib"},
                                                  .extra = "bench"},
                                                 BenchWords(*flags), config::ProcessEnvironment()));
  });
}

void AddReproduce(CLI::App& app, int& exit_code) {
  struct Flags {
    std::string plan, gpus, out;
    std::vector<std::string> set;
    uint32_t seeds = 0;  // 0: as in the plan.
    bool tiny = false, check = false, page_only = false;
  };
  const auto flags = std::make_shared<Flags>();
  CLI::App* const command = app.add_subcommand(
      "reproduce", "Train a published comparison, and set our curves beside the paper's numbers");
  command->footer(
      "Checks weights, prompts, rewards, memory and disk first; finished runs are not trained\n"
      "again, one that was stopped goes on. docs/reproduce.md has the plans and what they take.\n"
      "It runs in Python, with numpy, PyYAML and matplotlib; `make build` has them.\n"
      "Example: oxbow reproduce configs/bench/published/op-grpo-ocr.yaml --gpus 8");
  command->add_option("PLAN", flags->plan, "published comparison, a YAML file with `source`")
      ->required();
  command->add_option("--gpus", flags->gpus,
                      "GPUs of this machine to take (default: all); with --check also NUMBERxGIB "
                      "of another machine");
  command->add_option("--out", flags->out,
                      "directory of runs and page (default: runs/reproduce/NAME)");
  command->add_option("--seeds", flags->seeds, "seeds of each recipe (default: the plan's)")
      ->check(CLI::Range(1, 1000));
  command->add_option("--set", flags->set,
                      "KEY=VALUE for every run: prompts.train=DIRECTORY; may be repeated");
  command->add_flag("--tiny", flags->tiny,
                    "random narrow networks, small pictures, two steps: whether the plan runs");
  command->add_flag("--check", flags->check,
                    "train nothing, say what the plan takes and what is missing");
  command->add_flag("--page-only", flags->page_only,
                    "train nothing, write the page of what is finished");
  command->callback([flags, &exit_code] {
    std::vector<std::string> words;
    if (!flags->gpus.empty()) words.push_back("--gpus=" + flags->gpus);
    if (!flags->out.empty()) words.push_back("--out=" + flags->out);
    if (flags->seeds > 0) words.push_back(absl::StrCat("--seeds=", flags->seeds));
    for (const std::string& one : flags->set) words.push_back("--set=" + one);
    if (flags->tiny) words.emplace_back("--tiny");
    if (flags->check) words.emplace_back("--check");
    if (flags->page_only) words.emplace_back("--page-only");
    words.insert(words.end(), {"--", flags->plan});
    exit_code =
        Ended("reproduce", BecomePythonPart({.module = "oxbow.reproduce.command",
                                             .needs = {"numpy", "PyYAML", "matplotlib"},
                                             .extra = "bench"},
                                            words, config::ProcessEnvironment()));
  });
}

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
      "It runs in Python, with torch and safetensors; `make build` has both.\n"
      "Example: oxbow convert-weights sac+logos+ava1-l14-linearMSE.pth aesthetic.safetensors");
  command->add_option("IN", flags->from, "file of torch.save")->required();
  command->add_option("OUT", flags->to, "safetensors file to write")->required();
  command->callback([flags, &exit_code] {
    exit_code =
        Ended("convert-weights",
              BecomePythonPart({.module = "oxbow.convert.weights",
                                .needs = {"torch", "safetensors", "numpy"},
                                .extra = "convert"},
                               {"--", flags->from, flags->to}, config::ProcessEnvironment()));
  });
}

}  // namespace oxbow::cli
