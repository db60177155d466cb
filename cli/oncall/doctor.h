// SPDX-License-Identifier: Apache-2.0
// Whether a run can start on this machine, and how one went: the checks of `oxbow doctor RUN.yaml`,
// which `oxbow train` makes, too, and those of a run's directory.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/oncall/checkup.h"
#include "cli/oncall/machine_checks.h"
#include "cli/report/run_summary.h"
#include "config/run_config.h"

namespace oxbow::cli {

// "config/*": the rules, the files and the device. Sets `needs` if the model's files can be read.
Checks CheckConfig(config::ResolvedConfig resolved, MachineNeeds& needs);

// "config/rewards": whether the run's own rewards load, and the prompts have what they need.
Check CheckRewards(const v1::RunConfig& config);

// "config/checkpoint.copy_to": a run without a checkpoint that has copies there. Else empty.
Checks CheckCopies(const v1::RunConfig& config);

// "machine/*". `directory`: of runs, where `needs` has no disk. `ports`: see LookAtMachine.
// `certificate_left`: see MachineFacts.
Checks CheckMachine(const std::string& directory, const std::vector<std::string>& ports,
                    const MachineNeeds& needs, absl::Duration certificate_left);

// "run/checkpoints": why an ended run that has lost them does not go on. Else empty.
Checks CheckCheckpoints(const std::filesystem::path& run_dir);

// "run/*": how the run ended, and the verdict on what it has logged, one check a topic.
Checks JudgeRun(const RunSummary& run);

}  // namespace oxbow::cli
