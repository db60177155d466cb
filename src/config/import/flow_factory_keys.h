// SPDX-License-Identifier: Apache-2.0
// Every key of Flow-Factory's YAML: its type, its default in Flow-Factory, and what the importer
// does with it. Covers both generations: data.dataset_dir and data.datasets, train.learning_rate
// and optimizers.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace oxbow::config {

enum class ForeignType {
  kText,
  kNumber,
  kCount,   // A whole number.
  kFlag,    // true or false
  kRange,   // A number x, meaning [-x, x] or [0, x], or two numbers.
  kSize,    // One or two whole numbers: height, width.
  kCounts,  // A list of whole numbers.
  kTexts,   // A text or a list of texts.
  kAny,
};

enum class ForeignUse {
  kTaken,     // `text`: the oxbow key, which takes the value unchanged.
  kJudged,    // flow_factory.cc translates it, by itself or with other keys.
  kNeedless,  // `text`: the reason why nothing has to be set here.
  kOldName,   // `text`: the newer path of this key, which wins if both are given.
};

struct ForeignKey {
  const char* key;  // "rewards[].name"; a name that ends in ".*" stands for everything below.
  ForeignType type;
  const char* standard;  // The default as text; nullptr: no default, and null is allowed.
  ForeignUse use;
  const char* text = nullptr;
};

const std::vector<ForeignKey>& FlowFactoryKeys();

// The row of a key, or nullptr.
const ForeignKey* FindFlowFactoryKey(const std::string& key);

// Keys whose value is a list of sections.
const std::set<std::string>& FlowFactoryLists();

}  // namespace oxbow::config
