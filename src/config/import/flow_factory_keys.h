// Every key of Flow-Factory's YAML: its type, the value it has there when it is left out, and what
// becomes of it here. Both generations: data.dataset_dir and data.datasets, train.learning_rate and
// optimizers.
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
  kRange,   // A number x, for [-x, x] or [0, x], or two.
  kSize,    // One or two whole numbers: height, width.
  kCounts,  // A list of whole numbers.
  kTexts,   // A text or a list of them.
  kAny,
};

enum class ForeignUse {
  kTaken,     // `text`: our key, which takes the value as it is.
  kJudged,    // By flow_factory.cc, alone or with others.
  kNeedless,  // `text`: why nothing has to be set here.
  kOldName,   // `text`: the path it has had since; that one wins where both are given.
};

struct ForeignKey {
  const char* key;  // "rewards[].name"; ending in ".*": everything below.
  ForeignType type;
  const char* standard;  // As text; nullptr: none, and null is allowed.
  ForeignUse use;
  const char* text = nullptr;
};

const std::vector<ForeignKey>& FlowFactoryKeys();

// The row of a key; nullptr: there is none.
const ForeignKey* FindFlowFactoryKey(const std::string& key);

// Keys whose value is a list of sections.
const std::set<std::string>& FlowFactoryLists();

}  // namespace oxbow::config
