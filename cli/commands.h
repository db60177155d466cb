// SPDX-License-Identifier: Apache-2.0
// The subcommands of `oxbow`, each in a file of its name.
//
// Each function adds its subcommand. If it is chosen, parsing sets `exit_code` (base/exit_code.h),
// which must outlive `app`.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace oxbow::cli {

// `oxbow train`: a complete run on this machine, from one YAML file to a report.
void AddTrain(CLI::App& app, int& exit_code);

// `oxbow resume RUN_DIR`: goes on with a run, wherever its directory lies.
void AddResume(CLI::App& app, int& exit_code);

// `oxbow validate`: everything that can be known about a run before it starts.
void AddValidate(CLI::App& app, int& exit_code);

// `oxbow fetch RUN.yaml`: what it names by ids of the Hugging Face Hub, with the Hub's own client.
void AddFetch(CLI::App& app, int& exit_code);

// `oxbow config show|explain`: a run's configuration as it would be used, and what a key is for.
void AddConfig(CLI::App& app, int& exit_code);

// `oxbow recipes`: the built-in recipes.
void AddRecipes(CLI::App& app, int& exit_code);

// `oxbow completion bash|zsh`: a script that completes commands and flags of `app`.
void AddCompletion(CLI::App& app, int& exit_code);

// `oxbow import-config`: other projects' run files as runs of ours.
void AddImportConfig(CLI::App& app, int& exit_code);

// `oxbow doctor`: finds what is wrong with this machine, a run's config, or a running fleet.
void AddDoctor(CLI::App& app, int& exit_code);

// `oxbow certificates DIR`: an authority, and the certificates of a fleet.
void AddCertificates(CLI::App& app, int& exit_code);

// `oxbow replay list|show|verify|export`: looks into a replay buffer and changes nothing.
void AddReplay(CLI::App& app, int& exit_code);

// `oxbow report RUN_DIR`: writes report.html again from the current files of the run.
void AddReport(CLI::App& app, int& exit_code);

// `oxbow runs`: all runs of a directory with their state.
void AddRuns(CLI::App& app, int& exit_code);

// `oxbow compare RUN_DIR...`: runs side by side on one page.
void AddCompare(CLI::App& app, int& exit_code);

// `oxbow watch RUN_DIR`: serves that page, which follows the run.
void AddWatch(CLI::App& app, int& exit_code);

// `oxbow rollback RUN_DIR --to STEP`: returns a run that has ended to an earlier checkpoint.
void AddRollback(CLI::App& app, int& exit_code);

// `oxbow encode`: runs a model's text encoders over prompts ahead of training, so that the learner
// never has them in memory.
void AddEncode(CLI::App& app, int& exit_code);

// `oxbow sample`: draws images of a model or a finished run onto a PNG sheet.
void AddSample(CLI::App& app, int& exit_code);

// `oxbow eval`: measures a model, a run or a folder of pictures, on prompts of an embedded task or
// of a set.
void AddEval(CLI::App& app, int& exit_code);

// `oxbow score IMAGE... --reward NAME`: what a reward says of image files.
void AddScore(CLI::App& app, int& exit_code);

// `oxbow export RUN_DIR --format F`: a run's weights as files that other tools load.
void AddExport(CLI::App& app, int& exit_code);

// `oxbow convert-weights IN.pt OUT.safetensors`: weights of torch.save, read without running code.
void AddConvertWeights(CLI::App& app, int& exit_code);

// `oxbow simulate`: what a run would do with more workers, staleness, failures; in virtual time.
void AddSimulate(CLI::App& app, int& exit_code);

// `oxbow bench learning`: trains every recipe of a comparison with every seed and shows which one
// learns fastest.
void AddBench(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
