// SPDX-License-Identifier: Apache-2.0
#include "run/embedded_guidance.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "config/rules.h"
#include "io/diffusers_directory.h"

namespace oxbow::run {
namespace {

constexpr double kEtaMax = 0.3;

std::string SaidBy(const io::DistilledSign& sign) {
  return absl::StrCat(sign.file, " has ", sign.key, ": ", sign.value);
}

bool AddsNoiseByEta(v1::DynamicsKind dynamics) {
  return dynamics != v1::DYNAMICS_KIND_ODE && dynamics != v1::DYNAMICS_KIND_WAN_SDE;
}

}  // namespace

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

std::vector<config::Problem> CheckDistilled(const std::filesystem::path& model,
                                            const v1::SamplingConfig& sampling, double guidance) {
  config::Findings f;
  const std::optional<io::DistilledSign> sign = io::DistilledBy(model);
  if (!sign.has_value()) return {};
  if (sampling.eta() > kEtaMax && AddsNoiseByEta(sampling.dynamics())) {
    f.Warn(
        "sampling.eta",
        absl::StrCat("is large for a model that is distilled to few steps (", SaidBy(*sign),
                     "): pictures drown in noise that it never learned to remove; take at most ",
                     kEtaMax, ", or nft or awm with sampling.dynamics: ode, got ", sampling.eta()));
  }
  if (guidance > 1 && !sign->ignores_guidance) {
    const double none = 1 - (guidance - sampling.guidance());  // By the pipeline's own scale.
    f.Warn("sampling.guidance",
           absl::StrCat("guides a model that is distilled to few steps (", SaidBy(*sign),
                        "), whose guidance is within: its pictures burn out; take ", none, ", got ",
                        sampling.guidance()));
  }
  return std::move(f.problems);
}

absl::Status CheckTakesGuidance(const std::filesystem::path& model, double guidance) {
  if (guidance <= 1) return absl::OkStatus();
  const std::optional<io::DistilledSign> sign = io::DistilledBy(model);
  if (!sign.has_value() || !sign->ignores_guidance) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sampling.guidance must be 1: for a distilled model (", SaidBy(*sign),
                   ") the pipeline does no guidance, whatever the scale, got ", guidance));
}

}  // namespace oxbow::run
