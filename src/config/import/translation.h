// SPDX-License-Identifier: Apache-2.0
// Builds a run: reads Flow-Factory's settings, writes oxbow's, and records differences and
// problems.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/import/flow_factory.h"
#include "config/import/foreign_settings.h"

namespace oxbow::config {

// The spelling of a value on both sides.
struct Choice {
  const char* theirs;
  const char* ours;
};

class Translation {
 public:
  // Both arguments outlive it.
  Translation(const ForeignSettings& settings, ImportedRun& run);

  ForeignSetting Get(const std::string& path) const { return settings_.Get(path); }
  const ForeignSettings& settings() const { return settings_; }
  const v1::RunConfig& config() const { return run_.resolved.config; }

  // Sets an oxbow key, because of a Flow-Factory setting.
  void Set(const std::string& ours, const std::string& text, const ForeignSetting& because);
  void Set(const std::string& ours, double value, const ForeignSetting& because);
  // Sets an oxbow key to the choice that `s` stands for. If there is none: a problem, and false.
  bool Choose(const std::string& ours, const ForeignSetting& s, const std::vector<Choice>& choices);

  // Records that no run can be made because of `s`.
  void Refuse(const ForeignSetting& s, const std::string& reason);
  // Refuses every value except these; a missing value is allowed, too.
  void Allow(const ForeignSetting& s, const std::vector<std::string>& allowed,
             const std::string& reason);
  // Records a difference that the user should know.
  void Differs(const ForeignSetting& s, const std::string& how);
  void NotNeeded(const ForeignSetting& s, const std::string& reason);

  // Applies oxbow's own rules; messages name the place in the Flow-Factory file. Only for a run
  // that was read completely.
  void Check(const std::string& name);

 private:
  const ForeignSettings& settings_;
  ImportedRun& run_;
  std::map<std::string, std::string> places_;  // Places in the file, by oxbow key.
};

// Translates the sections that define sampling and training: train, scheduler and optimizers.
void TranslateMethod(Translation& t);

// Translates the lists of rewards.
void TranslateRewards(Translation& t);

// Height and width from a section with `resolution`, `height` and `width`.
std::vector<std::string> FlowFactorySize(const Translation& t, const std::string& section);

}  // namespace oxbow::config
