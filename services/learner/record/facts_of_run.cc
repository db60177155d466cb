// SPDX-License-Identifier: Apache-2.0
#include "services/learner/record/facts_of_run.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "config/chosen_method.h"
#include "config/run_config.h"
#include "config/validate.h"
#include "io/evaluation_file.h"
#include "io/report/report.h"
#include "rewards/picture_guards.h"
#include "run/prompt_files.h"
#include "run/rewards.h"
#include "run/run_record.h"
#include "run/start_weights.h"
#include "services/learner/checkpoint/checkpoint_store.h"

namespace oxbow::learner {
namespace {

std::string MethodText(const v1::RunConfig& config) {
  std::string text = config::ChosenMethod(config.method()).name;
  if (config.sampling().split_steps_size() > 0) {
    absl::StrAppend(&text, ", trees that split in ", config.sampling().split_width(), " at step ",
                    absl::StrJoin(config.sampling().split_steps(), ", "));
  }
  if (config.sampling().compression().share() < 1) {
    absl::StrAppend(&text, ", fewer steps behind the window");
  }
  if (config.replay().fraction() > 0) {
    absl::StrAppend(&text, absl::StrFormat(", replay in %.3g %% of the groups",
                                           100 * config.replay().fraction()));
  }
  if (config.replay().by_need()) absl::StrAppend(&text, " as they need it");
  if (config.replay().branches() > 1) {
    absl::StrAppend(&text, ", ", config.replay().branches(), " branches of a head");
  }
  if (config.replay().late_binding()) absl::StrAppend(&text, ", stored successes for failures");
  if (config.replay().added() > 0) {
    absl::StrAppend(&text, ", ", config.replay().added(), " stored successes beside the groups");
  }
  if (config::UpdatesPerStep(config) > config.batch().updates() * config.batch().passes()) {
    absl::StrAppend(&text, ", ", config.replay().passes(), " passes over replayed samples");
  }
  if (config.replay().reincarnate_after() > 0) {
    absl::StrAppend(&text, ", none of that from step ", config.replay().reincarnate_after() + 1);
  }
  if (config.off_policy().staleness_max() > 0) {
    absl::StrAppend(&text, ", weights up to ", config.off_policy().staleness_max(),
                    config.off_policy().staleness_max() == 1 ? " step old" : " steps old");
  }
  return text;
}

std::string ModelText(const v1::ModelConfig& model) {
  if (model.trained() != v1::TRAINED_PART_LORA) return model.path();
  return absl::StrCat(model.path(), ", LoRA of rank ", model.lora().rank());
}

std::string PromptsText(const v1::PromptConfig& prompts) {
  const auto train = run::ReadPrompts(prompts.train(), run::PromptSplit::kTrain);
  return train.ok() ? absl::StrCat(prompts.train(), " (", train->size(), ")") : prompts.train();
}

// "digits_ocr", "0.5 pickscore + ocr".
std::string RewardText(const v1::RewardConfig& reward) {
  return absl::StrJoin(reward.terms(), " + ", [](std::string* out, const v1::RewardTerm& term) {
    absl::StrAppend(out, term.weight() == 1 ? "" : absl::StrFormat("%.4g ", term.weight()),
                    term.name());
  });
}

bool HasRatios(const v1::MethodConfig& method) {
  if (config::ChosenMethod(method).ratio == rl::RatioUse::kNone) return false;
  return method.name() != v1::METHOD_NAME_AWM || method.awm().ratio();
}

std::vector<std::pair<std::string, std::string>> LeftOut(const v1::RunConfig& config) {
  std::vector<std::pair<std::string, std::string>> out;
  if (config.eval().every() == 0) out.push_back({"evaluation", "eval.every is 0"});
  if (!config::KeepsSuccesses(config)) out.push_back({"replay", "replay.fraction is 0"});
  if (!HasRatios(config.method())) {
    out.push_back({"ratios and their clip", "the method's loss has none"});
  }
  if (config.method().kl_weight() == 0) out.push_back({"divergence", "method.kl_weight is 0"});
  if (config.method().anchor().weight() == 0) {
    out.push_back({"anchor", "method.anchor.weight is 0"});
  }
  if (config.off_policy().staleness_max() == 0) {
    out.push_back({"age of fresh samples", "off_policy.staleness_max is 0"});
  }
  return out;
}

// Whether a picture of the run can be right in full, as its evaluations say.
bool CanBeRight(const std::vector<io::Sheet>& sheets) {
  for (const io::Sheet& sheet : sheets) {
    for (const io::EvaluatedPicture& picture : sheet.pictures) {
      if (picture.right.has_value()) return true;
    }
  }
  return false;
}

// "step 40, eval/reward_mean 0.943"; "" if no checkpoint was evaluated.
std::string BestText(const std::optional<BestCheckpoint>& best) {
  if (!best.has_value()) return "";
  return absl::StrCat("step ", best->step, ", ", best->metric,
                      absl::StrFormat(" %.4g", best->value));
}

// `goes_on`: the command for that.
std::vector<std::string> NextCommands(const std::string& run, const std::string& goes_on, bool live,
                                      bool has_best) {
  if (live) {
    return {absl::StrCat("oxbow status --run ", run, " --watch"),
            absl::StrCat("oxbow watch ", run)};
  }
  return {absl::StrCat("oxbow sample --run ", run, " --prompt '...'"),
          absl::StrCat("oxbow eval --run ", run),
          absl::StrCat("oxbow export ", run, " --format diffusers",
                       has_best ? " --checkpoint best" : ""),
          absl::StrCat(goes_on, " --set run.steps=N")};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> HeadOf(const v1::RunConfig& config) {
  return {{"method", MethodText(config)},
          {"model", ModelText(config.model())},
          {"prompts", PromptsText(config.prompts())},
          {"reward", RewardText(config.reward())},
          {"seed", absl::StrCat(config.run().seed())}};
}

std::optional<BestCheckpoint> BestCheckpointOf(const std::filesystem::path& run_dir) {
  const auto config = config::LoadResolved(run_dir / "config.resolved.yaml");
  if (!config.ok() || config->checkpoint().best().empty()) return std::nullopt;
  const auto best = CheckpointStore(run_dir / "checkpoints", 1).Best(config->checkpoint().best());
  if (!best.has_value()) return std::nullopt;
  return BestCheckpoint{best->committed_steps, config->checkpoint().best(), best->value};
}

io::RunFacts FactsOfRun(const std::filesystem::path& run_dir, bool live,
                        const std::vector<io::Sheet>* sheets) {
  io::RunFacts facts{.name = io::RunName(run_dir), .live = live};
  if (live) facts.written = absl::ToUnixSeconds(absl::Now());
  if (const auto failure = io::LastEvaluationFailure(run_dir)) {
    facts.evaluation_failure = failure->reason;
  }
  facts.unscored_reason = io::ReadUnscoredReason(run_dir);
  const std::vector<run::StartRecord> starts = run::ReadStarts(run_dir);
  const auto config = config::LoadResolved(run_dir / "config.resolved.yaml");
  if (config.ok()) {
    facts.head = HeadOf(*config);
    if (!starts.empty() && !starts.back().recipe.empty()) {
      facts.head.insert(facts.head.begin() + 1, {"recipe", starts.back().recipe});
    }
    facts.reward_name = RewardText(config->reward());
    facts.steps_total = config->run().steps();
    facts.eval_images = config->eval().images();
    facts.replays = config::KeepsSuccesses(*config);
    facts.left_out = LeftOut(*config);
    for (const v1::RewardTerm& term : config->reward().terms()) facts.terms.push_back(term.name());
    for (const std::string& name : config->reward().observed()) {
      if (rewards::DescribesPictures(name)) facts.descriptive.push_back(name);
    }
    if (CanBeRight(sheets != nullptr ? *sheets : io::SheetsOf(run_dir))) {
      facts.full_reward = run::FullReward(config->reward());
      facts.reward_min = 0;
    }
  }
  const auto add = [&](const char* label, const std::string& text) {
    if (!text.empty()) facts.head.push_back({label, text});
  };
  add("started from", run::StartSource(run_dir));
  const std::optional<BestCheckpoint> best = BestCheckpointOf(run_dir);
  add("best checkpoint", BestText(best));
  if (!starts.empty()) {
    facts.head.push_back({"oxbow", starts.back().version});
    facts.head.push_back({"started", absl::FormatTime("%Y-%m-%d %H:%M UTC", starts.front().time,
                                                      absl::UTCTimeZone())});
    facts.head.push_back({"command", starts.back().command});
  }
  for (const run::StartRecord& start : starts) {
    for (const std::string& one : start.changed) {
      facts.changes.emplace_back(start.step, one);
      // An observed reward has a number of its own.
      if (!one.starts_with("reward.observed:")) facts.same_since = start.step;
      facts.head.push_back({absl::StrCat("from step ", start.step), one});
    }
  }
  // First, where a person looks first.
  if (const auto end = run::ReadEnd(run_dir); !live && end && end->end != run::RunEnd::kDone) {
    facts.head.insert(facts.head.begin(), {"ended", run::EndText(*end)});
  }
  facts.next_commands = NextCommands(
      run_dir.string(), run::CommandToGoOn(starts.empty() ? "" : starts.back().command, run_dir),
      live, best.has_value());
  return facts;
}

}  // namespace oxbow::learner
