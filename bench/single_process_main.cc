// SPDX-License-Identifier: Apache-2.0
// single_process_loop: runs the loop without services and prints images per second as JSON.
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/exit_code.h"
#include "base/memory_limits.h"
#include "base/status_macros.h"
#include "bench/single_process_loop.h"
#include "config/run_config.h"
#include "metrics/step_metrics.h"

namespace {

absl::Status Run(const std::string& file, std::vector<std::string> overrides, int steps,
                 int warmup) {
  at::set_num_threads(1);
  overrides.push_back("replay.fraction=0");
  OXBOW_ASSIGN_OR_RETURN(const oxbow::config::ResolvedConfig resolved,
                         oxbow::config::LoadRunConfig(file, overrides, {}));
  OXBOW_ASSIGN_OR_RETURN(const auto loop, oxbow::bench::SingleProcessLoop::Create(resolved.config));
  const oxbow::Clock& clock = oxbow::Clock::Steady();
  absl::Duration start = clock.Now();
  double reward = 0;
  for (int step = 0; step < steps; ++step) {
    if (step == warmup) start = clock.Now();
    auto metrics = loop->Step();
    if (!metrics.ok()) return metrics.status();
    reward = (*metrics)[oxbow::metric::kTrainRewardMean];
  }
  const double seconds = absl::ToDoubleSeconds(clock.Now() - start);
  const double images = static_cast<double>(steps - warmup) * resolved.config.batch().groups() *
                        resolved.config.batch().group_size();
  std::printf("{\"images_per_second\": %.2f, \"seconds_per_step\": %.5f, \"reward\": %.4f}\n",
              images / seconds, seconds / (steps - warmup), reward);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  oxbow::KeepFreedMemory();  // As the learner does.
  CLI::App app("The training loop without services.", "single_process_loop");
  std::string file = "configs/recipes/digits-op-grpo.yaml";
  std::vector<std::string> overrides;
  int steps = 40, warmup = 10;
  app.add_option("file", file, "run YAML")->capture_default_str();
  app.add_option("--set", overrides, "KEY=VALUE; may be repeated")->allow_extra_args(false);
  app.add_option("--steps", steps)->check(CLI::Range(2, 100000))->capture_default_str();
  app.add_option("--warmup", warmup, "steps that are not timed")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(file, overrides, steps, warmup);
  if (!status.ok()) std::cerr << "single_process_loop: " << status.message() << "\n";
  return oxbow::ExitCodeOf(status);
}
