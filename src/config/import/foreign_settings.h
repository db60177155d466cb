// The settings of a Flow-Factory file, checked for type, with its defaults where none is given.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "config/import/flow_factory_keys.h"
#include "config/import/foreign_yaml.h"

namespace oxbow::config {

struct ForeignSetting {
  const ForeignKey* row = nullptr;
  std::string path;                // "rewards[1].name"
  std::string place;               // "FILE:LINE", "FILE" for a default.
  bool given = false;              // False: their default, or nothing at all.
  bool present = false;            // Has a value: given and not null, or a default.
  bool null = false;               // Given as null.
  std::vector<std::string> items;  // Of a list; of a scalar, its text.

  // Of the types that the table says. Require `present`.
  const std::string& text() const { return items.at(0); }
  double number(size_t index = 0) const;
  uint64_t count(size_t index = 0) const;
  bool flag() const;
  // As YAML: "x", "[a, b]".
  std::string yaml() const;
};

class ForeignSettings {
 public:
  // kInvalidArgument as FlattenYaml. What is wrong in single settings goes into `problems`, unknown
  // keys into `unknown`, each as one line "FILE:LINE: key: reason".
  static absl::StatusOr<ForeignSettings> Read(const std::string& text, const YamlSource& source,
                                              std::vector<std::string>& problems,
                                              std::vector<std::string>& unknown);

  // The setting at a path, given or not. Requires a path that the table knows.
  ForeignSetting Get(const std::string& path) const;
  // Of a list of sections: how many there are.
  size_t SizeOf(const std::string& list) const;
  // In the file's order; old names under their new ones.
  const std::vector<ForeignSetting>& given() const { return given_; }

 private:
  void Add(ForeignSetting setting);

  std::string name_;
  std::vector<ForeignSetting> given_;
  std::map<std::string, size_t> at_;  // Into given_, by path.
};

}  // namespace oxbow::config
