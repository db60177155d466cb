// SPDX-License-Identifier: Apache-2.0
#include "config/import/translation.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "config/validate.h"

namespace oxbow::config {
namespace {

std::string Named(const ForeignSetting& s) {
  return absl::StrCat(s.place, ": ", s.path, s.given ? "" : " (their default)");
}

}  // namespace

Translation::Translation(const ForeignSettings& settings, ImportedRun& run)
    : settings_(settings), run_(run) {}

void Translation::Refuse(const ForeignSetting& s, const std::string& reason) {
  run_.problems.push_back(
      absl::StrCat(Named(s), ": ", reason, s.present ? absl::StrCat(", got ", s.yaml()) : ""));
}

void Translation::Differs(const ForeignSetting& s, const std::string& how) {
  run_.differences.push_back(
      absl::StrCat(Named(s), s.present ? absl::StrCat(": ", s.yaml()) : "", ": ", how));
}

void Translation::NotNeeded(const ForeignSetting& s, const std::string& reason) {
  run_.needless.push_back(absl::StrCat(Named(s), ": ", s.yaml(), ": ", reason));
}

void Translation::Set(const std::string& ours, const std::string& text,
                      const ForeignSetting& because) {
  const std::string origin =
      because.given ? because.path : absl::StrCat("their default of ", because.path);
  const absl::Status status =
      SetByText(ours, text, {.name = origin}, &run_.resolved.config, &run_.resolved.provenance);
  if (!status.ok()) Refuse(because, std::string(status.message()));
  places_[ours] = absl::StrCat(because.place, ": ", because.path);
}

void Translation::Set(const std::string& ours, double value, const ForeignSetting& because) {
  Set(ours, absl::StrFormat("%.17g", value), because);
}

bool Translation::Choose(const std::string& ours, const ForeignSetting& s,
                         const std::vector<Choice>& choices) {
  std::vector<std::string> known;
  for (const Choice& choice : choices) {
    if (absl::EqualsIgnoreCase(choice.theirs, s.text())) {
      Set(ours, choice.ours, s);
      return true;
    }
    known.emplace_back(choice.theirs);
  }
  Refuse(s, absl::StrCat("has no counterpart here; known: ", absl::StrJoin(known, ", ")));
  return false;
}

void Translation::Allow(const ForeignSetting& s, const std::vector<std::string>& allowed,
                        const std::string& reason) {
  if (!s.present) return;
  const bool fine = std::any_of(allowed.begin(), allowed.end(), [&](const std::string& value) {
    return absl::EqualsIgnoreCase(value, s.yaml());
  });
  if (!fine) Refuse(s, reason);
}

void Translation::Check(const std::string& name) {
  if (!run_.problems.empty()) return;
  for (const Problem& problem : Validate(run_.resolved.config)) {
    const auto place = places_.find(problem.key);
    const std::string line = absl::StrCat(place == places_.end() ? name : place->second,
                                          ": becomes ", problem.key, ": ", problem.message);
    (problem.severity == Severity::kError ? run_.problems : run_.differences).push_back(line);
  }
}

}  // namespace oxbow::config
