#include "services/reward/scorer_table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tasks/compose_scorer.h"
#include "tasks/digits_ocr.h"

namespace oxbow::reward {
namespace {

struct Row {
  const char* name;
  std::unique_ptr<Scorer> (*make)();
};

constexpr Row kTable[] = {
    {"digits_ocr", MakeDigitsOcr},         {"digits_strict", MakeDigitsStrict},
    {"digits_row", MakeDigitsRow},         {"compose", MakeCompose},
    {"compose_strict", MakeComposeStrict},
};

}  // namespace

std::vector<std::string> ScorerNames() {
  std::vector<std::string> names;
  for (const Row& row : kTable) names.emplace_back(row.name);
  return names;
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeScorer(const std::string& name) {
  for (const Row& row : kTable) {
    if (name == row.name) return row.make();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown reward (there are ", absl::StrJoin(ScorerNames(), ", "), "): ", name));
}

}  // namespace oxbow::reward
