// SPDX-License-Identifier: Apache-2.0
// The key of a config that somebody may have meant, and what a key is for.
//
// The purpose of a key stands in one place: the comments of configs/defaults.yaml. A comment is
// clauses between "; ". A range (ValueRange), "recipes 8 to 64" and "raise it if ..." are
// known by their form; lower, set, choose and keep are like raise. The others say what the key
// means.
#pragma once

#include <google/protobuf/descriptor.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::config {

// The dotted keys of `type` that `name` stands for: a short name that the field uses (lr, G, kl),
// or keys whose last part is `name`. Empty: none.
std::vector<std::string> KeysNamed(const std::string& name,
                                   const google::protobuf::Descriptor& type);

// KeysNamed, else those whose last part is nearest to `name`. Empty: none is near.
std::vector<std::string> KeysMeantBy(const std::string& name,
                                     const google::protobuf::Descriptor& type);

struct KeyExplanation {
  std::string key;
  std::string takes;  // "a number, above 0", "one of full, lora"; "a section" with its keys.
  std::string value;  // The default; empty for a section.
  // From the comment in configs/defaults.yaml; empty: it does not say it.
  std::string meaning;
  std::string recipes;  // The values in recipes: "8 to 64".
  std::string change;   // When to change it: "raise it if ...".
  bool may_change_on_resume = false;
};

// Explains a key or a section; a name without dots may be the last part of one key. kNotFound names
// the keys that may be meant.
absl::StatusOr<KeyExplanation> ExplainKey(const std::string& key);

// A range, as a clause of a key's comment in configs/defaults.yaml says it:
//   at least 1    above 0    at most 512    below 1    above 0 and at most 1    1 to 64
// ", or 0" behind it allows 0 besides. It is what validation refuses by the value alone; bounds
// that depend on other keys stand elsewhere in the comment.
struct ValueRange {
  struct Bound {
    double value = 0;
    bool open = false;  // The bound itself is outside.
  };
  std::optional<Bound> low;
  std::optional<Bound> high;
  bool or_zero = false;
};

// Empty: the clause is no range.
std::optional<ValueRange> ParseRange(const std::string& clause);

}  // namespace oxbow::config
