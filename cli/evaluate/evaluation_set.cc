// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate/evaluation_set.h"

#include <yaml-cpp/yaml.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/json.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"
#include "config/run_config.h"
#include "config/yaml_message.h"
#include "run/prompt.h"
#include "run/prompt_files.h"
#include "run/rewards.h"
#include "services/reward/scorer_table.h"

namespace oxbow::cli {
namespace {

constexpr uint64_t kJsonBytesMax = 64 << 20;
constexpr uint32_t kPicturesMax = 1000;

// A group is part of a path.
bool IsName(const std::string& text) {
  return text.find('/') == std::string::npos && !text.starts_with('.');
}

absl::Status CheckSet(const v1::EvaluationSet& set) {
  std::set<std::string> names;
  for (const v1::ScorerConfig& reward : set.rewards()) {
    if (reward.name().empty()) return absl::InvalidArgumentError("rewards: one has no name");
    if (!names.insert(reward.name()).second) {
      return absl::InvalidArgumentError(absl::StrCat("rewards: name repeats: ", reward.name()));
    }
  }
  for (const v1::PromptFile& file : set.files()) {
    if (file.file().empty() || !IsName(file.group())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "files: each has a file and a group that can be a folder: \"", file.group(), "\""));
    }
  }
  if (set.per_prompt() * static_cast<uint64_t>(set.seeds().size()) > kPicturesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("per_prompt: with the seeds more than ", kPicturesMax, " pictures"));
  }
  if (!(set.scale() > 0)) return absl::InvalidArgumentError("scale: must be positive");
  return absl::OkStatus();
}

absl::StatusOr<std::string> DefinitionOf(const std::string& name_or_path) {
  if (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".yaml")) {
    return ReadFile(name_or_path);
  }
  std::vector<std::string> names;
  for (const auto& [name, text] : config::EvaluationSets()) {
    if (name == name_or_path) return text;
    names.push_back(name);
  }
  if (const size_t equals = name_or_path.find('='); equals != name_or_path.npos) {
    const std::string key = name_or_path.substr(0, equals), value = name_or_path.substr(equals + 1);
    const bool flag = key == "eval.images" || key == "eval.steps" || key == "eval.solver";
    return absl::InvalidArgumentError(absl::StrCat(
        "--set takes the name of a set of prompts, and ", key, " is a key of a run: use ",
        flag ? absl::StrCat("--", key.substr(5), " ", value) : "the flags of oxbow eval --help"));
  }
  const std::string nearest = NearestName(name_or_path, names);
  return absl::InvalidArgumentError(absl::StrCat(
      "no set of that name; ",
      nearest.empty() ? "" : absl::StrCat("did you mean `", nearest, "`? "),
      "known: ", absl::StrJoin(names, ", "), "; or the path of a .yaml file: ", name_or_path));
}

absl::StatusOr<std::vector<v1::Prompt>> ReadJsonList(const std::filesystem::path& path) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kJsonBytesMax));
  const auto list = ParseJson(text);
  if (!list.is_array() || list.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": not a JSON list of prompts"));
  }
  std::vector<v1::Prompt> prompts;
  for (const auto& element : list) {
    if (!element.is_string() || element.get_ref<const std::string&>().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path.string(), ": prompt ", prompts.size(), " of the list is no text"));
    }
    prompts.push_back(run::MakePrompt(element, ""));
  }
  return prompts;
}

absl::StatusOr<std::vector<v1::Prompt>> ReadFileOfPrompts(const std::filesystem::path& path) {
  if (path.extension() == ".json") return ReadJsonList(path);
  return run::ReadPrompts(path, run::PromptSplit::kHeldOut, {.keep_repeats = true});
}

absl::StatusOr<std::string> GroupOf(const v1::Prompt& prompt, const std::string& key) {
  const auto object = ParseJson(prompt.metadata_json());
  const auto value = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || value == object.end() || !value->is_string() ||
      value->get_ref<const std::string&>().empty() || !IsName(value->get<std::string>())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "group_by: no text under \"", key, "\" of the metadata of prompt: ", prompt.text()));
  }
  return value->get<std::string>();
}

}  // namespace

absl::StatusOr<v1::EvaluationSet> ReadEvaluationSet(const std::string& name_or_path) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, DefinitionOf(name_or_path));
  const config::YamlSource source{.name = name_or_path, .has_lines = true};
  OXBOW_ASSIGN_OR_RETURN(const YAML::Node node, config::ParseYaml(text, source));
  if (!node.IsMap()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name_or_path, ": expected keys such as `rewards:` at the top level"));
  }
  v1::EvaluationSet set;
  set.set_per_prompt(1);
  set.set_scale(1);
  set.set_report(v1::SET_REPORT_PROMPTS);
  set.set_layout(v1::PICTURE_LAYOUT_GENEVAL);
  config::Provenance provenance;
  OXBOW_RETURN_IF_ERROR(config::MergeYaml(node, source, "", &set, &provenance));
  if (set.seeds().empty()) set.add_seeds(0);
  if (set.per_prompt() == 0) set.set_per_prompt(1);
  if (set.name().empty()) set.set_name(std::filesystem::path(name_or_path).stem().string());
  const absl::Status status = CheckSet(set);
  if (!status.ok()) return Annotate(status, name_or_path);
  return set;
}

absl::Status SetRewardKey(const std::string& assignment, v1::EvaluationSet& set) {
  const size_t equals = std::min(assignment.find('='), assignment.size());
  const size_t dot = assignment.rfind('.', equals);
  if (equals == assignment.size() || dot == std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("--key takes REWARD.KEY=VALUE, such as pickscore.model=DIR: ", assignment));
  }
  for (v1::ScorerConfig& reward : *set.mutable_rewards()) {
    if (reward.name() != assignment.substr(0, dot)) continue;
    return config::SetByText(assignment.substr(dot + 1, equals - dot - 1),
                             assignment.substr(equals + 1), {.name = "--key"}, &reward, nullptr);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--key: the set has no reward ", assignment.substr(0, dot)));
}

absl::Status CheckRewards(const v1::EvaluationSet& set, const RewardServers& servers) {
  if (set.rewards().empty()) {
    return absl::InvalidArgumentError(absl::StrCat("set ", set.name(), " has no rewards"));
  }
  for (const v1::ScorerConfig& reward : set.rewards()) {
    if (servers.Have(reward)) continue;
    const absl::Status status = reward::CheckScorer(reward);
    if (status.ok()) continue;
    const std::string key = reward::MissingKey(reward);
    return Annotate(status, key.empty() ? absl::StrCat("set ", set.name())
                                        : absl::StrCat("set ", set.name(), ": --key ",
                                                       reward.name(), ".", key, "=VALUE"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SetPrompt>> ReadSetPrompts(const v1::EvaluationSet& set) {
  if (set.prompts().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "set ", set.name(), " names no prompts: give the path of ",
        set.files().empty() ? "their file" : "the directory of their files", " with --prompts"));
  }
  std::vector<v1::PromptFile> files(set.files().begin(), set.files().end());
  if (files.empty()) files.emplace_back();
  std::vector<SetPrompt> all;
  for (const v1::PromptFile& file : files) {
    const std::filesystem::path root = set.prompts();
    OXBOW_ASSIGN_OR_RETURN(const std::vector<v1::Prompt> prompts,
                           ReadFileOfPrompts(file.file().empty() ? root : root / file.file()));
    for (size_t i = 0; i < prompts.size(); ++i) {
      SetPrompt prompt{prompts[i], file.group(), all.size(), i};
      if (!set.group_by().empty()) {
        OXBOW_ASSIGN_OR_RETURN(prompt.group, GroupOf(prompts[i], set.group_by()));
      }
      all.push_back(std::move(prompt));
    }
  }
  return all;
}

size_t PicturesPerPrompt(const v1::EvaluationSet& set) {
  return static_cast<size_t>(set.per_prompt()) * static_cast<size_t>(set.seeds().size());
}

v1::EvaluationSet SetOfRun(const v1::RunConfig& config) {
  v1::EvaluationSet set;
  set.set_name(config.run().name());
  set.set_about("the run's held-out prompts and its own rewards");
  set.set_prompts(config.prompts().eval());
  set.set_per_prompt(1);
  set.add_seeds(config.run().seed());
  set.set_scale(1);
  set.set_report(v1::SET_REPORT_PROMPTS);
  set.set_layout(v1::PICTURE_LAYOUT_GENEVAL);
  for (const std::string& name : run::RewardNames(config.reward())) {
    *set.add_rewards() = run::ScorerOf(config.reward(), name);
  }
  return set;
}

}  // namespace oxbow::cli
