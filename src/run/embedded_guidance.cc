// SPDX-License-Identifier: Apache-2.0
#include "run/embedded_guidance.h"

#include "absl/strings/str_cat.h"

namespace oxbow::run {

absl::StatusOr<double> EmbeddedGuidance(const model::Architecture& architecture,
                                        const v1::SamplingConfig& config) {
  const double scale = config.embedded_guidance();
  if (!architecture.takes_embedded_guidance()) {
    if (scale == 0) return 0;
    return absl::InvalidArgumentError(
        absl::StrCat("sampling.embedded_guidance must be 0: this ", architecture.class_name(),
                     " takes no scale of guidance as an input, got ", scale));
  }
  if (scale > 0) return scale;
  if (architecture.default_guidance() > 0) return architecture.default_guidance();
  return absl::InvalidArgumentError(
      absl::StrCat("sampling.embedded_guidance must be set: the graph of this ",
                   architecture.class_name(), " names no scale of its own"));
}

}  // namespace oxbow::run
