#include "services/reward/scorer_table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "rewards/ocr_scorer.h"
#include "tasks/compose_scorer.h"
#include "tasks/digits_ocr.h"
#include "tasks/plates_scorer.h"

namespace oxbow::reward {
namespace {

struct Row {
  const char* name;
  absl::StatusOr<std::unique_ptr<Scorer>> (*make)();
};

// A scorer that can always be made.
template <std::unique_ptr<Scorer> (*Make)()>
absl::StatusOr<std::unique_ptr<Scorer>> Plain() {
  return Make();
}

absl::StatusOr<std::unique_ptr<Scorer>> PlainOcr() { return rewards::MakeOcr({}); }

constexpr Row kTable[] = {
    {"digits_ocr", Plain<MakeDigitsOcr>},         {"digits_strict", Plain<MakeDigitsStrict>},
    {"digits_row", Plain<MakeDigitsRow>},         {"compose", Plain<MakeCompose>},
    {"compose_strict", Plain<MakeComposeStrict>}, {"plates_reader", Plain<MakePlatesReader>},
    {"plates_strict", Plain<MakePlatesStrict>},   {"ocr", PlainOcr},
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
