// SPDX-License-Identifier: Apache-2.0
// The settings of a Flow-Factory file: its YAML as a flat list, each value with its place for error
// messages; then with checked types, and with Flow-Factory's defaults for what is not given.
#pragma once

#include <yaml-cpp/node/node.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "config/import/flow_factory_keys.h"
#include "config/yaml_message.h"

namespace oxbow::config {

// The value of one key: a scalar, a list of scalars, nothing, or a section without keys.
struct ForeignValue {
  std::string key;    // As in the table of keys: "rewards[].name".
  std::string path;   // As in the file: "rewards[1].name".
  std::string place;  // "FILE:LINE"
  YAML::Node node;
};

// The settings of a document, in its order. `lists` are the keys whose value is a list of sections;
// a single section counts as a list of one. kInvalidArgument, with the place, for text that is not
// YAML, for duplicate keys, for keys that are not names, and for lists of non-scalars that are not
// in `lists`.
absl::StatusOr<std::vector<ForeignValue>> FlattenYaml(const std::string& text,
                                                      const YamlSource& source,
                                                      const std::set<std::string>& lists);

struct ForeignSetting {
  const ForeignKey* row = nullptr;
  std::string path;                // "rewards[1].name"
  std::string place;               // "FILE:LINE", or "FILE" for a default.
  bool given = false;              // False: a default, or no value at all.
  bool present = false;            // It has a value: given and not null, or a default.
  bool null = false;               // Given as null.
  std::vector<std::string> items;  // The elements of a list, or the text of a scalar.

  // The value in the type that the table states. Requires `present`.
  const std::string& text() const { return items.at(0); }
  double number(size_t index = 0) const;
  uint64_t count(size_t index = 0) const;
  bool flag() const;
  // The value as YAML: "x", "[a, b]".
  std::string yaml() const;
};

class ForeignSettings {
 public:
  // kInvalidArgument as FlattenYaml. Errors of single settings go into `problems`, unknown keys
  // into `unknown`, each as one line "FILE:LINE: key: reason".
  static absl::StatusOr<ForeignSettings> Read(const std::string& text, const YamlSource& source,
                                              std::vector<std::string>& problems,
                                              std::vector<std::string>& unknown);

  // The setting at a path, given or not. Requires a path that is in the table.
  ForeignSetting Get(const std::string& path) const;
  // The number of sections in a list.
  size_t SizeOf(const std::string& list) const;
  // All given settings in the file's order; old names appear under the new ones.
  const std::vector<ForeignSetting>& given() const { return given_; }

 private:
  void Add(ForeignSetting setting);

  std::string name_;
  std::vector<ForeignSetting> given_;
  std::map<std::string, size_t> at_;  // Index into given_, by path.
};

}  // namespace oxbow::config
