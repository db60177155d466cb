// SPDX-License-Identifier: Apache-2.0
#include "config/import/flow_factory.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "config/import/flow_factory_models.h"
#include "config/import/foreign_settings.h"
#include "config/import/translation.h"

namespace oxbow::config {
namespace {

constexpr char kUnlimitedSteps[] = "10000";
// Translates the sections for prompts, model and evaluation.
class FileSections {
 public:
  FileSections(Translation& t, std::string name)
      : t_(t), name_(std::move(name)), model_(ForeignModelOf(t)) {}

  void All() {
    Taken();
    Run();
    Prompts();
    Model();
    TranslateMethod(t_);
    Evaluation();
    TranslateRewards(t_);
    Needless();
  }

 private:
  void Taken() {
    for (const ForeignKey& row : FlowFactoryKeys()) {
      if (row.use != ForeignUse::kTaken) continue;
      const ForeignSetting s = t_.Get(row.key);
      if (s.present) t_.Set(row.text, s.yaml(), s);
    }
  }

  void Run() {
    ForeignSetting run_name = t_.Get("log.run_name");
    if (!run_name.present) {
      run_name.path = "the file's name";
      run_name.given = true;
      run_name.items = {std::filesystem::path(name_).stem().string()};
    }
    t_.Set("run.name", run_name.text(), run_name);
    const ForeignSetting directory = t_.Get("log.save_dir");
    if (directory.present && absl::StartsWith(directory.text(), "~")) {
      t_.Differs(directory, "no home directory is looked up: run.directory stays as it is");
    } else if (directory.present) {
      t_.Set("run.directory", directory.text(), directory);
    }
    const ForeignSetting epochs = t_.Get("train.max_epochs");
    if (!epochs.present || epochs.number() < 0) {
      t_.Set("run.steps", kUnlimitedSteps, epochs);
      t_.Differs(epochs, absl::StrCat("a run has an end here: run.steps = ", kUnlimitedSteps,
                                      "; stop it when you like"));
    } else {
      t_.Set("run.steps", epochs.text(), epochs);
    }
    t_.Differs(t_.Get("model.model_name_or_path"),
               "model.path is a directory, or an id of the Hub that `oxbow fetch` gets");
  }

  void Prompts() {
    if (t_.settings().SizeOf("data.datasets") > 1) {
      t_.Refuse(t_.Get("data.datasets[1].dataset_dir"),
                "there is one source of prompts: join the files into one directory");
    }
    const ForeignSetting directory = t_.Get("data.datasets[0].dataset_dir");
    t_.Set("prompts.train", directory.text(), directory);
    t_.Set("prompts.eval", directory.text(), directory);
    const ForeignSetting most = t_.Get("data.datasets[0].train.max_dataset_size");
    if (most.present) t_.Differs(most, "all prompts of the file are used; cut the file for fewer");
  }

  void Model() {
    const ForeignSetting type = t_.Get("model.model_type");
    CheckForeignModel(t_);
    if (model_.prompt_tokens != nullptr) t_.Set("prompts.t5_length", model_.prompt_tokens, type);
    t_.Allow(t_.Get("model.target_components"), {"transformer"},
             "the transformer alone is trained");
    t_.Set("model.device", "cuda", type);  // It trains only on CUDA.
    const ForeignSetting resume = t_.Get("model.resume_path");
    if (resume.present)
      t_.Refuse(resume, "take it out, and set model.lora.path to its adapter in the run file");
    const ForeignSetting kind = t_.Get("model.finetune_type");
    if (!t_.Choose("model.trained", kind, {{"lora", "lora"}, {"full", "full"}})) return;
    absl::EqualsIgnoreCase(kind.text(), "lora") ? Lora() : Full();
    const ForeignSetting precision = t_.Get("mixed_precision");
    const bool known = t_.Choose("model.compute_dtype", precision,
                                 {{"no", "f32"}, {"bf16", "bf16"}, {"fp16", "bf16"}});
    if (known && precision.text() == "fp16") t_.Differs(precision, "bf16 stands in for it");
  }

  void Lora() {
    const ForeignSetting rank = t_.Get("model.lora_rank");
    const ForeignSetting alpha = t_.Get("model.lora_alpha");
    t_.Set("model.lora.rank", rank.text(), rank);
    alpha.present ? t_.Set("model.lora.alpha", alpha.text(), alpha)
                  : t_.Set("model.lora.alpha", 2 * rank.number(), rank);
    const ForeignSetting targets = t_.Get("model.target_modules");
    if (targets.yaml() == "all") {
      t_.Refuse(targets, "name the modules, or take `default`");
    } else if (targets.yaml() == "default") {
      if (model_.targets != nullptr) t_.Set("model.lora.targets", model_.targets, targets);
    } else {
      t_.Set("model.lora.targets", absl::StrCat("[", absl::StrJoin(targets.items, ", "), "]"),
             targets);
    }
  }

  void Full() {
    const ForeignSetting targets = t_.Get("model.target_modules");
    if (targets.yaml() != "all") t_.Differs(targets, "the whole transformer is trained");
    const ForeignSetting master = t_.Get("model.master_weight_dtype");
    if (master.text() != "fp32" && master.text() != "float32") {
      t_.Differs(master, "trained weights are float32");
    }
  }

  // The value of a data set, or else of the evaluation section.
  ForeignSetting OfEvaluation(const std::string& key) const {
    ForeignSetting own = t_.Get(absl::StrCat("data.datasets[0].eval.", key));
    return own.present ? own : t_.Get(absl::StrCat("eval.", key));
  }

  void Evaluation() {
    const ForeignSetting every = t_.Get("eval.eval_freq");
    t_.Set("eval.every", every.text(), every);
    const ForeignSetting steps = OfEvaluation("num_inference_steps");
    t_.Set("eval.steps", steps.text(), steps);
    const ForeignSetting guidance = OfEvaluation("guidance_scale");
    const double least = model_.guidance_min;
    if (guidance.present && std::max(least, guidance.number()) !=
                                std::max(least, t_.Get("train.guidance_scale").number())) {
      t_.Differs(guidance,
                 absl::StrCat("held-out images have the guidance of ", model_.guidance_key));
    }
    const ForeignSetting frames = t_.Get("eval.num_frames");
    if (frames.present && frames.text() != t_.Get("train.num_frames").text()) {
      t_.Differs(frames, "held-out videos are as long as those that are trained on");
    }
    for (const char* key : {"resolution", "height", "width"}) {
      const ForeignSetting s = OfEvaluation(key);
      const std::vector<std::string> size = FlowFactorySize(t_, "train");
      const bool same =
          !s.present || (key[0] == 'h'   ? s.items[0] == size[0]
                         : key[0] == 'w' ? s.items[0] == size[1]
                                         : s.items[0] == size[0] && s.items.back() == size[1]);
      if (!same) t_.Differs(s, "held-out images are as large as those that are trained on");
    }
    if (every.count() > 0) {
      t_.Differs(every,
                 absl::StrCat("eval.images = ", t_.config().eval().images(),
                              " held-out images; set it to their test file's prompts for all"));
    }
  }

  void Needless() {
    for (const ForeignSetting& s : t_.settings().given()) {
      if (absl::StrContains(s.path, ".weight.")) {
        t_.Refuse(s, "a reward has one weight for all prompts");
      }
      if (s.row->use != ForeignUse::kNeedless) continue;
      t_.NotNeeded(s, s.row->text);
    }
  }

  Translation& t_;
  const std::string name_;
  const ForeignModel& model_;
};

void AppendComments(const std::string& title, const std::vector<std::string>& lines,
                    std::string* out) {
  if (lines.empty()) return;
  absl::StrAppend(out, "\n# ", title, "\n");
  for (const std::string& line : lines) {
    absl::StrAppend(out, "#   ", absl::StrReplaceAll(line, {{"\n", " "}, {"\r", " "}}), "\n");
  }
}

}  // namespace

absl::StatusOr<ImportedRun> ImportFlowFactory(const std::string& text, const std::string& name) {
  ImportedRun run;
  OXBOW_ASSIGN_OR_RETURN(run.resolved, LoadRunConfig({}, {}, {}));
  OXBOW_ASSIGN_OR_RETURN(
      const ForeignSettings settings,
      ForeignSettings::Read(text, {.name = name, .has_lines = true}, run.problems, run.unknown));
  if (!run.problems.empty()) return run;
  Translation translation(settings, run);
  FileSections(translation, name).All();
  translation.Check(name);
  return run;
}

std::string ImportedYaml(const ImportedRun& run, const std::string& name) {
  std::string out =
      absl::StrCat("# From Flow-Factory's ", name, " by `oxbow import-config flow-factory`.\n",
                   "# A comment after a value says which of its keys it comes from.\n",
                   ChosenYaml(run.resolved));
  AppendComments("Different here:", run.differences, &out);
  AppendComments("Not needed here:", run.needless, &out);
  AppendComments("Unknown, and left out:", run.unknown, &out);
  return out;
}

}  // namespace oxbow::config
