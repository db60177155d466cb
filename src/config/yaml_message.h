// YAML onto a protobuf message, guided by the message's descriptor.
//
// Keys are field names; enum values are lower-case without their prefix; a list replaces the list
// under it; a section merges into the section under it. Every error is one line that starts with
// the place: "run.yaml:12: batch.group_sise: unknown key; did you mean `group_size`?".
#pragma once

#include <google/protobuf/message.h>
#include <yaml-cpp/node/node.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace oxbow::config {

// Where each value came from, by dotted key. A list has one key: its own.
using Provenance = std::map<std::string, std::string>;

// What values are said to come from, and how errors name the place.
struct YamlSource {
  std::string name;  // "run.yaml", "--set", "environment OXBOW__A__B", "recipe NAME", "default".
  bool has_lines = false;  // "name:LINE" in errors and provenance.
  std::string Place(const YAML::Node& node) const;
};

// Parses one document. kInvalidArgument with line and column on a syntax error.
absl::StatusOr<YAML::Node> ParseYaml(const std::string& text, const YamlSource& source);

// Merges `node` (a map) into `message`. `prefix` is the dotted key of `message`, "" at the root.
// On an error `message` may hold a part of the node.
absl::Status MergeYaml(const YAML::Node& node, const YamlSource& source, const std::string& prefix,
                       google::protobuf::Message* message, Provenance* provenance);

// Sets one dotted key from text, as `--set` and the environment do. Text for a string field is
// taken as it is; for anything else it is parsed as YAML: "[1, 2]", "{name: a}", "1e-4".
absl::Status SetByText(const std::string& dotted_key, const std::string& text,
                       const YamlSource& source, google::protobuf::Message* message,
                       Provenance* provenance);

// Lower-case names of the values that a config may choose; the zero value is not one of them.
std::vector<std::string> EnumChoices(const google::protobuf::EnumDescriptor& type);
std::string EnumText(const google::protobuf::EnumValueDescriptor& value);

// Dotted keys of every value of a message type: scalars, enums and whole lists.
std::vector<std::string> LeafKeys(const google::protobuf::Descriptor& type);

}  // namespace oxbow::config
