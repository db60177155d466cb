// SPDX-License-Identifier: Apache-2.0
#include "cli/run/status.h"

#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "cli/report/run_summary.h"
#include "cli/run/run_display.h"
#include "cli/run_option.h"
#include "cli/terminal.h"
#include "core/lease/worker_book.h"
#include "metrics/step_metrics.h"
#include "oxbow/v1/coordinator.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/port_language.h"
#include "rpc/status.h"
#include "rpc/tls_flags.h"
#include "run/endpoints_file.h"
#include "run/run_lock.h"

namespace oxbow::cli {
namespace {

absl::StatusOr<std::string> LearnerOf(const std::string& run_dir) {
  const auto services = run::ReadEndpoints(run_dir);
  const bool starting =
      absl::IsNotFound(services.status()) && std::filesystem::exists(run_dir + "/LOCK");
  if (!services.ok() && !starting) return services.status();
  for (const run::ServiceEndpoint& service :
       starting ? std::vector<run::ServiceEndpoint>() : *services) {
    if (service.name == "learner" && !service.grpc.empty()) return service.grpc;
  }
  return absl::NotFoundError(absl::StrCat("the run has no learner yet: ", run_dir));
}

constexpr int kQuarantinedShown = 5;

struct StatusFlags {
  std::string endpoint;
  std::string run_dir;
  std::string format = "text";
  double watch_s = 0;  // 0: show once.
  double timeout_s = 5;
  rpc::TlsOptions tls;
};

absl::StatusOr<std::string> EndpointOf(const StatusFlags& flags) {
  if (!flags.endpoint.empty()) return flags.endpoint;
  return LearnerOf(flags.run_dir);
}

// Processes of the run that `oxbow train` starts again; `prefix` names them as it does.
std::string TroubleOfProcesses(const std::string& run_dir, const std::string& prefix) {
  std::string text;
  const auto services = run::ReadEndpoints(run_dir);
  for (const run::ServiceEndpoint& service :
       services.ok() ? *services : std::vector<run::ServiceEndpoint>()) {
    if (service.trouble.empty() || !absl::StartsWith(service.name, prefix)) continue;
    text += LabelledLine("process", absl::StrCat(service.name, " ", service.trouble));
  }
  return text;
}

absl::StatusOr<v1::StatusResponse> Ask(const StatusFlags& flags) {
  OXBOW_ASSIGN_OR_RETURN(const std::string learner, EndpointOf(flags));
  auto status = AskStatus(learner, absl::Seconds(flags.timeout_s));
  if (status.ok()) return status;
  if (!flags.run_dir.empty()) {
    const std::string trouble = TroubleOfProcesses(flags.run_dir, "learner");
    if (!trouble.empty()) {
      return absl::UnavailableError(
          absl::StripAsciiWhitespace(absl::StripPrefix(trouble, "process")));
    }
  }
  return NoStatus(rpc::Explained(status.status(), learner), learner);
}

absl::Status ShowEnded(const StatusFlags& flags) {
  OXBOW_ASSIGN_OR_RETURN(const RunSummary run, SummaryOf(flags.run_dir));
  if (flags.format == "json") {
    nlohmann::ordered_json json = {{"run_name", run.name},
                                   {"state", run.state()},
                                   {"learner_step", run.step},
                                   {"steps_total", run.steps_total}};
    if (run.last) json["held_out"] = run.last->y;
    if (run.best_checkpoint) {
      json["best_checkpoint"] = {{"step", run.best_checkpoint->step},
                                 {"metric", run.best_checkpoint->metric},
                                 {"value", run.best_checkpoint->value}};
    }
    if (run.ended) {
      json["reason"] = run.ended->reason;
      json["exit_code"] = run.ended->exit_code;
    }
    json["evaluations_failed"] = run.evaluations_failed;
    if (run.evaluation_failure) {
      json["evaluation_failure"] = io::FailureText(*run.evaluation_failure);
    }
    json["samples_unscored"] = run.samples_unscored;
    if (!run.unscored_reason.empty()) json["unscored_reason"] = run.unscored_reason;
    // A server's words are any bytes.
    std::cout << json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
              << "\n";
  } else {
    std::cout << EndedText(run, flags.run_dir);
  }
  return absl::OkStatus();
}

// The five lines on what the run has logged so far; empty without its directory.
std::string VerdictOfRun(const std::string& run_dir, io::RunReading& reading) {
  if (run_dir.empty()) return "";
  const auto run = SummaryOf(run_dir, reading);
  if (!run.ok()) return "";
  std::string text;
  if (run->best_checkpoint) {
    absl::StrAppendFormat(&text, "best       checkpoint of step %d, %s %.4g\n",
                          run->best_checkpoint->step, run->best_checkpoint->metric,
                          run->best_checkpoint->value);
  }
  return absl::StrCat(text, "\n", io::VerdictText(run->verdict));
}

// Repeats until the learner is gone, which is an error only before its first answer. A restarted
// learner has the same address, so a single failed call is not its end.
absl::Status Show(const StatusFlags& flags) {
  const absl::Status tls = rpc::UseTls(TlsOfRun(flags.tls, flags.run_dir)).status();
  constexpr int kSilencesMax = 3;
  StepRate rate;
  io::RunReading reading(flags.run_dir);
  bool answered = false;
  const bool clears =
      flags.watch_s > 0 && flags.format == "text" && TerminalColumns(STDOUT_FILENO).has_value();
  if (!flags.run_dir.empty() && !run::IsLive(flags.run_dir)) {
    // The learner of a file system without locks may be alive nonetheless. Of a run that has ended
    // nobody is called, whatever the environment says of TLS.
    if (!tls.ok()) return ShowEnded(flags);
    const absl::Status asked = Ask(flags).status();
    if (!asked.ok() && !IsRefusal(asked)) return ShowEnded(flags);
  }
  OXBOW_RETURN_IF_ERROR(tls);
  for (int silences = 0;;) {
    const auto status = Ask(flags);
    if (status.ok()) {
      silences = 0;
      answered = true;
      rate.Observe(Clock::Steady().Now(), status->learner_step());
      const std::string text = flags.format == "json"
                                   ? StatusJson(*status)
                                   : absl::StrCat(StatusText(*status, rate.per_second()),
                                                  TroubleOfProcesses(flags.run_dir, ""),
                                                  VerdictOfRun(flags.run_dir, reading));
      // Moves the cursor home, clears the rest of each line as it is written, then clears all
      // below: no flicker.
      std::cout << (clears ? absl::StrCat("\x1b[H", absl::StrReplaceAll(text, {{"\n", "\x1b[K\n"}}),
                                          "\x1b[J")
                           : text)
                << std::flush;
    } else if (!answered || ++silences >= kSilencesMax) {
      if (!answered) return status.status();
      std::cerr << "the learner no longer answers: the run has ended, or its machine is away\n";
      return absl::OkStatus();
    }
    if (flags.watch_s <= 0) return absl::OkStatus();
    absl::SleepFor(absl::Seconds(flags.watch_s));
    if (!clears && flags.format == "text") std::cout << "\n";
  }
}

// "digits_row" -> "digits_row (observed)", where the run does not train on it.
std::string RewardLabel(const v1::StatusResponse& status, std::string_view name) {
  const auto& observed = status.rewards_observed();
  const bool marked = std::find(observed.begin(), observed.end(), name) != observed.end();
  return absl::StrCat(std::string(name), marked ? " (observed)" : "");
}

// Each reward by its own name, and the share of groups without a signal.
std::string RewardLine(const v1::StatusResponse& status) {
  std::string line;
  for (const v1::NamedValue& number : status.metrics()) {
    const auto reward = metric::kTrainRewardNameMean.ValueIn(number.name());
    if (!reward.has_value() || number.name() == metric::kTrainRewardGroupStdMean.name) continue;
    absl::StrAppend(&line, line.empty() ? "" : ", ", RewardLabel(status, *reward),
                    absl::StrFormat(" %.3f", number.value()));
  }
  if (const auto equal = Metric(status, metric::kTrainRewardZeroStdRatio)) {
    absl::StrAppend(&line, line.empty() ? "" : "; ",
                    absl::StrFormat("%.0f %% of groups without a signal", 100 * *equal));
  }
  return LabelledLine("rewards", line);
}

std::string BufferLine(const v1::StatusResponse& status) {
  const auto attached = Metric(status, metric::kBufferAttached);
  if (!attached.has_value()) return "";
  if (*attached == 0) return "replay     the buffer is away, training goes on without it\n";
  std::string line = "replay     ";
  if (const auto size = Metric(status, metric::kBufferSize)) {
    absl::StrAppendFormat(&line, "%.0f entries", *size);
  }
  if (const auto age = Metric(status, metric::kBufferAgeMean)) {
    absl::StrAppendFormat(&line, ", %.1f steps old", *age);
  }
  if (const auto reward = Metric(status, metric::kBufferRawRewardMean)) {
    absl::StrAppendFormat(&line, ", reward %.3f", *reward);
  }
  return line + "\n";
}

std::string CopiesLine(const v1::StatusResponse& status) {
  const auto failed = Metric(status, metric::kCheckpointCopiesFailed);
  if (!failed.has_value() || *failed == 0) return "";
  return LabelledLine(
      "copies",
      absl::StrFormat("%.0f copies of checkpoints failed: the learner's log says why", *failed));
}

// Failures, and the samples that were left out because they have no score.
std::string TroubleText(const v1::StatusResponse& status) {
  std::string text = LabelledLine("trouble", TroubleOf(status));
  if (Metric(status, metric::kEvalFailed)) {
    const v1::Failure& failure = status.last_failure();
    const bool known = failure.what() == "evaluation";
    text += LabelledLine("failed", absl::StrCat("the last evaluation", known ? ": " : "",
                                                known ? failure.reason() : ""));
  }
  for (const std::string& notice : status.notices()) text += LabelledLine("notice", notice);
  if (status.samples_unscored() > 0) {
    text += LabelledLine(
        "unscored", absl::StrCat(status.samples_unscored(),
                                 " samples dropped: a reward server answered without a score"));
  }
  if (status.prompts_quarantined() > 0) {
    text += LabelledLine("quarantine", absl::StrCat(status.prompts_quarantined(),
                                                    " prompts have images without a score"));
  }
  for (int i = 0; i < std::min(status.quarantined_size(), kQuarantinedShown); ++i) {
    const v1::QuarantinedPrompt& prompt = status.quarantined(i);
    absl::StrAppend(&text, "           \"", prompt.text(), "\", step ", prompt.learner_step(), ": ",
                    prompt.reason(), "\n");
  }
  return text;
}

std::string PeersText(const v1::StatusResponse& status) {
  std::string text;
  for (const std::string& other : OtherVersions(status)) {
    text += LabelledLine("version", absl::StrCat(other, ", the learner oxbow ", status.version()));
  }
  for (const v1::RankStatus& rank : status.ranks()) {
    absl::StrAppendFormat(&text, "rank %-5d seen %.1f s ago, metrics at %s\n", rank.rank(),
                          rank.seconds_since_seen(), rank.metrics_endpoint());
  }
  if (status.workers().empty()) {
    return text + "no worker is connected: rollout_worker --learner HOST:PORT starts one\n";
  }
  absl::StrAppendFormat(&text, "%-28s %8s %7s %7s %10s\n", "worker", "version", "leases", "groups",
                        "seen");
  for (const v1::WorkerStatus& worker : status.workers()) {
    absl::StrAppendFormat(&text, "%-28s %8d %7d %7d %8.1f s\n", worker.worker_id(),
                          worker.policy_version(), worker.leases(), worker.groups_done(),
                          worker.seconds_since_seen());
  }
  for (const v1::WorkerStatus& worker : status.workers()) {
    if (worker.failures() < lease::WorkerBook::Rule().failures_max) continue;
    text += LabelledLine(
        "bad", absl::StrCat(worker.worker_id(), ": ", worker.failures(),
                            " leases failed one after another, ",
                            worker.rests_seconds() > 0
                                ? absl::StrFormat("the next in %.0f s: ", worker.rests_seconds())
                                : "it is being tried: ",
                            worker.failure()));
  }
  return text;
}

}  // namespace

absl::StatusOr<v1::StatusResponse> AskStatus(const std::string& endpoint, absl::Duration timeout) {
  const auto stub = v1::Coordinator::NewStub(rpc::Connect(endpoint));
  v1::StatusResponse response;
  const grpc::Status status =
      stub->Status(rpc::ContextWithDeadline(timeout).get(), v1::StatusRequest(), &response);
  if (!status.ok()) return rpc::FromGrpc(status);
  return response;
}

bool IsRefusal(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status);
}

absl::Status NoStatus(const absl::Status& why, const std::string& learner) {
  if (absl::IsUnimplemented(why)) {
    return Annotate(why, absl::StrCat("no learner is at ", learner));
  }
  if (!IsRefusal(why)) {
    return Annotate(why, absl::StrCat("no learner answers at ", learner, " (has the run ended?)"));
  }
  return absl::Status(why.code(),
                      absl::StrCat("something answers at ", learner,
                                   ", and the call is refused: ", std::string(why.message()),
                                   " (people use a certificate of the role "
                                   "operator: --tls-cert and --tls-key, docs/operations.md#tls)"));
}

std::string StatusText(const v1::StatusResponse& status, std::optional<double> steps_per_second) {
  const double images = Metric(status, metric::kTrainSamples).value_or(0);
  if (!steps_per_second.has_value()) {
    if (const auto rate = Metric(status, metric::kThroughputSamplesPerS); rate && images > 0) {
      steps_per_second = *rate / images;
    }
  }
  std::string text = absl::StrCat(
      LabelledLine("run", absl::StrCat(status.run_name(), "  (epoch ", status.epoch(), ", ",
                                       ClockText(status.wall_seconds()), ")")),
      LabelledLine("progress",
                   ProgressLine(status, steps_per_second, static_cast<uint64_t>(images))),
      LabelledLine("doing", absl::StrFormat("%s, last step %.1f s ago", status.phase(),
                                            status.seconds_since_step())),
      LabelledLine("limit", Bottleneck(status)), RewardLine(status),
      LabelledLine("weights", absl::StrCat("version ", status.policy_version(), ", published ",
                                           status.published_version())),
      LabelledLine(
          "groups",
          absl::StrFormat("%d running (the oldest for %.1f s), %d ready", status.groups_running(),
                          status.lease_age_max_seconds(), status.groups_ready())));
  if (status.leases_expired() + status.leases_speculated() + status.groups_discarded() > 0) {
    text += LabelledLine(
        "leases", absl::StrCat(status.leases_expired(), " expired, ", status.leases_speculated(),
                               " of stragglers given twice; ", status.groups_discarded(),
                               " results discarded"));
  }
  return absl::StrCat(text, BufferLine(status), CopiesLine(status), TroubleText(status),
                      PeersText(status));
}

std::string StatusJson(const v1::StatusResponse& status) {
  std::string message;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  const auto printed = google::protobuf::util::MessageToJsonString(status, &message, options);
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(message, nullptr, false);
  OXBOW_CHECK(printed.ok() && json.is_object()) << message;
  const auto as_object = [&](const char* key, const auto& values) {
    json[key] = nlohmann::ordered_json::object();
    for (const v1::NamedValue& value : values) {
      json[key][value.name()] = std::isfinite(value.value()) ? nlohmann::ordered_json(value.value())
                                                             : nlohmann::ordered_json(nullptr);
    }
  };
  as_object("metrics", status.metrics());
  as_object("time_share", status.time_share());
  return json.dump() + "\n";
}

void AddStatus(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<StatusFlags>();  // Lives as long as the callback below.
  CLI::App* command = app.add_subcommand("status", "Show what a run is doing, or what it reached");
  command->footer(
      "Example: oxbow status runs/digits --watch 2\n"
      "With --watch, --format json prints one object a line.");
  auto* endpoint =
      command->add_option("--addr,--learner", flags->endpoint, "host:port of the learner");
  AddRunDirectory(*command, flags->run_dir)->excludes(endpoint);
  command->add_option("--watch", flags->watch_s, "ask again every so many seconds; default 2")
      ->expected(0, 1)
      ->default_str("2")
      ->check(CLI::Range(0.1, 3600.0));
  AddFormat(*command, flags->format);
  AddTimeout(*command, flags->timeout_s, "timeout of one call, in seconds");
  rpc::AddTlsFlags(*command, flags->tls);
  command->callback([flags, &exit_code] {
    exit_code = Ended("status",
                      flags->endpoint.empty() && flags->run_dir.empty()
                          ? absl::InvalidArgumentError("name a run: runs/NAME or --addr HOST:PORT")
                          : Show(*flags));
  });
}

}  // namespace oxbow::cli
