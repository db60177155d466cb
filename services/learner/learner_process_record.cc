// SPDX-License-Identifier: Apache-2.0
// The notes that a learner writes about its run for people: where it is, what they should know of
// its start, its report, and how it ended.
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "io/prompts/text_encoders.h"
#include "io/report/report.h"
#include "rpc/tls.h"
#include "run/endpoints_file.h"
#include "run/run_record.h"
#include "services/learner/learner_process.h"
#include "services/learner/record/facts_of_run.h"

namespace oxbow::learner {

void LearnerProcess::LogCutPrompts() const {
  for (const auto& [key, prompts] :
       {std::pair("prompts.train", &setup_.train), std::pair("prompts.eval", &setup_.held_out)}) {
    std::vector<std::string> texts;
    for (const v1::Prompt& prompt : *prompts) texts.push_back(prompt.text());
    const auto cut =
        io::CountCut(setup_.model.components, setup_.config.prompts().t5_length(), texts);
    if (!cut.ok() || !cut->has_value() || (*cut)->cut == 0) continue;
    OXBOW_LOG(Warning) << io::CutText(**cut) << Field("prompts", key);
  }
}

void LearnerProcess::NoticeDamage() {
  if (!resumed_.has_value() || resumed_->damaged.empty()) return;
  const bool one = resumed_->damaged.size() == 1;
  const std::string newest = CheckpointName(resumed_->damaged.front());
  progress_->Notice(absl::StrCat(
      one ? "the checkpoint of step " : "the checkpoints of steps ",
      absl::StrJoin(resumed_->damaged, ", "), one ? " is" : " are", " damaged and kept as ", newest,
      ".damaged", one ? "" : " and so on", ", going on from ", from_.committed_steps));
}

// As `oxbow train` does for its runs, so that status, doctor and rollback find this one.
absl::Status LearnerProcess::WriteOwnEndpoints() {
  std::vector<run::ServiceEndpoint> services = {
      {"learner", server_->endpoint(), exposer_->endpoint(), getpid()}};
  const std::vector<std::string>& buffers = options_.buffer_endpoints;
  for (size_t i = 0; i < buffers.size(); ++i) {
    services.push_back(
        {buffers.size() == 1 ? "replay_buffer" : absl::StrFormat("replay_buffer-%02d", i),
         buffers[i], ""});
  }
  for (size_t i = 0; i < options_.reward_endpoints.size(); ++i) {
    services.push_back({absl::StrCat("reward_server-", i), options_.reward_endpoints[i], ""});
  }
  OXBOW_RETURN_IF_ERROR(options_.check_directory());
  const rpc::TlsOptions tls = rpc::TlsInUse();
  return run::WriteEndpoints(options_.directory, services,
                             {tls.files.ca, tls.files.cert, tls.files.key, tls.name, tls.roles});
}

absl::Status LearnerProcess::WriteReport(bool live) {
  OXBOW_RETURN_IF_ERROR(options_.check_directory());
  return io::WriteReport(options_.directory, FactsOfRun(options_.directory, live), reading_);
}

// `oxbow train` writes the last report of its runs, also where the learner was killed.
void LearnerProcess::WriteLastReport() {
  report_->Stop();
  if (options_.supervised || loop_->committed() == 0) return;
  if (const absl::Status status = WriteReport(/*live=*/false); !status.ok()) {
    OXBOW_LOG(Warning) << "report was not written" << Field("error", std::string(status.message()));
  }
}

uint64_t LearnerProcess::committed() const {
  return loop_ == nullptr ? from_.committed_steps : loop_->committed();
}

// How an orderly end came about.
absl::Status LearnerProcess::WriteEnd(const absl::Status& early,
                                      const std::string& uncopied) const {
  run::EndRecord record{.end = run::RunEnd::kDone,
                        .step = committed(),
                        .exit_code = ExitCodeOf(early),
                        .time = absl::Now()};
  if (record.exit_code == kExitStopped) {
    record.end = run::RunEnd::kByRule;
    record.reason = *loop_->stop_reason();
  } else if (record.exit_code == kExitDrained) {
    record.end = run::RunEnd::kInterrupted;
    absl::MutexLock lock(&drain_mutex_);
    record.reason = absl::StrCat("drained by ", drained_by_);
  }
  if (!uncopied.empty()) {
    absl::StrAppend(&record.reason, record.reason.empty() ? "" : "; ", run::kUncopied, uncopied);
  }
  return run::WriteEnd(options_.directory, record);
}

// From another thread: the process ends next.
void LearnerProcess::EndWhileLoading(const std::string& by) const {
  run::WriteEnd(options_.directory, {.end = run::RunEnd::kInterrupted,
                                     .step = from_.committed_steps,
                                     .exit_code = kExitDrained,
                                     .reason = absl::StrCat("drained by ", by, " while it loaded"),
                                     .time = absl::Now()})
      .IgnoreError();
}

void LearnerProcess::WriteFailure(const absl::Status& why) const {
  if (!started_ || !options_.check_directory().ok()) return;
  const run::EndRecord record{.end = run::RunEnd::kFailed,
                              .step = committed(),
                              .exit_code = ExitCodeOf(why),
                              .reason = std::string(why.message()),
                              .time = absl::Now()};
  const absl::Status written = run::WriteEnd(options_.directory, record);
  if (!written.ok()) {
    OXBOW_LOG(Warning) << "why the run ended was not written" << Field("error", written.message());
  }
}

}  // namespace oxbow::learner
