// SPDX-License-Identifier: Apache-2.0
#include "config/key_names.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/nearest_name.h"
#include "config/fingerprint.h"
#include "config/run_config.h"
#include "config/yaml_message.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::config {
namespace {

namespace pb = google::protobuf;
using pb::FieldDescriptor;

const std::map<std::string, std::string>& ShortNames() {
  static const auto& names =
      *new std::map<std::string, std::string>{{"lr", "optimizer.learning_rate"},
                                              {"G", "batch.group_size"},
                                              {"U", "batch.groups"},
                                              {"T", "sampling.steps"},
                                              {"S", "off_policy.staleness_max"},
                                              {"kl", "method.kl_weight"},
                                              {"beta", "method.kl_weight"},
                                              {"cfg", "sampling.guidance"}};
  return names;
}

// How a clause begins that says when to change a key.
constexpr const char* kChanges[] = {"raise it", "lower it",  "set it",  "set one",
                                    "set more", "change it", "choose ", "keep "};

std::string LastPart(const std::string& key) { return key.substr(key.rfind('.') + 1); }

// "  groups: 48    # prompts per learner step" in parts.
struct DefaultLine {
  size_t indent = 0;
  std::string name;
  std::string value;
  std::string comment;
};

DefaultLine ParseLine(const std::string& line) {
  DefaultLine parsed;
  const size_t begin = line.find_first_not_of(' ');
  if (begin == std::string::npos || line[begin] == '#') return parsed;
  const size_t colon = line.find(':', begin);
  if (colon == std::string::npos) return parsed;
  parsed.indent = begin;
  parsed.name = line.substr(begin, colon - begin);
  const size_t comment = line.find(" # ", colon);
  std::string value =
      line.substr(colon + 1, comment == std::string::npos ? comment : comment - colon - 1);
  parsed.value = std::string(absl::StripAsciiWhitespace(value));
  if (comment != std::string::npos) parsed.comment = line.substr(comment + 3);
  return parsed;
}

// The line of configs/defaults.yaml that sets `key`.
DefaultLine LineOf(const std::string& key) {
  std::istringstream lines{std::string(DefaultsYaml())};
  std::vector<DefaultLine> open;
  for (std::string line; std::getline(lines, line);) {
    const DefaultLine parsed = ParseLine(line);
    if (parsed.name.empty()) continue;
    while (!open.empty() && open.back().indent >= parsed.indent) open.pop_back();
    open.push_back(parsed);
    const std::string path = absl::StrJoin(
        open, ".", [](std::string* out, const DefaultLine& part) { *out += part.name; });
    if (path == key) return parsed;
  }
  return {};
}

const FieldDescriptor* FieldOf(const std::string& key) {
  const pb::Descriptor* type = v1::RunConfig::descriptor();
  const FieldDescriptor* field = nullptr;
  std::istringstream names(key);
  for (std::string name; std::getline(names, name, '.');) {
    field = type == nullptr ? nullptr : type->FindFieldByName(name);
    if (field == nullptr) return nullptr;
    type = IsSection(*field) ? field->message_type() : nullptr;
  }
  return field;
}

// A comment's clauses by what they say.
struct Comment {
  std::vector<std::string> meaning, recipes, change, never;
  std::string range;
};

Comment ClausesOf(const std::string& text) {
  Comment comment;
  for (const std::string& clause : std::vector<std::string>(absl::StrSplit(text, "; "))) {
    absl::string_view recipes = clause;
    const bool tells_recipes =
        absl::ConsumePrefix(&recipes, "all recipes ") || absl::ConsumePrefix(&recipes, "recipes ");
    const auto begins = [&](const char* word) { return absl::StartsWith(clause, word); };
    if (tells_recipes) {
      comment.recipes.emplace_back(recipes);
    } else if (begins("never ") && !absl::StrContains(clause.substr(6), " ")) {
      comment.never.push_back(clause.substr(6));
    } else if (ParseRange(clause).has_value()) {
      comment.range = clause;
    } else if (std::any_of(std::begin(kChanges), std::end(kChanges), begins)) {
      comment.change.push_back(clause);
    } else {
      comment.meaning.push_back(clause);
    }
  }
  return comment;
}

// Names the values that a key takes, with its range in place of that of its type, and without the
// values that it never has.
std::string TakesText(const FieldDescriptor& field, const std::string& range,
                      const std::vector<std::string>& never) {
  std::string text = ExpectedOf(field);
  for (const std::string& value : never) {
    text = absl::StrReplaceAll(text, {{absl::StrCat(" ", value, ","), ""}});
  }
  if (!range.empty()) text = absl::StrCat(text.substr(0, text.find(" from ")), ", ", range);
  return absl::StrCat(field.is_repeated() ? "a list, each " : "", text);
}

struct Form {
  const char* words;
  std::optional<ValueRange::Bound> ValueRange::*side;
  bool open;
};

constexpr Form kForms[] = {{"at least ", &ValueRange::low, false},
                           {"above ", &ValueRange::low, true},
                           {"at most ", &ValueRange::high, false},
                           {"below ", &ValueRange::high, true}};

// Whether `text` is one bound, of a side that has none yet.
bool TakeBound(absl::string_view text, ValueRange& range) {
  for (const Form& form : kForms) {
    if (!absl::ConsumePrefix(&text, form.words)) continue;
    double value = 0;
    if ((range.*form.side).has_value() || !absl::SimpleAtod(text, &value)) return false;
    range.*form.side = ValueRange::Bound{value, form.open};
    return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> KeysNamed(const std::string& name, const pb::Descriptor& type) {
  const std::vector<std::string> keys = LeafKeys(type);
  if (const auto known = ShortNames().find(name); known != ShortNames().end()) {
    for (const std::string& key : keys) {  // A section's keys lack the section's name.
      if (known->second == key || known->second.ends_with("." + key)) return {key};
    }
  }
  std::vector<std::string> named;
  std::copy_if(keys.begin(), keys.end(), std::back_inserter(named),
               [&](const std::string& key) { return LastPart(key) == name; });
  return named;
}

std::vector<std::string> KeysMeantBy(const std::string& name, const pb::Descriptor& type) {
  if (std::vector<std::string> named = KeysNamed(name, type); !named.empty()) return named;
  std::vector<std::string> parts;
  for (const std::string& key : LeafKeys(type)) parts.push_back(LastPart(key));
  const std::string nearest = NearestName(name, parts);
  return nearest.empty() ? std::vector<std::string>() : KeysNamed(nearest, type);
}

absl::StatusOr<KeyExplanation> ExplainKey(const std::string& name) {
  std::string key = name;
  const FieldDescriptor* field = FieldOf(key);
  if (field == nullptr) {
    const std::vector<std::string> meant =
        KeysMeantBy(LastPart(name), *v1::RunConfig::descriptor());
    const bool certain =
        meant.size() == 1 && (LastPart(meant[0]) == name || ShortNames().contains(name));
    if (!certain) {
      return absl::NotFoundError(absl::StrCat(
          name, ": no such key",
          meant.empty() ? "" : absl::StrCat("; did you mean ", absl::StrJoin(meant, ", "), "?")));
    }
    key = meant[0];
    field = FieldOf(key);
  }
  const DefaultLine line = LineOf(key);
  const Comment comment = ClausesOf(line.comment);
  const bool section = IsSection(*field);
  const std::vector<std::string> free = FreeKeys();
  const bool may_change = IsComparedByContent(*field) ||
                          std::any_of(free.begin(), free.end(), [&](const std::string& one) {
                            return one == key || (one.ends_with(".*") &&
                                                  key.starts_with(one.substr(0, one.size() - 1)));
                          });
  return KeyExplanation{
      .key = key,
      .takes = section ? absl::StrCat("a section of ",
                                      absl::StrJoin(KeysOf(*field->message_type()), ", "))
                       : TakesText(*field, comment.range, comment.never),
      .value = section ? "" : line.value,
      .meaning = absl::StrJoin(comment.meaning, "; "),
      .recipes = absl::StrJoin(comment.recipes, "; "),
      .change = absl::StrJoin(comment.change, "; "),
      .may_change_on_resume = may_change};
}

std::optional<ValueRange> ParseRange(const std::string& clause) {
  absl::string_view text = clause;
  ValueRange range{.low = {}, .high = {}, .or_zero = absl::ConsumeSuffix(&text, ", or 0")};
  const std::vector<absl::string_view> ends = absl::StrSplit(text, " to ");
  double low = 0, high = 0;
  if (ends.size() == 2 && absl::SimpleAtod(ends[0], &low) && absl::SimpleAtod(ends[1], &high)) {
    range.low = {low, false};
    range.high = {high, false};
    return range;
  }
  for (const absl::string_view bound : absl::StrSplit(text, " and ")) {
    if (!TakeBound(bound, range)) return std::nullopt;
  }
  return range;
}

}  // namespace oxbow::config
