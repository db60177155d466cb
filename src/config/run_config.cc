#include "config/run_config.h"

#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "base/file.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"
#include "config/embedded_yaml.h"

namespace oxbow::config {
namespace {

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

std::vector<Assignment> ParseEnvironment(const std::vector<std::string>& environment) {
  std::vector<Assignment> assignments;
  for (const std::string& line : environment) {
    const auto split = SplitAssignment(line);
    if (!split || !absl::StartsWith(split->first, kEnvironmentPrefix)) continue;
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

absl::Status MergeText(const std::string& text, const YamlSource& source,
                       ResolvedConfig* resolved) {
  OXBOW_ASSIGN_OR_RETURN(const YAML::Node root, ParseRoot(text, source));
  return MergeYaml(root, source, "", &resolved->config, &resolved->provenance);
}

absl::Status MergeDefaults(ResolvedConfig* resolved) {
  const YamlSource source{.name = kDefaultSource};
  return MergeText(std::string(DefaultsYaml()), source, resolved);
}

// Removes the `recipe` key from a run file's root. An empty name: the file has none.
struct RecipeChoice {
  std::string name;
  std::string place;
};

absl::StatusOr<RecipeChoice> TakeRecipe(YAML::Node& root, const YamlSource& source) {
  RecipeChoice choice;
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

absl::StatusOr<std::string> RecipeText(const RecipeChoice& choice) {
  std::vector<std::string> names;
  for (const auto& [known, text] : Recipes()) {
    if (known == choice.name) return text;
    names.push_back(known);
  }
  const std::string nearest = NearestName(choice.name, names);
  return absl::InvalidArgumentError(
      absl::StrCat(choice.place, ": recipe: no recipe of that name; ",
                   nearest.empty() ? absl::StrCat("known: ", absl::StrJoin(names, ", "))
                                   : absl::StrCat("did you mean `", nearest, "`?"),
                   " (", choice.name, ")"));
}

// Merges a recipe over the one that it builds on.
absl::Status MergeRecipe(const RecipeChoice& choice, size_t depth, ResolvedConfig* resolved) {
  OXBOW_CHECK(depth < Recipes().size())
      << "recipes name each other in a broadcast group: " << choice.name;
  OXBOW_ASSIGN_OR_RETURN(const std::string text, RecipeText(choice));
  const YamlSource source{.name = absl::StrCat("recipe ", choice.name)};
  OXBOW_ASSIGN_OR_RETURN(YAML::Node root, ParseRoot(text, source));
  OXBOW_ASSIGN_OR_RETURN(const RecipeChoice base, TakeRecipe(root, source));
  if (!base.name.empty()) OXBOW_RETURN_IF_ERROR(MergeRecipe(base, depth + 1, resolved));
  return MergeYaml(root, source, "", &resolved->config, &resolved->provenance);
}

// `recipe` can be assigned like any key, although it is not a key of the config itself.
void OverrideRecipe(std::vector<Assignment>& assignments, RecipeChoice& choice) {
  std::vector<Assignment> rest;
  for (Assignment& assignment : assignments) {
    if (assignment.key == kRecipeKey) {
      choice = {assignment.text, assignment.source.name};
    } else {
      rest.push_back(std::move(assignment));
    }
  }
  assignments = std::move(rest);
}

absl::Status Apply(const std::vector<Assignment>& assignments, ResolvedConfig* resolved) {
  for (const Assignment& assignment : assignments) {
    OXBOW_RETURN_IF_ERROR(SetByText(assignment.key, assignment.text, assignment.source,
                                    &resolved->config, &resolved->provenance));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ResolvedConfig> LoadRunConfig(const std::filesystem::path& path,
                                             const std::vector<std::string>& overrides,
                                             const std::vector<std::string>& environment) {
  OXBOW_ASSIGN_OR_RETURN(std::vector<Assignment> from_flags, ParseOverrides(overrides));
  std::vector<Assignment> from_environment = ParseEnvironment(environment);

  const YamlSource source{.name = path.string(), .has_lines = true};
  YAML::Node root(YAML::NodeType::Map);
  RecipeChoice recipe;
  if (!path.empty()) {
    OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kFileBytesMax));
    OXBOW_ASSIGN_OR_RETURN(root, ParseRoot(text, source));
    OXBOW_ASSIGN_OR_RETURN(recipe, TakeRecipe(root, source));
  }
  OverrideRecipe(from_environment, recipe);
  OverrideRecipe(from_flags, recipe);

  ResolvedConfig resolved;
  OXBOW_RETURN_IF_ERROR(MergeDefaults(&resolved));
  if (!recipe.name.empty()) OXBOW_RETURN_IF_ERROR(MergeRecipe(recipe, /*depth=*/0, &resolved));
  OXBOW_RETURN_IF_ERROR(MergeYaml(root, source, "", &resolved.config, &resolved.provenance));
  OXBOW_RETURN_IF_ERROR(Apply(from_environment, &resolved));
  OXBOW_RETURN_IF_ERROR(Apply(from_flags, &resolved));
  return resolved;
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
  OXBOW_RETURN_IF_ERROR(MergeText(text, {.name = path.string(), .has_lines = true}, &resolved));
  return std::move(resolved.config);
}

}  // namespace oxbow::config
