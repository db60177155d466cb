#include "run/training_rows.h"

#include <algorithm>

#include "config/chosen_method.h"
#include "core/flow/window.h"
#include "run/window.h"

namespace oxbow::run {

uint64_t TrainedSteps(const v1::RunConfig& config) {
  if (config::ChosenMethod(config.method()).trains_final_latents()) {
    const v1::TimesConfig& times = config.method().times();
    const auto levels = static_cast<uint32_t>(times.fraction() * config.sampling().steps());
    return times.count() > 0 ? times.count() : levels;
  }
  const absl::StatusOr<flow::WindowPlan> window = WindowFromConfig(config.sampling());
  return window.ok() ? flow::WindowAt(*window, /*run_seed=*/0, /*step=*/0).size() : 0;
}

uint64_t RowsOfPass(const v1::RunConfig& config) {
  const v1::BatchConfig& batch = config.batch();
  const uint64_t images = uint64_t{batch.groups()} * batch.group_size();
  const uint64_t of_update = (images + batch.updates() - 1) / batch.updates();
  const uint64_t ranks = std::max(1u, config.learner().ranks());
  const uint64_t samples = (of_update + ranks - 1) / ranks;
  const uint64_t steps = TrainedSteps(config);
  if (batch.rows_per_pass() == 0 || steps == 0) return samples * steps;
  return steps * std::min(samples, std::max<uint64_t>(1, batch.rows_per_pass() / steps));
}

}  // namespace oxbow::run
