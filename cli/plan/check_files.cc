// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/check_files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/listening_sockets.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"
#include "cli/child_program.h"
#include "config/file_paths.h"
#include "config/rules.h"
#include "core/model/cuda_graphs.h"
#include "core/model/device.h"
#include "io/diffusers_directory.h"
#include "io/hub_id.h"
#include "io/network_graph.h"
#include "io/prompts/text_encoders.h"
#include "run/prompt_files.h"
#include "run/rewards.h"
#include "run/sampling_spec.h"
#include "run/start_weights.h"
#include "run/trainer_options.h"
#include "services/buffer/replay_client.h"
#include "services/reward/scorer_table.h"

namespace oxbow::cli {
namespace {

using config::Findings;
using config::Problem;

constexpr char kGraph[] = "graph.json.gz";

// The replay buffer always refuses a larger entry. The number of entries of a step does not matter:
// they go in as many calls as they need.
void CheckOffers(const v1::RunConfig& config, const run::ModelFacts& facts, Findings& f) {
  const uint64_t entry =
      run::EntryBytes(config.sampling(), facts.latent_shape, facts.conditioning_bytes);
  if (!config::KeepsSuccesses(config) || entry <= buffer::kEntryBytesMax) return;
  f.Error("sampling.sde_count",
          absl::StrCat("a trajectory does not fit into an entry of the replay buffer: lower "
                       "sampling.sde_count, the image's size or prompts.t5_length, choose a 2-byte "
                       "sampling.storage, or set replay.fraction to 0: ",
                       entry, " bytes with its conditioning, limit ", buffer::kEntryBytesMax));
}

// The learner refuses it as well, when it has loaded the model.
void CheckSink(const v1::RunConfig& config, const run::ModelFacts& facts, Findings& f) {
  const uint64_t needed = run::SinkBytesNeeded(config, facts.latent_shape);
  if (config.services().sink_bytes_max() >= needed) return;
  f.Error("services.sink_bytes_max",
          absl::StrCat("is too small for the groups of a step: ",
                       config.services().sink_bytes_max(), ", needs ", needed));
}

// Allowed, but more parameters than training the matrix itself, and none of them useful.
void CheckLora(const v1::RunConfig& config, const run::ModelFacts& facts, Findings& f) {
  const uint32_t rank = config.model().lora().rank();
  if (facts.lora_rank_useful == 0 || rank <= facts.lora_rank_useful) return;
  f.Warn("model.lora.rank", absl::StrCat("is more than the narrowest adapted layer has, ",
                                         facts.lora_rank_useful, ", got ", rank));
}

void CheckAdapter(const v1::ModelConfig& model, Findings& f) {
  if (model.trained() != v1::TRAINED_PART_LORA || model.lora().path().empty()) return;
  // The learner refuses the same files, when it has loaded the model.
  f.AddIfBad("model.lora.path", run::StartFromAdapter(model, model.lora().path()).status());
}

void CheckGuidance(const v1::RunConfig& config, const run::ModelFacts& facts, Findings& f) {
  const v1::SamplingConfig& sampling = config.sampling();
  if (facts.guidance == 1 && !sampling.negative_prompt().empty()) {
    f.Warn("sampling.negative_prompt",
           absl::StrCat("is not used: sampling.guidance is ", sampling.guidance(),
                        ", by which this pipeline follows the prompt alone"));
  }
  if (facts.guidance > 1 && sampling.guidance() == 1) {
    f.Warn("sampling.guidance",
           absl::StrCat("1 guides this pipeline, as ", facts.guidance,
                        " of the usual formula does, with two rows a sample; set it to 0 to follow "
                        "the prompt alone"));
  }
  static constexpr char kKey[] = "sampling.embedded_guidance";
  const auto scale = run::EmbeddedGuidance(*facts.architecture, config.sampling());
  if (scale.ok()) return;
  const std::string said(scale.status().message());
  f.Error(kKey, std::string(absl::StripPrefix(said, absl::StrCat(kKey, " "))));
}

// The steps that i_off leaves depend on the model's shift.
void CheckKept(const v1::RunConfig& config, const run::ModelFacts& facts, Findings& f) {
  v1::SamplingConfig sampling = config.sampling();
  run::ResolveSampling(facts.schedule, sampling);
  const auto spec = run::SamplingSpecFromConfig(sampling);
  if (!spec.ok()) return;  // Printing the plan reports it.
  f.Add(run::CheckKeptSteps(config, *spec));
}

// An error of the model that begins with a key is about that key, not about model.path.
void AddAboutModel(const absl::Status& status, Findings& f) {
  std::string message(status.message());
  for (const std::string& key : config::LeafKeys(*v1::RunConfig::descriptor())) {
    const bool named = message.starts_with(key + ": ");
    if (!named && !message.starts_with(key + " ")) continue;
    message.erase(0, named ? key.size() + 2 : key.rfind('.') + 1);
    return f.AddIfBad(key, absl::Status(status.code(), message));
  }
  f.AddIfBad("model.path", status);
}

void CheckModel(const v1::RunConfig& config, Findings& f) {
  if (config.model().path().empty()) return;  // A rule reports it.
  const absl::StatusOr<run::ModelFacts> facts = run::ReadModelFacts(config);
  if (facts.ok()) {
    CheckOffers(config, *facts, f);
    CheckSink(config, *facts, f);
    CheckLora(config, *facts, f);
    v1::ModelConfig model = config.model();
    run::FillLoraTargets(*facts->architecture, model);
    CheckAdapter(model, f);
    CheckGuidance(config, *facts, f);
    f.Add(run::CheckDistilled(config.model().path(), config.sampling(), facts->guidance));
    const absl::Status guided =
        run::CheckTakesGuidance(config.model().path(), config.sampling().guidance());
    if (!guided.ok()) AddAboutModel(guided, f);
    CheckKept(config, *facts, f);
    return;
  }
  AddAboutModel(facts.status(), f);
}

// A place for copies at which none can be made would be found out when the first one is needed.
void CheckCopyTarget(const v1::CheckpointConfig& checkpoint, Findings& f) {
  const auto target = config::ParseCopyTarget(checkpoint.copy_to());
  if (!target.ok() || target->directory.empty())
    return;  // A rule reports it; a command runs later.
  std::error_code error;
  const std::filesystem::path there =
      std::filesystem::absolute(target->directory / "", error).parent_path();
  const std::filesystem::path parent = there.parent_path();
  std::string why;
  if (!std::filesystem::is_directory(parent, error)) {
    why = absl::StrCat(parent.string(), " is no directory: mount or make it, or correct the path");
  } else if (std::filesystem::create_directory(there, error)) {
    std::filesystem::remove(there, error);  // The first copy makes it.
  } else if (error || ::access(there.c_str(), W_OK) != 0) {
    why = absl::StrCat(there.string(), " is no directory that may be written to",
                       error ? ": " + error.message() : "");
  }
  if (why.empty()) return;
  f.Error("checkpoint.copy_to",
          absl::StrCat("no copy can be made in ", checkpoint.copy_to(), ": ", why));
}

void CheckDevice(const char* key, const std::string& device, Findings& f) {
  if (device.empty()) return;  // A rule reports it.
  f.AddIfBad(key, model::DeviceNamed(device).status());
}

// Where the processes of `oxbow train` will listen.
void CheckHost(const v1::RunConfig& config, Findings& f) {
  const std::string& host = config.services().host();
  if (host.empty()) return;  // A rule reports it; or another machine's.
  const absl::Status status = Listen(WithBrackets(host + ":0")).status();
  if (status.ok()) return;
  f.Error("services.host", absl::StrCat("must be an address of this machine, got ", host));
}

void CheckBuild(const v1::RunConfig& config, Findings& f) {
  CheckDevice("model.device", config.model().device(), f);
  CheckDevice("model.encoder_device", config.model().encoder_device(), f);
  f.Add(CheckGpus(config, model::GpuCount()));
  if (config.model().cuda_graphs() != v1::CUDA_GRAPHS_TRUE || model::HasCudaGraphs()) return;
  f.Error("model.cuda_graphs",
          "this build has no CUDA graphs: build it with -DOXBOW_CUDA=ON, or set it to auto");
}

using run::PromptSplit;

// Reads every prompt, so that a bad line is found before the model is loaded.
void CheckPrompts(const v1::RunConfig& config, PromptSplit split, Findings& f) {
  const bool train = split == PromptSplit::kTrain;
  const std::string& path = train ? config.prompts().train() : config.prompts().eval();
  if (path.empty()) return;  // A rule reports it.
  const char* const key = train ? "prompts.train" : "prompts.eval";
  const auto prompts = run::ReadPrompts(path, split);
  if (!prompts.ok()) {
    const bool missing = absl::IsNotFound(prompts.status()) && !io::IsDatasetId(path);
    const std::string meant = missing ? DidYouMean(path) : "";
    const std::string looked = missing && meant.empty() ? config::WhereLookedFor(path) : "";
    return f.AddIfBad(
        key, absl::Status(prompts.status().code(),
                          absl::StrCat(std::string(prompts.status().message()), meant, looked)));
  }
  if (train && prompts->size() < config.batch().groups()) {
    const auto all = run::ReadPrompts(path, split, {.keep_repeats = true});
    const size_t repeats = all.ok() ? all->size() - prompts->size() : 0;
    f.Error(key, absl::StrCat("has fewer prompts than batch.groups = ", config.batch().groups(),
                              ", got ", prompts->size(),
                              repeats == 0 ? "" : absl::StrCat(" and ", repeats, " repeats")));
  }
  if (train && prompts->size() == config.batch().groups() &&
      config.prompts().choice() == v1::PROMPT_CHOICE_LEARNABLE) {
    f.Warn("prompts.choice", absl::StrCat("learnable chooses nothing: every step takes all ",
                                          prompts->size(), " prompts (batch.groups)"));
  }
  if (const size_t own = run::CountNegativePrompts(*prompts); own > 0) {
    f.Warn(key, absl::StrCat("a run has one negative prompt for all; the negative_prompt "
                             "of a line has no effect but on rewards, got ",
                             own, " such lines"));
  }
}

// Warns of the part of a prompt that no encoder reads. A model or prompts that cannot be read are
// reported elsewhere.
void CheckLengths(const v1::RunConfig& config, PromptSplit split, Findings& f) {
  const bool train = split == PromptSplit::kTrain;
  const auto prompts =
      run::ReadPrompts(train ? config.prompts().train() : config.prompts().eval(), split);
  const auto components = io::OpenDiffusersDirectory(config.model().path());
  if (!prompts.ok() || !components.ok()) return;
  std::vector<std::string> texts;
  for (const v1::Prompt& prompt : *prompts) texts.push_back(prompt.text());
  const auto cut = io::CountCut(*components, config.prompts().t5_length(), texts);
  if (!cut.ok() || !cut->has_value()) return;
  const std::string text = io::CutText(**cut);
  if (text.empty()) return;
  // The key that mends it; the prompts themselves where none does.
  const std::string file = train ? "prompts.train" : "prompts.eval";
  if ((*cut)->settable()) {
    f.Warn("prompts.t5_length", absl::StrCat("of ", file, " ", text));
  } else {
    f.Warn(file, text);
  }
}

// Prompts that are trained on and measured as held out, by their texts.
void CheckHeldOut(const v1::PromptConfig& config, Findings& f) {
  const auto train = run::ReadPrompts(config.train(), PromptSplit::kTrain);
  const auto held_out = run::ReadPrompts(config.eval(), PromptSplit::kHeldOut);
  if (!train.ok() || !held_out.ok()) return;
  std::set<std::string> trained;
  for (const v1::Prompt& prompt : *train) trained.insert(prompt.text());
  const auto both =
      std::count_if(held_out->begin(), held_out->end(),
                    [&](const v1::Prompt& prompt) { return trained.contains(prompt.text()); });
  if (both == 0) return;
  f.Warn("prompts.eval",
         absl::StrCat(both, " of ", held_out->size(), " held-out prompts are trained on, too"));
}

// A reward that the run's own servers are to have.
void CheckReward(const char* key, const v1::ScorerConfig& scorer, Findings& f) {
  const std::vector<std::string> known = reward::ScorerNames();
  const std::string& name = reward::ScorerNameOf(scorer);
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    const std::string nearest = NearestName(name, known);
    f.Error(key,
            nearest.empty()
                ? absl::StrCat("not a reward of this build (", absl::StrJoin(known, ", "),
                               "): give reward.endpoints = [HOST:PORT] of a server that speaks "
                               "proto/oxbow/v1/reward.proto and has it (",
                               name, ")")
                : absl::StrCat("unknown reward; did you mean `", nearest, "`? (", name, ")"));
    return;
  }
  f.AddIfBad("reward.scorers", reward::CheckScorer(scorer));
}

// Makes DIRECTORY/graph.json.gz of a part of the model. kUnavailable where no Python here can;
// other errors as CheckRunWithGraphs.
absl::Status MakeGraph(const io::DiffusersComponent& part,
                       const std::vector<std::string>& environment,
                       const std::function<bool()>& stopped, std::ostream& out) {
  const std::filesystem::path graph = part.directory / kGraph, work = TemporaryOf(graph);
  std::vector<std::string> words = {"export",   part.class_name,
                                    "--config", (part.directory / "config.json").string(),
                                    "--out",    work.string()};
  OXBOW_ASSIGN_OR_RETURN(const PythonCall call,
                         FindPythonPart({.module = "export_model.__main__",
                                         .needs = {"diffusers", "torch", "transformers"},
                                         .extra = {},
                                         .folder = "tools"},
                                        words, environment));
  out << "model.path: makes the graph of this " << part.class_name << " once, with "
      << call.python.string() << ", which takes a minute or more: " << graph.string() << std::endl;
  std::error_code error;
  if (!std::filesystem::create_directory(work, error)) {
    return absl::FailedPreconditionError(
        absl::StrCat("no graph can be written: ", error.message(), ": ", graph.string()));
  }
  const int said = memfd_create("said", MFD_CLOEXEC);
  const absl::Cleanup remove = [&] {
    std::filesystem::remove_all(work, error);
    close(said);
  };
  bool asked = false;
  OXBOW_ASSIGN_OR_RETURN(
      const int code, RunProgram(call.python, call.words, call.environment,
                                 /*quiet=*/true, said, [&] { return asked = asked || stopped(); }));
  if (asked) return ErrorOf(kExitDrained, "asked to stop while it made a graph; nothing was begun");
  const auto made = ReadFile(work / kGraph);
  if (code == kExitOk && made.ok()) return WriteFileAtomically(graph, *made);
  std::string text = ReadFile(absl::StrCat("/proc/self/fd/", said)).value_or("");
  absl::StripAsciiWhitespace(&text);
  if (text.empty()) text = "it said nothing";
  words.back() = "DIR";
  return absl::FailedPreconditionError(absl::StrCat(
      "the graph of this ", part.class_name, " was not made: ", text.substr(text.rfind('\n') + 1),
      " (exit code ", code, "; the same by hand, in tools: ", call.python.string(),
      " -m export_model ", absl::StrJoin(words, " "), ")"));
}

}  // namespace

std::vector<Problem> CheckGpus(const v1::RunConfig& config, int gpus) {
  Findings f;
  if (gpus == 0 || !config.model().device().starts_with("cuda")) return {};
  const int ranks = std::max(1, static_cast<int>(config.learner().ranks()));
  const int workers = static_cast<int>(config.services().rollout_workers());
  if (ranks > gpus) {
    f.Error("learner.ranks",
            absl::StrCat("needs a GPU for each rank: lower it, or use a launcher that "
                         "spreads ranks over machines: got ",
                         ranks, ", this machine has ", gpus));
  } else if (config.publish().transport() == v1::TRANSPORT_BROADCAST && ranks + workers > gpus) {
    f.Warn(
        "publish.transport",
        absl::StrCat("broadcast needs a GPU for each learner rank and worker, since NCCL refuses "
                     "two members on one; weights will come by the relay: ",
                     ranks, " + ", workers, " processes, this machine has ", gpus, " GPUs"));
  }
  return std::move(f.problems);
}

std::vector<Problem> CheckFiles(const v1::RunConfig& config) {
  Findings f;
  CheckModel(config, f);
  CheckBuild(config, f);
  CheckHost(config, f);
  CheckCopyTarget(config.checkpoint(), f);
  CheckPrompts(config, PromptSplit::kTrain, f);
  CheckPrompts(config, PromptSplit::kHeldOut, f);
  CheckHeldOut(config.prompts(), f);
  CheckLengths(config, PromptSplit::kTrain, f);
  CheckLengths(config, PromptSplit::kHeldOut, f);
  const v1::RewardConfig& reward = config.reward();
  for (const std::string& name : run::OwnRewards(reward)) {  // Other servers know their own names.
    CheckReward(run::IsTerm(reward, name) ? "reward.terms" : "reward.observed",
                run::ScorerOf(reward, name), f);
  }
  return std::move(f.problems);
}

std::vector<Problem> CheckRun(const v1::RunConfig& config) {
  Findings f{config::Validate(config)};
  f.Add(CheckFiles(config));
  return std::move(f.problems);
}

absl::StatusOr<std::vector<Problem>> CheckRunWithGraphs(const v1::RunConfig& config,
                                                        const std::vector<std::string>& environment,
                                                        const std::function<bool()>& stopped,
                                                        std::ostream& out) {
  std::set<std::filesystem::path> made;
  while (true) {
    std::vector<Problem> problems = CheckRun(config);
    if (std::ranges::count(problems, config::Severity::kError, &Problem::severity) != 1) {
      return problems;
    }
    const auto part = io::WithoutGraph(run::ReadModelFacts(config).status());
    if (!part.has_value() || !made.insert(part->directory).second) return problems;
    const absl::Status status = MakeGraph(*part, environment, stopped, out);
    if (absl::IsUnavailable(status)) return problems;  // They have the command.
    OXBOW_RETURN_IF_ERROR(status);
  }
}

v1::RunConfig WithoutDevices(v1::RunConfig config) {
  config.mutable_model()->set_device("cpu");
  config.mutable_model()->set_encoder_device("cpu");
  config.mutable_model()->set_cuda_graphs(v1::CUDA_GRAPHS_FALSE);
  for (v1::ScorerConfig& scorer : *config.mutable_reward()->mutable_scorers()) {
    if (!scorer.device().empty()) scorer.set_device("cpu");
  }
  config.mutable_services()->clear_host();
  config.mutable_checkpoint()->clear_copy_to();
  return config;
}

std::vector<Problem> CheckRunOn(int gpus, const v1::RunConfig& config) {
  Findings f{config::Validate(config)};
  f.Add(CheckFiles(WithoutDevices(config)));
  f.Add(CheckGpus(config, gpus));
  return std::move(f.problems);
}

}  // namespace oxbow::cli
