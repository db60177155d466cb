// SPDX-License-Identifier: Apache-2.0
#include "services/learner/serving.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/memory_limits.h"
#include "base/status_macros.h"
#include "io/report/report.h"
#include "metrics/step_metrics.h"
#include "rpc/tls.h"
#include "run/endpoints_file.h"
#include "run/rewards.h"
#include "run/run_record.h"
#include "services/learner/checkpoint/checkpoint_tensors.h"
#include "services/learner/loop/step_rules.h"
#include "services/learner/reward_check.h"

namespace oxbow::learner {
namespace {

// All groups are in and all weights are out; the remaining streams only wait for more.
constexpr absl::Duration kRanksGrace = absl::Seconds(5);

absl::StatusOr<LearnerLoop::Options> OptionsOfLoop(const RunStart& start,
                                                   double wall_seconds_before) {
  LearnerLoop::Options options = LoopOptionsOf(
      start.setup, start.epoch, LearnerStep(start.from.committed_steps), wall_seconds_before);
  const auto best = start.checkpointing.store().Best(options.checkpoints.best_metric);
  if (best.has_value()) options.checkpoints.best_before = best->value;
  options.evaluations.directory = start.options.directory;
  options.evaluations.owed = {start.from.owed_evaluations.begin(),
                              start.from.owed_evaluations.end()};
  if (!start.resumed.has_value() || options.stop_if.empty()) return options;
  // The values of the rules' metrics before this start, from the lines that the log has kept.
  uint64_t offset = 0;
  OXBOW_RETURN_IF_ERROR(io::ReadMetricsFrom(
      start.options.directory / io::kMetricsFile, offset, [&](const auto& line) {
        config::AddValues(options.stop_if, static_cast<uint64_t>(line.at(metric::kStep)), line,
                          options.stop_values);
      }));
  return options;
}

// As `oxbow train` does for its runs, so that status, doctor and rollback find this one.
absl::Status WriteOwnEndpoints(const RunOptions& options, const std::string& learner,
                               const std::string& metrics) {
  std::vector<run::ServiceEndpoint> services = {{"learner", learner, metrics, getpid()}};
  const std::vector<std::string>& buffers = options.buffer_endpoints;
  for (size_t i = 0; i < buffers.size(); ++i) {
    services.push_back(
        {buffers.size() == 1 ? "replay_buffer" : absl::StrFormat("replay_buffer-%02d", i),
         buffers[i], ""});
  }
  for (size_t i = 0; i < options.reward_endpoints.size(); ++i) {
    services.push_back({absl::StrCat("reward_server-", i), options.reward_endpoints[i], ""});
  }
  OXBOW_RETURN_IF_ERROR(options.check_directory());
  const rpc::TlsOptions tls = rpc::TlsInUse();
  return run::WriteEndpoints(options.directory, services,
                             {tls.files.ca, tls.files.cert, tls.files.key, tls.name, tls.roles});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Serving>> Serving::Start(const Stages& stages) {
  OXBOW_ASSIGN_OR_RETURN(LearnerLoop::Options loop,
                         OptionsOfLoop(stages.start, stages.peers.log->resumed_wall_seconds()));
  std::unique_ptr<Serving> serving(new Serving(stages, std::move(loop)));
  OXBOW_ASSIGN_OR_RETURN(
      serving->server_, rpc::Server::Start({.listen = stages.start.options.listen},
                                           {&serving->coordinator_service_, &serving->sink_service_,
                                            stages.publication.channel.get(), &serving->leader_}));
  return serving;
}

Serving::Serving(const Stages& stages, LearnerLoop::Options loop)
    : stages_(stages),
      loop_(std::move(loop), PartsOfLoop(),
            RulesOf(stages.start.setup, stages.start.from, *stages.planning.prompts,
                    *stages.model.conditioning, stages.planning.buffer.get())),
      coordinator_service_(
          *stages.planning.coordinator,
          [this](v1::StatusResponse& status) {
            stages_.peers.progress->FillStatus(status);
            leader_.FillStatus(status);
          },
          v1::RegisterResponse(),
          [this](const std::string& reason) { Drain(absl::StrCat("a Drain call: ", reason)); },
          [this](const std::string& worker) {
            return stages_.publication.channel->RelayOf(worker);
          }),
      sink_service_(*stages.planning.coordinator, *stages.planning.budget,
                    GroupRulesOf(stages.start.setup), *stages.peers.metrics),
      leader_({.ranks = stages.ranks.size(),
               .timeout = stages.start.options.place.operation_timeout,
               .group_bytes_max = GroupRulesOf(stages.start.setup).GroupBytesMax(),
               .drain = [this](const std::string& by) { Drain(by); }},
              Clock::Steady(), *stages.planning.coordinator,
              [this](const absl::Status& why) {
                stages_.planning.assembler->Stop(why);
                stages_.ranks.Abort(why);
              }),
      checkpoints_(stages, leader_) {}

LoopParts Serving::PartsOfLoop() {
  const auto& [start, model, ranks, trainer, peers, planning, publication] = stages_;
  const auto announce = [this](LearnerStep step, const StepGroups& groups) {
    leader_.Announce(step, groups);
  };
  const auto checkpoint = [this](RunState state) {
    state.reward_identities = reward_identities_;
    return checkpoints_.Begin(std::move(state));
  };
  std::function<uint64_t()> copies_failed;
  if (!start.setup.config.checkpoint().copy_to().empty()) {
    copies_failed = [this] { return checkpoints_.copies_failed(); };
  }
  return {.trainer = trainer,
          .conditioning = *model.conditioning,
          .prompts = *planning.prompts,
          .coordinator = *planning.coordinator,
          .assembler = *planning.assembler,
          .buffer = planning.buffer.get(),
          .step_log = *peers.step_log,
          .progress = *peers.progress,
          .metrics = *peers.metrics,
          .ranges = ranges_,
          .log = *peers.log,
          .announce = announce,
          .publish = [publisher = publication.publisher.get()](
                         PolicyVersion version,
                         LearnerStep committed) { return publisher->Publish(version, committed); },
          .begin_evaluation = [this](auto owed) { return BeginEvaluation(owed); },
          .await_evaluation = [this] { return AwaitEvaluation(); },
          .cancel_scoring = [this] { CancelScoring(); },
          .await_checkpoint = [this] { return checkpoints_.Finish(); },
          .checkpoint_ended = [this] { return checkpoints_.Ended(); },
          .checkpoint = checkpoint,
          .copies_failed = copies_failed,
          .logged = [report = peers.report.get()] { report->Ask(); }};
}

// `owed`: the weights after these many steps, which may be none that the policy has.
absl::Status Serving::BeginEvaluation(std::optional<uint64_t> owed) {
  Evaluation& evaluation = *stages_.publication.evaluation;
  const PolicyVersion version = stages_.trainer.version();
  if (!owed.has_value() || *owed == stages_.start.from.committed_steps) {
    return evaluation.Begin(version);
  }
  OXBOW_ASSIGN_OR_RETURN(const model::NamedTensors weights,
                         OwedWeightsOf(*stages_.start.resumed, *owed));
  return evaluation.Begin(version, &weights);
}

absl::StatusOr<EvaluationResult> Serving::AwaitEvaluation() {
  absl::StatusOr<EvaluationResult> result = stages_.publication.evaluation->Await(
      [this] { return stages_.planning.assembler->stopped(); });
  if (result.ok()) {
    stages_.publication.publisher->Evaluated(result->metrics.at(metric::kEvalRewardMean));
  }
  return result;
}

void Serving::CancelScoring() {
  if (stages_.publication.evaluation != nullptr) stages_.publication.evaluation->Cancel();
  stages_.peers.rewards->Cancel();
}

absl::Status Serving::Announce() {
  const RunOptions& options = stages_.start.options;
  const RunSetup& setup = stages_.start.setup;
  std::string endpoint = server_->endpoint();
  OXBOW_RETURN_IF_ERROR(stages_.ranks.BroadcastBytes(endpoint, 0));
  OXBOW_RETURN_IF_ERROR(leader_.AwaitAll(options.place.operation_timeout));
  std::vector<std::string> sinks = leader_.sinks();
  sinks.insert(sinks.begin(), endpoint);
  OXBOW_ASSIGN_OR_RETURN(registration_, RegistrationOf(setup, stages_.start.epoch,
                                                       {.learner = endpoint,
                                                        .sinks = sinks,
                                                        .rewards = options.reward_endpoints,
                                                        .buffers = options.buffer_endpoints}));
  coordinator_service_.SetRegistration(registration_);
  const std::string& metrics = stages_.peers.exposer->endpoint();
  if (!options.supervised) {
    OXBOW_RETURN_IF_ERROR(WriteOwnEndpoints(options, server_->endpoint(), metrics));
  }
  LogMemoryLimits({{"received", setup.config.services().sink_bytes_max()},
                   {"backlog", LimitOf(kBacklogShare)},
                   {"prompts", LimitOf(kPromptsShare)},
                   {"grpc", LimitOf(kGrpcShare)}});
  rpc::AnnounceReady("learner", server_->endpoint(), metrics);
  return absl::OkStatus();
}

// Checks the rewards with what the run has them score. From then on a server whose reward is
// another is asked by nobody.
absl::Status Serving::PinRewards() {
  const RunStart& start = stages_.start;
  reward::RewardClient& rewards = *stages_.peers.rewards;
  OXBOW_RETURN_IF_ERROR(
      TryRewards(rewards, start.setup, *stages_.peers.progress, [this](const std::string& why) {
        stages_.planning.coordinator->events().NoteFailure(kRewardCheck, why);
      }));
  std::map<std::string, reward::RewardFacts> facts = rewards.Facts();
  if (!start.options.accept_reward_change) {
    OXBOW_RETURN_IF_ERROR(CheckIdentities(facts, start.from.reward_identities));
  }
  reward_identities_ = IdentitiesOf(facts, start.from.reward_identities);
  std::erase_if(facts, [&](const auto& reward) {  // That protocol has no range.
    return run::ScorerOf(start.setup.config.reward(), reward.first).kind() == "json";
  });
  ranges_ = RangeWatch(std::move(facts));
  rewards.Pin(reward_identities_);
  registration_.mutable_reward_identities()->insert(reward_identities_.begin(),
                                                    reward_identities_.end());
  coordinator_service_.SetRegistration(registration_);
  for (const auto& [name, identity] : reward_identities_) {
    OXBOW_LOG(Info) << "reward" << Field("reward", name) << Field("identity", identity);
  }
  return absl::OkStatus();
}

void Serving::Drain(const std::string& by) {
  {
    absl::MutexLock lock(&mutex_);
    if (drained_by_.empty()) drained_by_ = by;
  }
  loop_.RequestDrain();
}

// OK after the last step.
absl::Status Serving::EarlyEnd() const {
  const uint64_t steps = stages_.start.setup.config.run().steps();
  if (loop_.stop_reason().has_value()) {
    return ErrorOf(kExitStopped, absl::StrCat("stopped at step ", committed(), " of ", steps, ": ",
                                              *loop_.stop_reason()));
  }
  if (committed() == steps) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  return ErrorOf(kExitDrained, absl::StrCat("drained at step ", committed(), " of ", steps, " by ",
                                            drained_by_, "; started with --resume it goes on"));
}

// How an orderly end came about.
absl::Status Serving::WriteEnd(const absl::Status& early, const std::string& uncopied) const {
  run::EndRecord record{.end = run::RunEnd::kDone,
                        .step = committed(),
                        .exit_code = ExitCodeOf(early),
                        .time = absl::Now()};
  if (record.exit_code == kExitStopped) {
    record.end = run::RunEnd::kByRule;
    record.reason = *loop_.stop_reason();
  } else if (record.exit_code == kExitDrained) {
    record.end = run::RunEnd::kInterrupted;
    absl::MutexLock lock(&mutex_);
    record.reason = absl::StrCat("drained by ", drained_by_);
  }
  if (!uncopied.empty()) {
    absl::StrAppend(&record.reason, record.reason.empty() ? "" : "; ", run::kUncopied, uncopied);
  }
  return run::WriteEnd(stages_.start.options.directory, record);
}

// The final weights, and the record of the end.
absl::Status Serving::WriteResult(const absl::Status& early) {
  const RunStart& start = stages_.start;
  return loop_.disk().Persist("weights", [&]() -> absl::Status {
    OXBOW_RETURN_IF_ERROR(start.options.check_directory());
    if (committed() == 0) return WriteEnd(early);  // Nothing was trained: no weights/.
    OXBOW_RETURN_IF_ERROR(WriteFinalWeights(
        start.options.directory / "weights", *stages_.model.policy, start.setup.config,
        start.setup.model.transformer_config_json, stages_.trainer.version()));
    return WriteEnd(early);
  });
}

absl::Status Serving::Run() {
  OXBOW_RETURN_IF_ERROR(Announce());
  const RunOptions& options = stages_.start.options;
  options.stop->Finish([this](int signal) { Drain(rpc::NameOfSignal(signal)); });
  absl::Status status = PinRewards();
  if (status.ok()) status = loop_.Run();
  if (stages_.publication.evaluation != nullptr && !status.ok()) CancelScoring();
  const absl::Status end = status.ok() ? EarlyEnd() : absl::OkStatus();
  const bool complete = status.ok() && ExitCodeOf(end) != kExitDrained;
  if (status.ok()) status = WriteResult(end);
  // `oxbow train` writes the last report of its runs, also where the learner was killed.
  if (options.supervised || committed() == 0) {
    stages_.peers.report->Stop();
  } else {
    stages_.peers.report->WriteLast();
  }
  const std::string uncopied =
      status.ok() ? checkpoints_.AwaitCopies(committed(), complete) : std::string();
  if (!uncopied.empty()) WriteEnd(end, uncopied).IgnoreError();  // It is written, without this.
  stages_.planning.coordinator->Drain(complete && status.ok() ? DrainReason::kRunComplete
                                                              : DrainReason::kLearnerEnds);
  stages_.publication.channel->Stop();
  options.ending();
  leader_.Stop(kRanksGrace, end);
  server_->Shutdown(kShutdownGrace);
  return status.ok() ? end : status;
}

}  // namespace oxbow::learner
