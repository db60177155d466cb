// SPDX-License-Identifier: Apache-2.0
#include "config/run_config.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/file.h"
#include "base/first_part.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"
#include "config/device_plan.h"
#include "config/file_paths.h"
#include "config/memory_parts.h"

namespace oxbow::config {

namespace {

namespace pb = google::protobuf;
using pb::FieldDescriptor;

constexpr size_t kCommentColumn = 44;

std::string YamlDoubleText(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  OXBOW_CHECK(error == std::errc()) << "a double needs more than 32 characters";
  return std::string(text, end);
}

bool ReadsAsPlainText(const std::string& text) {
  if (text.empty() || !absl::ascii_isalpha(static_cast<unsigned char>(text[0]))) return false;
  if (!std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return absl::ascii_isalnum(c) || c == '_' || c == '/' || c == '.' || c == '-';
      })) {
    return false;
  }
  for (const char* reserved : {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}) {
    if (absl::AsciiStrToLower(text) == reserved) return false;
  }
  return true;
}

std::string StringText(const std::string& text) {
  if (ReadsAsPlainText(text)) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned>(c));
      quoted += escaped;
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string FlowMap(const pb::Message& message);

std::string YamlValueText(const FieldValue& value, bool takes_auto) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const double* number = std::get_if<double>(&value)) return YamlDoubleText(*number);
  if (const uint64_t* number = std::get_if<uint64_t>(&value)) {
    return takes_auto && *number == kAuto ? kAutoText : absl::StrCat(*number);
  }
  if (const std::string* text = std::get_if<std::string>(&value)) return StringText(*text);
  if (const auto* choice = std::get_if<const pb::EnumValueDescriptor*>(&value)) {
    return EnumText(**choice);
  }
  return FlowMap(*std::get<const pb::Message*>(value));
}

std::string FlowMap(const pb::Message& message) {
  std::vector<std::string> pairs;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    // Keys of an element have no other default than empty.
    if (!field.is_repeated() && !message.GetReflection()->HasField(message, &field)) continue;
    pairs.push_back(absl::StrCat(field.name(), ": ", FieldText(message, field)));
  }
  return absl::StrCat("{", absl::StrJoin(pairs, ", "), "}");
}

// `all`: write values that are defaults, too.
void AppendYamlSection(const pb::Message& message, const Provenance& provenance,
                       const std::string& prefix, const std::string& indent, bool all,
                       std::string* out) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const std::string key = absl::StrCat(prefix, field.name());
    if (IsSection(field)) {
      std::string section;
      AppendYamlSection(message.GetReflection()->GetMessage(message, &field), provenance,
                        absl::StrCat(key, "."), absl::StrCat(indent, "  "), all, &section);
      if (!section.empty()) absl::StrAppend(out, indent, field.name(), ":\n", section);
      continue;
    }
    std::string line = absl::StrCat(indent, field.name(), ": ", FieldText(message, field));
    const auto source = provenance.find(key);
    const bool chosen = source != provenance.end() && source->second != kDefaultSource;
    if (!chosen && !all) continue;
    if (source != provenance.end()) {
      line.resize(std::max(line.size() + 2, kCommentColumn), ' ');
      absl::StrAppend(&line, "# ", source->second);
    }
    absl::StrAppend(out, line, "\n");
  }
}

constexpr uint64_t kFileBytesMax = 1 << 20;
constexpr char kEnvironmentPrefix[] = "OXBOW__";
constexpr char kRecipeKey[] = "recipe";

// "a.b=c" or "NAME=VALUE", split at the first '='.
std::optional<std::pair<std::string, std::string>> SplitAssignment(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

struct Assignment {
  std::string key;
  std::string text;
  YamlSource source;
};

absl::StatusOr<std::vector<Assignment>> ParseOverrides(const std::vector<std::string>& overrides) {
  std::vector<Assignment> assignments;
  for (const std::string& text : overrides) {
    const auto split = SplitAssignment(text);
    if (!split) {
      return absl::InvalidArgumentError(
          absl::StrCat("--set: expected KEY=VALUE, for example run.steps=100, got \"", text, "\""));
    }
    assignments.push_back({split->first, split->second, {.name = "--set"}});
  }
  return assignments;
}

// "OXBOW__RUN__STEPS" for "OXBOW_RUN_STEPS"; "" for a name that means no key.
std::string MeantVariable(const std::string& name) {
  if (!absl::StartsWith(name, "OXBOW_")) return "";
  const std::string meant = absl::AsciiStrToLower(name.substr(sizeof "OXBOW_" - 1));
  for (const std::string& key : LeafKeys(*v1::RunConfig::descriptor())) {
    if (absl::StrReplaceAll(key, {{".", "_"}}) != meant) continue;
    return absl::StrCat(kEnvironmentPrefix,
                        absl::AsciiStrToUpper(absl::StrReplaceAll(key, {{".", "__"}})));
  }
  return "";
}

absl::StatusOr<std::vector<Assignment>> ParseEnvironment(
    const std::vector<std::string>& environment) {
  std::vector<Assignment> assignments;
  for (const std::string& line : environment) {
    const auto split = SplitAssignment(line);
    if (!split) continue;
    if (!absl::StartsWith(split->first, kEnvironmentPrefix)) {
      const std::string meant = MeantVariable(split->first);
      if (meant.empty()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("environment ", split->first,
                       ": parts are joined by two underscores; did you mean ", meant, "?"));
    }
    const std::string name = split->first.substr(sizeof kEnvironmentPrefix - 1);
    assignments.push_back({absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"__", "."}}),
                           split->second,
                           {.name = absl::StrCat("environment ", split->first)}});
  }
  return assignments;
}

// Parses a document whose root must be a map (or empty).
absl::StatusOr<YAML::Node> ParseRoot(const std::string& text, const YamlSource& source) {
  OXBOW_ASSIGN_OR_RETURN(YAML::Node root, ParseYaml(text, source));
  if (root.IsNull()) return YAML::Node(YAML::NodeType::Map);
  if (!root.IsMap()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.Place(root), ": expected sections such as `run:` at the top level"));
  }
  return root;
}

absl::Status MergeDefaults(ResolvedConfig* resolved) {
  const YamlSource source{.name = kDefaultSource};
  OXBOW_ASSIGN_OR_RETURN(const YAML::Node root, ParseRoot(std::string(DefaultsYaml()), source));
  return MergeYaml(root, source, "", &resolved->config, &resolved->provenance);
}

// A recipe that a file or a flag names; an empty name: none.
struct RecipeChoice {
  std::string name;
  std::string place;                // Where the name stands, for errors.
  std::filesystem::path directory;  // That of the file that names it.
};

// Removes the `recipe` key from a file's root.
absl::StatusOr<RecipeChoice> TakeRecipe(YAML::Node& root, const YamlSource& source,
                                        const std::filesystem::path& directory) {
  RecipeChoice choice{.directory = directory};
  for (const auto& pair : root) {
    if (!pair.first.IsScalar() || pair.first.Scalar() != kRecipeKey) continue;
    choice.place = source.Place(pair.first);
    if (!choice.name.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(choice.place, ": recipe: the key is given twice; keep one"));
    }
    if (!pair.second.IsScalar() || pair.second.Scalar().empty()) {
      return absl::InvalidArgumentError(absl::StrCat(choice.place, ": recipe: expected a name"));
    }
    choice.name = pair.second.Scalar();
  }
  if (!choice.name.empty()) root.remove(kRecipeKey);
  return choice;
}

// A recipe's text, and where it is from.
struct Recipe {
  std::string text;
  YamlSource source;
  std::filesystem::path directory;  // That of its file; empty: it is built in.
};

// A name with a slash or ".yaml" is the path of a file, from the directory of the file that names
// it; any other is a built-in recipe.
absl::StatusOr<Recipe> ReadRecipe(const RecipeChoice& choice) {
  std::vector<std::string> names;
  for (const auto& [known, text] : Recipes()) {
    if (known == choice.name) {
      return Recipe{text, {.name = absl::StrCat("recipe ", choice.name)}, {}};
    }
    names.push_back(known);
  }
  if (choice.name.find('/') != std::string::npos || choice.name.ends_with(".yaml")) {
    const std::filesystem::path path = (choice.directory / choice.name).lexically_normal();
    auto text = ReadFile(path, kFileBytesMax);
    if (!text.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          choice.place, ": recipe: ", std::string(text.status().message()), DidYouMean(path)));
    }
    return Recipe{*std::move(text), {.name = path.string(), .has_lines = true}, path.parent_path()};
  }
  const std::string nearest = NearestName(choice.name, names);
  if (std::vector<std::string> longer = names; nearest.empty()) {
    std::erase_if(longer, [&](const auto& name) { return !name.starts_with(choice.name); });
    if (!longer.empty()) names = std::move(longer);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      choice.place, ": recipe: no recipe of that name; ",
      nearest.empty()
          ? absl::StrCat("known: ", absl::StrJoin(names, ", "), "; or the path of a .yaml file")
          : absl::StrCat("did you mean `", nearest, "`?"),
      " (", FirstPart(choice.name, 200), ")"));
}

// Merges a recipe over the one that it builds on. `above`: the recipes that build on this one.
absl::Status MergeRecipe(const RecipeChoice& choice, std::vector<std::string> above,
                         ResolvedConfig* resolved) {
  OXBOW_ASSIGN_OR_RETURN(const Recipe recipe, ReadRecipe(choice));
  const bool cycle = std::find(above.begin(), above.end(), recipe.source.name) != above.end();
  above.push_back(recipe.source.name);
  if (cycle) {
    return absl::InvalidArgumentError(
        absl::StrCat(choice.place, ": recipe: a cycle: ", absl::StrJoin(above, " builds on ")));
  }
  OXBOW_ASSIGN_OR_RETURN(YAML::Node root, ParseRoot(recipe.text, recipe.source));
  OXBOW_ASSIGN_OR_RETURN(const RecipeChoice base,
                         TakeRecipe(root, recipe.source, recipe.directory));
  if (!base.name.empty()) OXBOW_RETURN_IF_ERROR(MergeRecipe(base, std::move(above), resolved));
  return MergeYaml(root, recipe.source, "", &resolved->config, &resolved->provenance);
}

// `recipe` can be assigned like any key, although it is not a key of the config itself.
void OverrideRecipe(std::vector<Assignment>& assignments, RecipeChoice& choice) {
  std::vector<Assignment> rest;
  for (Assignment& assignment : assignments) {
    if (assignment.key == kRecipeKey) {
      choice = {assignment.text, assignment.source.name, {}};
    } else {
      rest.push_back(std::move(assignment));
    }
  }
  assignments = std::move(rest);
}

void Apply(const std::vector<Assignment>& assignments, ResolvedConfig* resolved,
           AllErrors& errors) {
  for (const Assignment& assignment : assignments) {
    errors.Add(SetByText(assignment.key, assignment.text, assignment.source, &resolved->config,
                         &resolved->provenance));
  }
}

// A run that replaces the rewards of its recipe has no use for the entries of those. `before`: the
// provenance of the recipe's keys.
void LeaveOutReplaced(const Provenance& before, ResolvedConfig* resolved) {
  const auto chosen = [&](const char* key) {
    return before.at(key) != resolved->provenance.at(key);
  };
  if (chosen("reward.scorers") || !(chosen("reward.terms") || chosen("reward.observed"))) return;
  v1::RewardConfig& reward = *resolved->config.mutable_reward();
  std::set<std::string> names(reward.observed().begin(), reward.observed().end());
  for (const v1::RewardTerm& term : reward.terms()) names.insert(term.name());
  auto& scorers = *reward.mutable_scorers();
  scorers.erase(std::remove_if(scorers.begin(), scorers.end(),
                               [&](const auto& scorer) { return !names.contains(scorer.name()); }),
                scorers.end());
}

// Files that the config in `path` names and that are not in the working directory.
void FindFilesOf(const std::filesystem::path& path, v1::RunConfig& config) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  if (path.empty() || error) return;
  FindFilesFrom(whole.parent_path(), config);
}

// The sources that such a text says.
Provenance SourcesIn(const std::string& resolved_yaml) {
  Provenance sources;
  std::vector<std::string> open;  // The sections around a line.
  for (const absl::string_view line : absl::StrSplit(resolved_yaml, '\n')) {
    const size_t begin = line.find_first_not_of(' ');
    const size_t colon = line.find(':');
    if (begin == line.npos || colon == line.npos || line[begin] == '#') continue;
    open.resize(std::min(open.size(), begin / 2));
    open.emplace_back(line.substr(begin, colon - begin));
    const size_t source = line.rfind("  # ");
    if (source != line.npos && source > colon) {
      sources[absl::StrJoin(open, ".")] = std::string(line.substr(source + 4));
    }
  }
  return sources;
}

}  // namespace

absl::StatusOr<ResolvedConfig> LoadRunConfig(const std::filesystem::path& path,
                                             const std::vector<std::string>& overrides,
                                             const std::vector<std::string>& environment,
                                             int gpus) {
  OXBOW_ASSIGN_OR_RETURN(std::vector<Assignment> from_flags, ParseOverrides(overrides));
  OXBOW_ASSIGN_OR_RETURN(std::vector<Assignment> from_environment, ParseEnvironment(environment));

  const YamlSource source{.name = path.string(), .has_lines = true};
  YAML::Node root(YAML::NodeType::Map);
  RecipeChoice recipe;
  if (!path.empty()) {
    const absl::StatusOr<std::string> text = ReadFile(path, kFileBytesMax);
    if (absl::IsNotFound(text.status())) {
      return absl::NotFoundError(
          absl::StrCat(std::string(text.status().message()), DidYouMean(path)));
    }
    OXBOW_RETURN_IF_ERROR(text.status());
    OXBOW_ASSIGN_OR_RETURN(root, ParseRoot(*text, source));
    if (path.filename() == kResolvedConfig || path.filename() == kFormerConfig) {
      TranslateMemory(root);
    }
    OXBOW_ASSIGN_OR_RETURN(recipe, TakeRecipe(root, source, path.parent_path()));
  }
  OverrideRecipe(from_environment, recipe);
  OverrideRecipe(from_flags, recipe);

  ResolvedConfig resolved;
  OXBOW_RETURN_IF_ERROR(MergeDefaults(&resolved));
  if (!recipe.name.empty()) OXBOW_RETURN_IF_ERROR(MergeRecipe(recipe, {}, &resolved));
  const Provenance of_recipe = resolved.provenance;
  OXBOW_RETURN_IF_ERROR(MergeYaml(root, source, "", &resolved.config, &resolved.provenance));
  AllErrors errors;
  Apply(from_environment, &resolved, errors);
  Apply(from_flags, &resolved, errors);
  OXBOW_RETURN_IF_ERROR(errors.status());
  LeaveOutReplaced(of_recipe, &resolved);
  FindFilesOf(path, resolved.config);
  FindFetchedModels(environment, resolved.config);
  resolved.counted_ranks = resolved.config.learner().ranks() == kAuto;
  resolved.counted_workers = resolved.config.services().rollout_workers() == kAuto;
  resolved.chosen_memory = resolved.config.model().memory() == kMemoryAuto;
  if (gpus != kLeaveAuto) CountProcesses(gpus, GpuSharing::kTogether, resolved.config);
  return resolved;
}

absl::StatusOr<ResolvedConfig> LoadRunAgain(const std::filesystem::path& run_dir,
                                            const std::vector<std::string>& overrides,
                                            const std::vector<std::string>& environment) {
  const std::filesystem::path file = run_dir / kResolvedConfig;
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kFileBytesMax));
  std::error_code error;
  std::filesystem::path place = run_dir.lexically_normal();
  if (!place.has_filename()) place = place.parent_path();  // "runs/digits/"
  if (place.filename() == "." || place.filename() == ".." || place.empty()) {
    place = std::filesystem::canonical(run_dir, error);
  }
  const std::string directory = place.has_parent_path() ? place.parent_path().string() : ".";
  std::vector<std::string> set = {absl::StrCat("run.name=", place.filename().string()),
                                  absl::StrCat("run.directory=", directory)};
  set.insert(set.end(), overrides.begin(), overrides.end());
  OXBOW_ASSIGN_OR_RETURN(ResolvedConfig resolved, LoadRunConfig(file, set, environment));
  const std::string here = file.string() + ":";
  const Provenance sources = SourcesIn(text);
  for (auto& [key, source] : resolved.provenance) {
    const auto said = sources.find(key);
    if (absl::StartsWith(source, here) && said != sources.end()) source = said->second;
  }
  return resolved;
}

std::string RecipesOf(const Provenance& provenance) {
  std::set<std::string> recipes;
  for (const auto& [key, source] : provenance) {
    if (absl::StartsWith(source, "recipe ")) recipes.insert(source.substr(7));
  }
  return absl::StrJoin(recipes, ", ");
}

std::vector<std::string> ProcessEnvironment() {
  std::vector<std::string> lines;
  for (char** line = environ; line != nullptr && *line != nullptr; ++line)
    lines.emplace_back(*line);
  return lines;
}

absl::StatusOr<v1::RunConfig> LoadResolved(const std::filesystem::path& path) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kFileBytesMax));
  ResolvedConfig resolved;
  OXBOW_RETURN_IF_ERROR(MergeDefaults(&resolved));
  const YamlSource source{.name = path.string(), .has_lines = true};
  OXBOW_ASSIGN_OR_RETURN(YAML::Node root, ParseRoot(text, source));
  TranslateMemory(root);
  OXBOW_RETURN_IF_ERROR(MergeYaml(root, source, "", &resolved.config, &resolved.provenance));
  FindFilesOf(path, resolved.config);
  CountProcesses(/*gpus=*/0, GpuSharing::kTogether, resolved.config);
  return std::move(resolved.config);
}

std::string FieldText(const pb::Message& message, const FieldDescriptor& field) {
  if (!field.is_repeated()) return YamlValueText(ValueAt(message, field), TakesAuto(field));
  std::vector<std::string> elements;
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    elements.push_back(YamlValueText(ValueAt(message, field, i), TakesAuto(field)));
  }
  return absl::StrCat("[", absl::StrJoin(elements, ", "), "]");
}

std::string ResolvedYaml(const ResolvedConfig& resolved) {
  std::string out;
  AppendYamlSection(resolved.config, resolved.provenance, "", "", /*all=*/true, &out);
  return out;
}

std::string ChosenYaml(const ResolvedConfig& resolved) {
  std::string out;
  AppendYamlSection(resolved.config, resolved.provenance, "", "", /*all=*/false, &out);
  return out;
}

absl::Status WriteResolved(const ResolvedConfig& resolved, const std::filesystem::path& path) {
  return WriteFileAtomically(path, absl::StrCat("# Every setting of this run and where it came "
                                                "from. Read by the services and by --resume.\n",
                                                ResolvedYaml(resolved)));
}

}  // namespace oxbow::config
