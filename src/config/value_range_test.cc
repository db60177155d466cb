// SPDX-License-Identifier: Apache-2.0
// Comments in configs/defaults.yaml about a key's values, against validation and recipes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "config/key_names.h"
#include "config/run_config.h"
#include "config/yaml_message.h"
#include "tests/testing/rule_case.h"

namespace oxbow::config {
namespace {

namespace pb = google::protobuf;
using ::testing::HasSubstr;
using Type = pb::FieldDescriptor::CppType;

// The message that has a key's field.
std::pair<const pb::Message*, const pb::FieldDescriptor*> FieldIn(const v1::RunConfig& config,
                                                                  const std::string& key) {
  const pb::Message* message = &config;
  std::istringstream names(key);
  const pb::FieldDescriptor* field = nullptr;
  for (std::string name; std::getline(names, name, '.');) {
    if (field != nullptr) message = &message->GetReflection()->GetMessage(*message, field);
    field = message->GetDescriptor()->FindFieldByName(name);
  }
  return {message, field};
}

Type TypeOf(const std::string& key) { return FieldIn(v1::RunConfig(), key).second->cpp_type(); }

bool IsWhole(const std::string& key) {
  return TypeOf(key) == pb::FieldDescriptor::CPPTYPE_UINT32 ||
         TypeOf(key) == pb::FieldDescriptor::CPPTYPE_UINT64;
}

std::vector<std::string> NumericKeys() {
  std::vector<std::string> keys;
  for (const std::string& key : LeafKeys(*v1::RunConfig::descriptor())) {
    const pb::FieldDescriptor& field = *FieldIn(v1::RunConfig(), key).second;
    const bool number = IsWhole(key) || TypeOf(key) == pb::FieldDescriptor::CPPTYPE_DOUBLE;
    if (number && !field.is_repeated()) keys.push_back(key);
  }
  return keys;
}

std::optional<ValueRange> RangeOf(const std::string& key) {
  const std::string takes = ExplainKey(key)->takes;  // "a number, above 0"
  const size_t comma = takes.find(", ");
  return comma == std::string::npos ? std::nullopt : ParseRange(takes.substr(comma + 2));
}

// A run to which the rules of a key apply.
std::vector<std::string> RunWith(const std::string& key) {
  static const std::vector<std::pair<const char*, std::vector<std::string>>> kRuns = {
      {"model.lora.", {"model.trained=lora"}},
      {"sampling.window.", {"sampling.window.kind=exp_decay"}},
      {"method.awm.", {"method.name=awm", "method.clip_range=1", "replay.fraction=0"}},
      {"method.nft.", {"method.name=nft", "replay.fraction=0"}},
      {"method.times.", {"method.name=nft", "replay.fraction=0"}},
      {"method.old_policy.", {"method.name=nft", "replay.fraction=0"}},
      // As many groups as it takes that a fraction near 1 leaves one fresh.
      {"replay.fraction", {"batch.groups=10000", "replay.capacity=10000"}},
      {"adaptation.", {"adaptation.enabled=true"}}};
  for (const auto& [prefix, set] : kRuns) {
    if (absl::StartsWith(key, prefix)) return set;
  }
  return {};
}

// The keys of which validation finds errors, with `value` for `key`.
std::set<std::string> ErrorsWith(const std::string& key, double value) {
  std::vector<std::string> set = RunWith(key);
  set.push_back(absl::StrFormat("%s=%.17g", key, value));
  std::set<std::string> keys;
  for (const Problem& problem : Validate(ValidRun(set).config)) {
    if (problem.severity == Severity::kError) keys.insert(problem.key);
  }
  return keys;
}

void ExpectAccepted(const std::string& key, double value) {
  EXPECT_FALSE(ErrorsWith(key, value).contains(key)) << key << ": " << value << " is refused";
}

// Validation may name the other end of an interval.
void ExpectRefused(const std::string& key, double value, double accepted) {
  EXPECT_NE(ErrorsWith(key, value), ErrorsWith(key, accepted))
      << key << ": " << value << " is accepted";
}

// `outwards`: -1 for a lower bound, 1 for an upper one.
void ExpectBound(const std::string& key, const ValueRange::Bound& bound, int outwards) {
  const double step = IsWhole(key) ? 1 : 1e-3;
  if (bound.open) {
    const double inside = bound.value - outwards * step;
    ExpectAccepted(key, inside);
    ExpectRefused(key, bound.value, inside);
    return;
  }
  const double beyond = bound.value + outwards * step;
  ExpectAccepted(key, bound.value);
  if (IsWhole(key) && beyond < 0) return;  // No such number.
  ExpectRefused(key, beyond, bound.value);
}

TEST(ValueRangeTest, FormsOfARange) {
  const auto interval = ParseRange("above 0 and at most 1");
  ASSERT_TRUE(interval && interval->low && interval->high);
  EXPECT_TRUE(interval->low->open);
  EXPECT_FALSE(interval->high->open);
  EXPECT_EQ(interval->high->value, 1);
  const auto or_zero = ParseRange("2 to 16, or 0");
  ASSERT_TRUE(or_zero && or_zero->low && or_zero->high);
  EXPECT_EQ(or_zero->low->value, 2);
  EXPECT_EQ(or_zero->high->value, 16);
  EXPECT_TRUE(or_zero->or_zero);
  EXPECT_FALSE(ParseRange("at least 4")->high.has_value());
  for (const char* other : {"at least publish_every - 1", "at least 1 and 4", "above 0 and above 1",
                            "above 0 with cps", "64", ""}) {
    EXPECT_FALSE(ParseRange(other).has_value()) << other;
  }
}

// Promise: Documented bounds of keys are those of validation. The bounds that `oxbow config
// explain` and the configuration reference print are those of validation, and the values that they
// say of recipes are theirs.
TEST(ValueRangeTest, ABoundIsThatOfValidation) {
  size_t ranges = 0;
  for (const std::string& key : NumericKeys()) {
    const std::optional<ValueRange> range = RangeOf(key);
    if (!range.has_value()) continue;
    ++ranges;
    if (range->low) ExpectBound(key, *range->low, -1);
    if (range->high) ExpectBound(key, *range->high, 1);
    if (range->or_zero) ExpectAccepted(key, 0);
  }
  EXPECT_EQ(ranges, 74u);
}

// Promise: Documented bounds of keys are those of validation.
TEST(ValueRangeTest, AKeyWithALowestValueSaysIt) {
  for (const std::string& key : NumericKeys()) {
    // A bound that depends on other keys is said in words.
    const bool in_words = absl::StrContains(ExplainKey(key)->meaning, "at least ");
    if (RangeOf(key).has_value() || in_words) continue;
    ExpectAccepted(key, 0);
    if (!IsWhole(key)) ExpectAccepted(key, -1);
  }
}

// "recipes 8 to 64", "recipes 2 or 5", "all recipes 5"; a key that 0 turns off may also be 0.
// Promise: Documented bounds of keys are those of validation.
TEST(ValueRangeTest, RecipesHaveTheValuesThatAreSaidOfThem) {
  const std::regex form(R"(([-+.e\d]+)(?: (?:to|or) ([-+.e\d]+))?)");
  std::map<std::string, v1::RunConfig> recipes;
  for (const auto& [name, text] : Recipes()) {
    recipes[name] = LoadRunConfig({}, {"recipe=" + name}, {}).value().config;
  }
  size_t checked = 0;
  for (const std::string& key : NumericKeys()) {
    const KeyExplanation explained = *ExplainKey(key);
    std::smatch parts;
    if (!std::regex_match(explained.recipes, parts, form)) continue;
    ++checked;
    const double low = std::stod(parts[1]);
    const double high = parts[2].matched ? std::stod(parts[2]) : low;
    for (const auto& [name, config] : recipes) {
      const auto [message, field] = FieldIn(config, key);
      double value = 0;
      ASSERT_TRUE(absl::SimpleAtod(FieldText(*message, *field), &value)) << key;
      if (value == 0 && absl::StrContains(explained.meaning, "0: ")) continue;
      EXPECT_TRUE(value >= low && value <= high) << name << ": " << key << ": " << value;
    }
  }
  EXPECT_GT(checked, 20u);
}

}  // namespace
}  // namespace oxbow::config
