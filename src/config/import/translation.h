// A run in the making: reads their settings, writes ours, and keeps account of what was otherwise.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/import/flow_factory.h"
#include "config/import/foreign_settings.h"

namespace oxbow::config {

// How a value is spelled on either side.
struct Choice {
  const char* theirs;
  const char* ours;
};

class Translation {
 public:
  // Both outlive it.
  Translation(const ForeignSettings& settings, ImportedRun& run);

  ForeignSetting Get(const std::string& path) const { return settings_.Get(path); }
  const ForeignSettings& settings() const { return settings_; }
  const v1::RunConfig& config() const { return run_.resolved.config; }

  // Ours takes a value, because of theirs.
  void Set(const std::string& ours, const std::string& text, const ForeignSetting& because);
  void Set(const std::string& ours, double value, const ForeignSetting& because);
  // Ours takes the choice that theirs is spelled as. False, and a problem: none of them.
  bool Choose(const std::string& ours, const ForeignSetting& s, const std::vector<Choice>& choices);

  // No run can be made of theirs.
  void Refuse(const ForeignSetting& s, const std::string& reason);
  // Refuses every value but these; nothing is fine, too.
  void Allow(const ForeignSetting& s, const std::vector<std::string>& allowed,
             const std::string& reason);
  // Something a person should know.
  void Differs(const ForeignSetting& s, const std::string& how);
  void NotNeeded(const ForeignSetting& s, const std::string& reason);

  // Our own rules, with the place in their file. Only of a run that was read whole.
  void Check(const std::string& name);

 private:
  const ForeignSettings& settings_;
  ImportedRun& run_;
  std::map<std::string, std::string> places_;  // Of what our keys come from.
};

}  // namespace oxbow::config
