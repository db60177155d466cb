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
