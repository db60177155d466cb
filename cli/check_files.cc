#include "cli/check_files.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/model_facts.h"
#include "config/nearest_name.h"
#include "core/reward/scorer_table.h"

namespace oxbow::cli {
namespace {

using config::Problem;
using config::Severity;

void CheckModel(const v1::RunConfig& config, std::vector<Problem>& problems) {
  if (config.model().path().empty()) return;  // A rule's business.
  const absl::Status status = ReadModelFacts(config).status();
  if (status.ok()) return;
  problems.push_back(
      {Severity::kError, "model.path", std::string(status.message()), status.code()});
}

void CheckPrompts(const char* key, const std::string& path, std::vector<Problem>& problems) {
  if (path.empty()) return;  // A rule's business.
  std::ifstream file(path);
  bool any = false;
  for (std::string line; !any && std::getline(file, line);) {
    any = !absl::StripAsciiWhitespace(line).empty();
  }
  if (!any) {
    problems.push_back({Severity::kError, key,
                        absl::StrCat("cannot be read or holds no prompt (paths are relative to the "
                                     "working directory): ",
                                     path),
                        absl::StatusCode::kNotFound});
  }
}

void CheckReward(const char* key, const std::string& name, std::vector<Problem>& problems) {
  const std::vector<std::string> known = reward::ScorerNames();
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  const std::string nearest = config::NearestName(name, known);
  problems.push_back(
      {Severity::kError, key,
       absl::StrCat("unknown reward; ",
                    nearest.empty() ? absl::StrCat("known: ", absl::StrJoin(known, ", "))
                                    : absl::StrCat("did you mean `", nearest, "`?"),
                    " (", name, ")")});
}

}  // namespace

std::vector<Problem> CheckFiles(const v1::RunConfig& config) {
  std::vector<Problem> problems;
  CheckModel(config, problems);
  CheckPrompts("prompts.train", config.prompts().train(), problems);
  CheckPrompts("prompts.eval", config.prompts().eval(), problems);
  if (config.reward().endpoints_size() > 0) return problems;  // Those servers know their own names.
  for (const auto& term : config.reward().terms())
    CheckReward("reward.terms", term.name(), problems);
  for (const auto& name : config.reward().observed())
    CheckReward("reward.observed", name, problems);
  return problems;
}

std::vector<Problem> CheckRun(const v1::RunConfig& config) {
  std::vector<Problem> problems = config::Validate(config);
  for (Problem& problem : CheckFiles(config)) problems.push_back(std::move(problem));
  return problems;
}

}  // namespace oxbow::cli
