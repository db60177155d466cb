// Somebody else's YAML as a flat list of settings, each with the place to complain about.
#pragma once

#include <yaml-cpp/node/node.h>

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "config/yaml_message.h"

namespace oxbow::config {

// What stands under one key: a scalar, a list of scalars, nothing, or a section without keys.
struct ForeignValue {
  std::string key;    // "rewards[].name": as a table has it.
  std::string path;   // "rewards[1].name": as people find it.
  std::string place;  // "FILE:LINE"
  YAML::Node node;
};

// The settings of a document in its order. `lists` are the keys whose value is a list of sections;
// one section alone is a list of one. kInvalidArgument, with the place, for what is no YAML, keys
// that are given twice or are no names, and lists of anything but scalars that are not in `lists`.
absl::StatusOr<std::vector<ForeignValue>> FlattenYaml(const std::string& text,
                                                      const YamlSource& source,
                                                      const std::set<std::string>& lists);

}  // namespace oxbow::config
