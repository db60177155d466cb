// SPDX-License-Identifier: Apache-2.0
// The subcommands of `oxbow`, each beside what it does.
//
// Two programs have them all. `oxbow` links no LibTorch, which takes .3 s to load, and becomes
// `oxbow_models`, beside it, for a command that loads models or rewards. So it starts fast.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace oxbow::cli {

// A command that oxbow_models runs. `oxbow` knows what stands on its help page.
struct ModelCommand {
  const char* name;
  const char* says;
};
constexpr ModelCommand kTrain{"train", "Run everything on this machine"};
constexpr ModelCommand kResume{"resume", "Go on with a run, wherever its directory lies by now"};
constexpr ModelCommand kValidate{"validate", "Check a run before it starts"};
constexpr ModelCommand kFetch{
    "fetch", "Get what a run names by ids of the Hugging Face Hub, with the Hub's own client"};
constexpr ModelCommand kDoctor{
    "doctor", "Say what is wrong with this machine, a configuration or a running fleet"};
constexpr ModelCommand kEncode{"encode",
                               "Run a model's text encoders over prompts ahead of training"};
constexpr ModelCommand kSample{"sample",
                               "Draw images of a model or a finished run: PNG files, and a sheet"};
constexpr ModelCommand kEval{"eval", "Measure a model, a run or a folder of pictures"};
constexpr ModelCommand kScore{"score", "What a reward says of image files"};
constexpr ModelCommand kExport{"export", "Write a run's weights as files that other tools load"};
// It needs the flags of the others.
constexpr ModelCommand kCompletion{"completion",
                                   "Print a script that completes commands and flags"};

// The command line, from its words to the exit code.
int RunCommand(int argc, char** argv);

// Adds the subcommand of its name. If that is chosen, parsing sets `exit_code` (base/exit_code.h),
// which must outlive `app`.
using AddCommand = void(CLI::App& app, int& exit_code);
AddCommand AddTrain, AddResume, AddValidate, AddFetch, AddConfig, AddRecipes, AddCompletion,
    AddImportConfig, AddDoctor, AddCertificates, AddReplay, AddReport, AddRuns, AddCompare,
    AddWatch, AddRollback, AddEncode, AddSample, AddEval, AddScore, AddExport, AddConvertWeights,
    AddSimulate, AddBench, AddReproduce, AddCompbench;

}  // namespace oxbow::cli
