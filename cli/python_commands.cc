// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/child_program.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "config/run_config.h"

namespace oxbow::cli {

namespace {

// A command whose work is in the Python package: it takes what its options say, and passes it on.
class PythonCommand {
 public:
  PythonCommand(CLI::App& above, const std::string& name, const std::string& says,
                const std::string& footer, PythonPart part, int& exit_code)
      : command_(*above.add_subcommand(name, says)) {
    command_.footer(footer);
    const std::string whole = above.get_parent() == nullptr ? name : above.get_name() + " " + name;
    command_.callback(
        [words = words_, places = places_, whole, part = std::move(part), &exit_code] {
          words->emplace_back("--");
          words->insert(words->end(), places->begin(), places->end());
          exit_code = Ended(whole, BecomePythonPart(part, *words, config::ProcessEnvironment()));
        });
  }

  CLI::Option* Place(const std::string& name, const std::string& says) {
    const auto take = [places = places_](const std::string& text) { places->push_back(text); };
    return command_.add_option_function<std::string>(name, take, says)->required();
  }
  CLI::Option* Option(const std::string& name, const std::string& says) {
    return command_.add_option_function<std::string>(
        name,
        [words = words_, name](const std::string& value) {
          words->push_back(absl::StrCat(name, "=", value));
        },
        says);
  }
  void Repeated(const std::string& name, const std::string& says) {
    const auto take = [words = words_, name](const std::vector<std::string>& values) {
      for (const std::string& value : values) words->push_back(absl::StrCat(name, "=", value));
    };
    command_.add_option_function<std::vector<std::string>>(name, take, says)
        ->allow_extra_args(false);
  }
  void Flag(const std::string& name, const std::string& says) {
    command_.add_flag_callback(
        name, [words = words_, name] { words->push_back(name); }, says);
  }

 private:
  using Words = std::vector<std::string>;

  CLI::App& command_;
  std::shared_ptr<Words> words_ = std::make_shared<Words>();
  std::shared_ptr<Words> places_ = std::make_shared<Words>();
};

PythonPart BenchPart(const std::string& module) {
  return {.module = module, .needs = {"numpy", "PyYAML", "matplotlib"}, .extra = "bench"};
}

}  // namespace

void AddBench(CLI::App& app, int& exit_code) {
  CLI::App* const bench = app.add_subcommand("bench", "Compare recipes");
  bench->footer("Example: oxbow bench learning configs/bench/digits.yaml");
  bench->require_subcommand(1);
  PythonCommand command(
      *bench, "learning",
      "Train every recipe of a comparison with every seed; steps, time and cost to a level. "
      "Finished runs are not trained again.",
      "It runs in Python, with numpy, PyYAML and matplotlib; `make build` has them.\n"
      "Example: oxbow bench learning configs/bench/digits.yaml",
      BenchPart("oxbow.bench.command"), exit_code);
  command.Place("PLAN", "comparison, a YAML file");
  command.Option("--out", "directory of runs and table (default: runs/bench/NAME)");
  command.Option("--seeds", "seeds of each recipe (default: the plan's)")
      ->check(CLI::Range(1, 1000));
  command
      .Option("--level",
              "held-out reward to reach (default: the plan's, or the baseline's at its end)")
      ->check(CLI::PositiveNumber);
  command
      .Option("--jobs", "runs that train at once (default: 1); times are comparable with 1 alone")
      ->check(CLI::Range(1, 1000));
  command.Flag("--table-only", "train nothing, show what is finished");
}

void AddReproduce(CLI::App& app, int& exit_code) {
  PythonCommand command(
      app, "reproduce",
      "Train a published comparison, and set our curves beside the paper's numbers",
      "Checks weights, prompts, rewards, memory and disk first; finished runs are not trained\n"
      "again, one that was stopped goes on. docs/reproduce.md has the plans and what they take.\n"
      "It runs in Python, with numpy, PyYAML and matplotlib; `make build` has them.\n"
      "Example: oxbow reproduce configs/bench/published/op-grpo-ocr.yaml --gpus 8",
      BenchPart("oxbow.reproduce.command"), exit_code);
  command.Place("PLAN", "published comparison, a YAML file with `source`");
  command.Option("--gpus",
                 "GPUs of this machine to take (default: all); with --check also NUMBERxGIB of "
                 "another machine");
  command.Option("--out", "directory of runs and page (default: runs/reproduce/NAME)");
  command.Option("--seeds", "seeds of each recipe (default: the plan's)")
      ->check(CLI::Range(1, 1000));
  command.Repeated("--set", "KEY=VALUE for every run: prompts.train=DIRECTORY; may be repeated");
  command.Flag("--tiny",
               "random narrow networks, small pictures, two steps: whether the plan runs");
  command.Flag("--check", "train nothing, say what the plan takes and what is missing");
}

void AddCompbench(CLI::App& app, int& exit_code) {
  PythonCommand command(
      app, "compbench",
      "Score pictures of T2I-CompBench by its own evaluators, and gather the scores",
      "The pictures are those of `oxbow eval RUN --set t2i-compbench --export-images PICTURES`.\n"
      "Each category's scripts of the clone run in the Python that is named. A category that is\n"
      "scored is not scored again, unless its pictures are newer.\n"
      "Example: oxbow compbench pictures --repository T2I-CompBench --python compbench/bin/python",
      BenchPart("oxbow.compbench"), exit_code);
  command.Place("PICTURES", "directory of CATEGORY/samples");
  command.Option("--repository", "clone of Karine-Huang/T2I-CompBench, with its weights")
      ->required();
  command.Option("--python", "interpreter with what its scripts import (default: oxbow's)");
  command.Option("--out", "file of the scores (default: PICTURES/compbench.json)");
}

void AddConvertWeights(CLI::App& app, int& exit_code) {
  PythonCommand command(
      app, "convert-weights", "Turn a .pt or .pth file of torch.save into safetensors",
      "Takes the tensors of a state dict, or of the entry `state_dict` of a checkpoint, under\n"
      "their names and in their types. Nothing in the file is run: one that asks for anything but\n"
      "tensors is refused with the name of what it asks for.\n"
      "A Mask2Former of mmdetection gets the names of transformers, for the reward geneval.\n"
      "It runs in Python, with torch and safetensors; `make build` has both.\n"
      "Example: oxbow convert-weights sac+logos+ava1-l14-linearMSE.pth aesthetic.safetensors",
      {.module = "oxbow.convert.weights",
       .needs = {"torch", "safetensors", "numpy"},
       .extra = "convert"},
      exit_code);
  command.Place("IN", "file of torch.save");
  command.Place("OUT", "safetensors file to write");
}

}  // namespace oxbow::cli
