// The YAML of another program as a flat list of settings, each with its place for error messages.
#pragma once

#include <yaml-cpp/node/node.h>

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
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

}  // namespace oxbow::config
