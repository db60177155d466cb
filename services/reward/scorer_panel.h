// The scorers of one server, and the rules of scoring: a picture that does not hold together, a
// scorer that fails and a score that is not finite are errors, never numbers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/reward/scorer.h"

namespace oxbow::reward {

inline constexpr uint32_t kPictureSideMax = 8192;

class ScorerPanel {
 public:
  // kInvalidArgument for an unknown name, a name given twice, or none.
  static absl::StatusOr<ScorerPanel> Create(const std::vector<std::string>& names);

  // Takes scorers made elsewhere. Requires distinct names and at least one.
  explicit ScorerPanel(std::vector<std::unique_ptr<Scorer>> scorers);

  const std::vector<std::unique_ptr<Scorer>>& scorers() const { return scorers_; }

  // The scorers of these names, in that order; all if `names` is empty. kNotFound names the one
  // this panel lacks.
  absl::StatusOr<std::vector<const Scorer*>> Select(const std::vector<std::string>& names) const;

 private:
  std::vector<std::unique_ptr<Scorer>> scorers_;
};

// OK iff the sides are in 1..kPictureSideMax, channels 1 or 3, and there are as many bytes as they
// say.
absl::Status Validate(const Picture& picture);

// One score. The picture is valid. kInternal if the scorer's number is not finite.
absl::StatusOr<double> ScoreOne(const Scorer& scorer, const std::string& prompt_text,
                                const std::string& prompt_metadata_json, const Picture& picture);

}  // namespace oxbow::reward
