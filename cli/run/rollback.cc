#include "cli/run/rollback.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "cli/run/endpoints_file.h"
#include "cli/run/status.h"
#include "services/learner/desk/checkpoint_store.h"

namespace oxbow::cli {
namespace {

struct Flags {
  std::string run_dir;
  uint64_t step = 0;
};

// A live learner would go on from what it has in memory and write over what is done here.
absl::Status RefuseLive(const std::filesystem::path& run_dir) {
  const auto services = ReadEndpoints(run_dir);
  if (!services.ok()) return absl::OkStatus();  // Never started by `oxbow train`, or long gone.
  for (const ServiceEndpoint& service : *services) {
    if (service.name != "learner" || !AskStatus(service.grpc, absl::Seconds(1)).ok()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the run is live, stop it first: ", run_dir.string()));
  }
  return absl::OkStatus();
}

absl::Status RollBack(const Flags& flags) {
  const std::filesystem::path run_dir = flags.run_dir;
  OXBOW_RETURN_IF_ERROR(RefuseLive(run_dir));
  const learner::CheckpointStore store(run_dir / "checkpoints", 1);
  OXBOW_ASSIGN_OR_RETURN(const learner::RunState state, store.RollBack(flags.step));
  std::cout << "the run goes on from step " << state.committed_steps << ", policy version "
            << state.policy_version << ", when it is started again with --resume\n";
  if (state.buffer_checkpoint.empty()) {
    std::cout << "the checkpoint has no replay buffer: it will start empty\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddRollback(CLI::App& app, int& exit_code) {
  CLI::App* const command =
      app.add_subcommand("rollback", "Return a run that has ended to an earlier checkpoint");
  command->footer("Example: oxbow rollback runs/digits --to 50");
  const auto flags = std::make_shared<Flags>();
  command->add_option("RUN_DIR", flags->run_dir, "The run's directory")->required();
  command->add_option("--to", flags->step, "Learner step of a checkpoint")->required();
  command->callback([flags, &exit_code] {
    const absl::Status status = RollBack(*flags);
    exit_code = ExitCodeOf(status);
    if (!status.ok()) std::cerr << "oxbow rollback: " << status.message() << "\n";
  });
}

}  // namespace oxbow::cli
