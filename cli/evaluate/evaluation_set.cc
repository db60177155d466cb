// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate/evaluation_set.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <atomic>
#include <thread>

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
#include "services/reward/reward_client.h"
#include "services/reward/scorer_table.h"

namespace oxbow::cli {

namespace {

constexpr size_t kCallsAtOnce = 8;  // Each is one prompt's pictures.

using Scored = std::vector<absl::StatusOr<reward::Score>>;

bool IsNameAlone(const v1::ScorerConfig& entry) {
  std::vector<const google::protobuf::FieldDescriptor*> set;
  entry.GetReflection()->ListFields(entry, &set);
  return set.size() == 1 && !entry.name().empty();
}

// Asks servers for one reward. They choose the frames of videos and the sizes of batches.
class ServedReward final : public reward::Scorer {
 public:
  ServedReward(reward::RewardFacts facts, std::unique_ptr<reward::RewardClient> client)
      : facts_(std::move(facts)), client_(std::move(client)) {
    facts_.batch_max = 0;
    facts_.frames_every = 1;
  }
  const reward::RewardFacts& facts() const override { return facts_; }
  int concurrency_max() const override { return 1; }
  Scored ScoreBatch(absl::Span<const reward::Item> items) override;

 private:
  void ScoreGroup(absl::Span<const reward::Item> group, Scored::iterator scores);

  reward::RewardFacts facts_;
  const std::unique_ptr<reward::RewardClient> client_;
};

void ServedReward::ScoreGroup(absl::Span<const reward::Item> group, Scored::iterator scores) {
  std::vector<reward::Frames> media;
  for (const reward::Item& item : group) media.push_back(item.frames);
  const auto answers = client_->ScoreMedia(std::string(group.front().prompt),
                                           std::string(group.front().metadata_json), media);
  for (const absl::StatusOr<reward::Scores>& answer : answers) {
    *scores++ = answer.ok()
                    ? absl::StatusOr<reward::Score>(reward::Score{.value = answer->at(facts_.name)})
                    : answer.status();
  }
}

// Items of one group follow each other, and make one call.
Scored ServedReward::ScoreBatch(absl::Span<const reward::Item> items) {
  std::vector<absl::Span<const reward::Item>> groups;
  for (size_t first = 0; first < items.size();) {
    size_t last = first + 1;
    while (last < items.size() && items[last].group == items[first].group) ++last;
    groups.push_back(items.subspan(first, last - first));
    first = last;
  }
  Scored scores(items.size(), absl::UnknownError("not scored"));
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < groups.size(); i = next++) {
      ScoreGroup(groups[i], scores.begin() + (groups[i].data() - items.data()));
    }
  };
  std::vector<std::jthread> others;
  for (size_t i = 1; i < std::min(groups.size(), kCallsAtOnce); ++i) others.emplace_back(work);
  work();
  others.clear();  // Joins them.
  return scores;
}

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

RewardServers::RewardServers(const v1::RewardConfig& run)
    : endpoints_(run.endpoints().begin(), run.endpoints().end()),
      of_run_(true),
      timeout_(absl::Seconds(run.timeout_seconds())),
      transport_(run.transport()) {
  for (const std::string& name : run::RewardNames(run)) names_.insert(name);
  for (const std::string& name : run::OwnRewards(run)) names_.erase(name);
}

bool RewardServers::Have(const v1::ScorerConfig& entry) const {
  if (endpoints_.empty() || !IsNameAlone(entry)) return false;
  if (!of_run_ || names_.contains(entry.name())) return true;
  const std::vector<std::string> here = reward::PlainScorerNames();
  return std::find(here.begin(), here.end(), entry.name()) == here.end();
}

absl::StatusOr<std::unique_ptr<reward::Scorer>> RewardServers::Open(const std::string& name) const {
  OXBOW_ASSIGN_OR_RETURN(
      std::unique_ptr<reward::RewardClient> client,
      reward::RewardClient::Create({.endpoints = endpoints_,
                                    .elsewhere = {endpoints_.begin(), endpoints_.end()},
                                    .rewards = {name},
                                    .timeout = timeout_,
                                    .transport = transport_}));
  reward::RewardFacts facts = client->Facts().at(name);
  return std::make_unique<ServedReward>(std::move(facts), std::move(client));
}

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
