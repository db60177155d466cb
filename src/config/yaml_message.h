// SPDX-License-Identifier: Apache-2.0
// Merges YAML into a protobuf message, guided by the message's descriptor.
//
// Keys are field names. Enum values are lower-case, without their prefix. A list replaces the
// earlier list; a section merges into the earlier section. Every error is one line that starts with
// the place: "run.yaml:12: batch.group_sise: unknown key; did you mean `group_size`?".
#pragma once

#include <google/protobuf/message.h>
#include <yaml-cpp/node/node.h>

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace oxbow::config {

// The source of each value, by dotted key. A list has one key.
using Provenance = std::map<std::string, std::string>;

// Names the source of values in errors and provenance.
struct YamlSource {
  std::string name;  // "run.yaml", "--set", "environment OXBOW__A__B", "recipe NAME", "default".
  bool has_lines = false;  // Whether names include the line: "name:LINE".
  std::string Place(const YAML::Node& node) const;
};

// All errors of a source, a line each: a person mends them together.
class AllErrors {
 public:
  void Add(const absl::Status& status) {
    if (status.ok()) return;
    if (!lines_.empty()) lines_ += "\n";
    lines_ += std::string(status.message());
  }
  // kInvalidArgument with the lines of all errors, in order.
  absl::Status status() const {
    return lines_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(lines_);
  }

 private:
  std::string lines_;
};

// Parses one document. kInvalidArgument with line and column on a syntax error.
absl::StatusOr<YAML::Node> ParseYaml(const std::string& text, const YamlSource& source);

// Merges `node` (a map) into `message`. `prefix` is the dotted key of `message`, "" at the root.
// The error has a line for each key that is wrong; `message` then holds the others.
absl::Status MergeYaml(const YAML::Node& node, const YamlSource& source, const std::string& prefix,
                       google::protobuf::Message* message, Provenance* provenance);

// Sets one dotted key from text, as `--set` and the environment do. A key goes on into an entry of
// a list by the entry's name: "reward.scorers.pickscore.model". A string field takes the text
// as it is; for any other field the text is parsed as YAML: "[1, 2]", "{name: a}", "1e-4".
absl::Status SetByText(const std::string& dotted_key, const std::string& text,
                       const YamlSource& source, google::protobuf::Message* message,
                       Provenance* provenance);

// Lower-case names of the values that a config may use; the zero value is not one of them.
std::vector<std::string> EnumChoices(const google::protobuf::EnumDescriptor& type);
std::string EnumText(const google::protobuf::EnumValueDescriptor& value);

// Whether a field is a message of its own, with keys.
bool IsSection(const google::protobuf::FieldDescriptor& field);

// Names of the keys of a section.
std::vector<std::string> KeysOf(const google::protobuf::Descriptor& type);

// Whether a number may be `auto` (device_plan.h).
bool TakesAuto(const google::protobuf::FieldDescriptor& field);

// The values that a field takes, in words: "a number", "one of full, lora".
std::string ExpectedOf(const google::protobuf::FieldDescriptor& field);

// Dotted keys of every value of a message type: scalars, enums and whole lists.
std::vector<std::string> LeafKeys(const google::protobuf::Descriptor& type);

// A value of a field that is no list, or element `index` of one that is.
using FieldValue =
    std::variant<bool, double, uint64_t, std::string, const google::protobuf::EnumValueDescriptor*,
                 const google::protobuf::Message*>;
FieldValue ValueAt(const google::protobuf::Message& message,
                   const google::protobuf::FieldDescriptor& field, int index = 0);

// The value of `field`, or the list of its values. It reads back to the same bits.
std::string FieldText(const google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field);

}  // namespace oxbow::config
