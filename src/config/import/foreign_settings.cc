// SPDX-License-Identifier: Apache-2.0
#include "config/import/foreign_settings.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"

namespace oxbow::config {
namespace {

constexpr int kDepthMax = 16;

struct Level {
  std::string key;
  std::string path;
  int depth = 0;

  Level Under(const std::string& name) const {
    const char* const dot = key.empty() ? "" : ".";
    return {absl::StrCat(key, dot, name), absl::StrCat(path, dot, name), depth + 1};
  }
  Level Element(size_t index) const {
    return {absl::StrCat(key, "[]"), absl::StrCat(path, "[", index, "]"), depth + 1};
  }
};

class Flattening {
 public:
  Flattening(const YamlSource& source, const std::set<std::string>& lists)
      : source_(source), lists_(lists) {}

  absl::Status Section(const YAML::Node& node, const Level& level) {
    std::set<std::string> seen;
    for (const auto& pair : node) {
      if (!pair.first.IsScalar()) return Error(pair.first, level, "keys must be plain names");
      const Level under = level.Under(pair.first.Scalar());
      if (under.depth > kDepthMax) return Error(pair.first, under, "nested too deep");
      if (!seen.insert(pair.first.Scalar()).second) {
        return Error(pair.first, under, "the key is given twice; keep one");
      }
      OXBOW_RETURN_IF_ERROR(Value(pair.second, under, source_.Place(pair.first)));
    }
    return absl::OkStatus();
  }

  std::vector<ForeignValue> values;

 private:
  absl::Status Value(const YAML::Node& node, const Level& level, const std::string& place) {
    if (lists_.contains(level.key) && !node.IsNull()) return Elements(node, level);
    if (node.IsMap() && node.size() > 0) return Section(node, level);
    if (node.IsSequence()) {
      const bool flat = std::all_of(node.begin(), node.end(), [](const YAML::Node& element) {
        return element.IsScalar() || element.IsNull();
      });
      if (!flat) return Error(node, level, "expected a list of plain values");
    }
    values.push_back({level.key, level.path, place, node});
    return absl::OkStatus();
  }

  absl::Status Elements(const YAML::Node& node, const Level& level) {
    if (node.IsMap()) return Section(node, level.Element(0));
    if (!node.IsSequence()) return Error(node, level, "expected a list of sections");
    size_t index = 0;
    for (const YAML::Node& element : node) {
      const Level at = level.Element(index++);
      if (!element.IsMap()) return Error(element, at, "expected a section");
      OXBOW_RETURN_IF_ERROR(Section(element, at));
    }
    return absl::OkStatus();
  }

  absl::Status Error(const YAML::Node& node, const Level& level, const std::string& reason) const {
    return absl::InvalidArgumentError(
        absl::StrCat(source_.Place(node), ": ", level.path, ": ", reason));
  }

  const YamlSource& source_;
  const std::set<std::string>& lists_;
};

bool IsNumber(const std::string& text) {
  double value = 0;
  return absl::SimpleAtod(text, &value) && std::isfinite(value);
}

bool IsCount(const std::string& text) {
  uint64_t value = 0;
  return absl::SimpleAtoi(text, &value);
}

// Reads a flag as PyYAML does. 1: true, 0: false, -1: neither.
int FlagOf(const std::string& text) {
  for (const char* yes : {"true", "yes", "on"}) {
    if (absl::EqualsIgnoreCase(text, yes)) return 1;
  }
  for (const char* no : {"false", "no", "off"}) {
    if (absl::EqualsIgnoreCase(text, no)) return 0;
  }
  return -1;
}

bool Fits(ForeignType type, const YAML::Node& node, const std::vector<std::string>& items) {
  const bool scalar = node.IsScalar();
  const auto all = [&](bool (*fits)(const std::string&)) {
    return std::all_of(items.begin(), items.end(), fits);
  };
  switch (type) {
    case ForeignType::kText:
      return scalar;
    case ForeignType::kNumber:
      return scalar && all(IsNumber);
    case ForeignType::kCount:
      return scalar && all(IsCount);
    case ForeignType::kFlag:
      return scalar && FlagOf(items[0]) >= 0;
    case ForeignType::kRange:
      return (scalar || items.size() == 2) && all(IsNumber);
    case ForeignType::kSize:
      return (scalar || items.size() == 1 || items.size() == 2) && all(IsCount);
    case ForeignType::kCounts:
      return !scalar && all(IsCount);
    case ForeignType::kTexts:
      return !items.empty();
    case ForeignType::kAny:
      return true;
  }
  return false;
}

const char* NameOf(ForeignType type) {
  switch (type) {
    case ForeignType::kText:
      return "text";
    case ForeignType::kNumber:
      return "a number";
    case ForeignType::kCount:
      return "a whole number";
    case ForeignType::kFlag:
      return "true or false";
    case ForeignType::kRange:
      return "a number or a list of two";
    case ForeignType::kSize:
      return "a whole number or [height, width]";
    case ForeignType::kCounts:
      return "a list of whole numbers";
    case ForeignType::kTexts:
      return "a text or a list of texts";
    case ForeignType::kAny:
      break;
  }
  return "anything";
}

std::vector<std::string> ItemsOf(const YAML::Node& node) {
  if (node.IsScalar()) return {node.Scalar()};
  std::vector<std::string> items;
  if (node.IsSequence()) {
    for (const YAML::Node& item : node) items.push_back(item.IsScalar() ? item.Scalar() : "null");
  }
  return items;
}

std::string UnknownKeyLine(const ForeignValue& value) {
  std::vector<std::string> names;
  for (const ForeignKey& row : FlowFactoryKeys()) names.emplace_back(row.key);
  const std::string nearest = NearestName(value.key, names);
  return absl::StrCat(value.place, ": ", value.path, ": not a key of Flow-Factory's that is known",
                      nearest.empty() ? "" : absl::StrCat("; did you mean `", nearest, "`?"));
}

// "eval:" whose keys are all commented out.
bool IsEmptySection(const ForeignValue& value) {
  const std::string prefix = absl::StrCat(value.key, ".");
  const bool empty = value.node.IsNull() || value.node.IsMap();
  return empty && std::any_of(FlowFactoryKeys().begin(), FlowFactoryKeys().end(),
                              [&](const ForeignKey& row) {
                                return absl::StartsWith(row.key, prefix) ||
                                       absl::StartsWith(row.key, absl::StrCat(value.key, "[]"));
                              });
}

}  // namespace

absl::StatusOr<std::vector<ForeignValue>> FlattenYaml(const std::string& text,
                                                      const YamlSource& source,
                                                      const std::set<std::string>& lists) {
  OXBOW_ASSIGN_OR_RETURN(const YAML::Node root, ParseYaml(text, source));
  if (!root.IsMap()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.name, ": expected sections such as `train:` at the top level"));
  }
  Flattening flattening(source, lists);
  OXBOW_RETURN_IF_ERROR(flattening.Section(root, {}));
  return std::move(flattening.values);
}

double ForeignSetting::number(size_t index) const {
  double value = 0;
  OXBOW_CHECK(absl::SimpleAtod(items.at(index), &value)) << path;
  return value;
}

uint64_t ForeignSetting::count(size_t index) const {
  uint64_t value = 0;
  OXBOW_CHECK(absl::SimpleAtoi(items.at(index), &value)) << path;
  return value;
}

bool ForeignSetting::flag() const { return FlagOf(text()) == 1; }

std::string ForeignSetting::yaml() const {
  if (null) return "null";
  return items.size() == 1 ? items[0] : absl::StrCat("[", absl::StrJoin(items, ", "), "]");
}

absl::StatusOr<ForeignSettings> ForeignSettings::Read(const std::string& text,
                                                      const YamlSource& source,
                                                      std::vector<std::string>& problems,
                                                      std::vector<std::string>& unknown) {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<ForeignValue> values,
                         FlattenYaml(text, source, FlowFactoryLists()));
  ForeignSettings settings;
  settings.name_ = source.name;
  for (const ForeignValue& value : values) {
    const ForeignKey* const row = FindFlowFactoryKey(value.key);
    if (row == nullptr) {
      if (!IsEmptySection(value)) unknown.push_back(UnknownKeyLine(value));
      continue;
    }
    ForeignSetting setting{.row = row,
                           .path = value.path,
                           .place = value.place,
                           .given = true,
                           .present = !value.node.IsNull(),
                           .null = value.node.IsNull(),
                           .items = ItemsOf(value.node)};
    if (setting.present && !Fits(row->type, value.node, setting.items)) {
      problems.push_back(absl::StrCat(value.place, ": ", value.path, ": expected ",
                                      NameOf(row->type), ", got ",
                                      value.node.IsMap() ? "a section" : setting.yaml()));
      continue;
    }
    settings.Add(std::move(setting));
  }
  return settings;
}

void ForeignSettings::Add(ForeignSetting setting) {
  const bool old = setting.row->use == ForeignUse::kOldName;
  const std::string path = old ? setting.row->text : setting.path;
  const auto [known, inserted] = at_.try_emplace(path, given_.size());
  if (!inserted) {
    if (old) return;  // The newer name wins.
    given_[known->second] = std::move(setting);
    return;
  }
  given_.push_back(std::move(setting));
}

ForeignSetting ForeignSettings::Get(const std::string& path) const {
  std::string key = path;
  for (size_t open = key.find('['); open != std::string::npos; open = key.find('[', open + 2)) {
    key.erase(open + 1, key.find(']', open) - open - 1);
  }
  const ForeignKey* const row = FindFlowFactoryKey(key);
  OXBOW_CHECK(row != nullptr) << "no such key of Flow-Factory: " << path;
  ForeignSetting setting{.row = row, .path = path, .place = name_};
  if (const auto known = at_.find(path); known != at_.end()) setting = given_[known->second];
  if (setting.present || row->standard == nullptr) return setting;
  setting.present = true;  // Null means the default, too.
  setting.items = ItemsOf(YAML::Load(row->standard));
  return setting;
}

size_t ForeignSettings::SizeOf(const std::string& list) const {
  size_t size = 0;
  for (const auto& [path, index] : at_) {
    size_t element = 0;
    const std::string begin = absl::StrCat(list, "[");
    if (!absl::StartsWith(path, begin)) continue;
    const size_t close = path.find(']');
    if (absl::SimpleAtoi(path.substr(begin.size(), close - begin.size()), &element)) {
      size = std::max(size, element + 1);
    }
  }
  return size;
}

}  // namespace oxbow::config
