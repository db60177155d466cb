// What ranks tell each other about their own samples, so that each has the numbers of all.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/velocity_model.h"
#include "core/rl/correction.h"
#include "core/rl/gradient_pass.h"

namespace oxbow::parallel {
class Ranks;
}

namespace oxbow::rl {

// Every list has the same length on every rank and holds zeros where an item is another rank's: the
// sum over ranks then is the item itself, exactly. Errors as in parallel/ranks.h.
absl::Status ShareWeights(parallel::Ranks& ranks, std::vector<SequenceWeight>& weights);
absl::Status ShareOutcomes(parallel::Ranks& ranks, std::vector<RowOutcome>& outcomes);

// Rows of all ranks.
absl::StatusOr<model::RowCount> SumRowCounts(parallel::Ranks& ranks, const model::RowCount& own);

}  // namespace oxbow::rl
