#include "config/import/foreign_yaml.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
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

}  // namespace oxbow::config
