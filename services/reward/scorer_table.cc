#include "services/reward/scorer_table.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"
#include "tasks/compose_scorer.h"
#include "tasks/digits_ocr.h"

namespace oxbow::reward {
namespace {

using Keys = std::vector<std::string>;

struct Row {
  std::string name;
  absl::StatusOr<std::unique_ptr<Scorer>> (*make)(const v1::ScorerConfig& config);
  Keys needs = {};  // Keys without which it cannot be made.
  Keys takes = {};  // Further keys.
  // What else is wrong with an entry, without loading anything. Null: nothing can be.
  absl::Status (*check)(const v1::ScorerConfig& config) = nullptr;
};

// A scorer without settings, which has the name of its row.
template <std::unique_ptr<Scorer> (*Make)()>
absl::StatusOr<std::unique_ptr<Scorer>> Plain(const v1::ScorerConfig& /*config*/) {
  return Make();
}

const std::vector<Row>& Table() {
  static const std::vector<Row>& table = *new std::vector<Row>{
      {"digits_ocr", Plain<MakeDigitsOcr>},         {"digits_strict", Plain<MakeDigitsStrict>},
      {"digits_row", Plain<MakeDigitsRow>},         {"compose", Plain<MakeCompose>},
      {"compose_strict", Plain<MakeComposeStrict>},
  };
  return table;
}

bool Contains(const Keys& keys, const std::string& key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

const std::string& ScorerName(const v1::ScorerConfig& config) {
  return config.scorer().empty() ? config.name() : config.scorer();
}

absl::StatusOr<const Row*> RowOf(const v1::ScorerConfig& config) {
  const std::string& name = ScorerName(config);
  for (const Row& row : Table()) {
    if (row.name == name) return &row;
  }
  const std::string nearest = NearestName(name, ScorerNames());
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown reward (", nearest.empty() ? "" : absl::StrCat("did you mean `", nearest, "`? "),
      "there are ", absl::StrJoin(ScorerNames(), ", "), "): ", name));
}

// The keys that the entry sets, besides its name and its scorer.
Keys KeysOf(const v1::ScorerConfig& config) {
  std::vector<const google::protobuf::FieldDescriptor*> set;
  config.GetReflection()->ListFields(config, &set);
  Keys keys;
  for (const google::protobuf::FieldDescriptor* field : set) {
    if (field->name() != "name" && field->name() != "scorer") keys.emplace_back(field->name());
  }
  return keys;
}

absl::Status CheckKeys(const Row& row, const v1::ScorerConfig& config) {
  const Keys keys = KeysOf(config);
  for (const std::string& key : row.needs) {
    if (Contains(keys, key)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("reward ", config.name(), " needs the key `", key, "`"));
  }
  for (const std::string& key : keys) {
    if (Contains(row.needs, key) || Contains(row.takes, key)) continue;
    Keys known = row.needs;
    known.insert(known.end(), row.takes.begin(), row.takes.end());
    return absl::InvalidArgumentError(
        absl::StrCat("reward ", config.name(), " takes no key `", key, "`; it takes ",
                     known.empty() ? "none" : absl::StrJoin(known, ", ")));
  }
  if (row.needs.empty() && row.takes.empty() && config.name() != row.name) {
    return absl::InvalidArgumentError(
        absl::StrCat("reward ", row.name, " has no other name, got ", config.name()));
  }
  return absl::OkStatus();
}

absl::Status CheckPaths(const v1::ScorerConfig& config) {
  const std::pair<const char*, std::string> paths[] = {
      {"model", config.model()}, {"head", config.head()}, {"key_file", config.key_file()}};
  for (const auto& [key, path] : paths) {
    std::error_code ignored;
    if (path.empty() || std::filesystem::exists(path, ignored)) continue;
    return absl::NotFoundError(absl::StrCat("reward ", config.name(), ": ", key,
                                            ": there is nothing at ", path,
                                            " (paths are relative to the working directory)"));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> ScorerNames() {
  std::vector<std::string> names;
  for (const Row& row : Table()) names.push_back(row.name);
  return names;
}

std::vector<std::string> PlainScorerNames() {
  std::vector<std::string> names;
  for (const Row& row : Table()) {
    if (row.needs.empty()) names.push_back(row.name);
  }
  return names;
}

absl::Status CheckScorer(const v1::ScorerConfig& config) {
  OXBOW_ASSIGN_OR_RETURN(const Row* row, RowOf(config));
  OXBOW_RETURN_IF_ERROR(CheckKeys(*row, config));
  OXBOW_RETURN_IF_ERROR(CheckPaths(config));
  return row->check == nullptr ? absl::OkStatus() : row->check(config);
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeScorer(const v1::ScorerConfig& config) {
  OXBOW_RETURN_IF_ERROR(CheckScorer(config));
  OXBOW_ASSIGN_OR_RETURN(const Row* row, RowOf(config));
  OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<Scorer> scorer, row->make(config));
  if (scorer->facts().name != config.name()) {
    return absl::InternalError(absl::StrCat("scorer ", row->name, " calls itself ",
                                            scorer->facts().name, ", not ", config.name()));
  }
  return scorer;
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeScorer(const std::string& name) {
  v1::ScorerConfig config;
  config.set_name(name);
  return MakeScorer(config);
}

}  // namespace oxbow::reward
