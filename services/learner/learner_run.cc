#include "services/learner/learner_run.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/status_macros.h"
#include "services/learner/learner_process.h"

namespace oxbow::learner {

absl::Status RunLearner(RunOptions options) {
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  OXBOW_ASSIGN_OR_RETURN(RunSetup setup, ReadSetup(std::move(options.config)));
  LearnerProcess process(options, std::move(setup));
  OXBOW_RETURN_IF_ERROR(process.MakeStart());
  OXBOW_RETURN_IF_ERROR(process.MakeTrainer());
  OXBOW_RETURN_IF_ERROR(process.ConnectPeers());
  process.MakeDesk();
  OXBOW_RETURN_IF_ERROR(process.MakeLoop());
  OXBOW_RETURN_IF_ERROR(process.Serve());
  return process.Run();
}

}  // namespace oxbow::learner
