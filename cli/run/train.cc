// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/model/trained_part.h"
#include "cli/oncall/doctor.h"
#include "cli/plan/check_files.h"
#include "cli/plan/machine_load.h"
#include "cli/plan/reward_plan.h"
#include "cli/report/run_summary.h"
#include "cli/run/fleet.h"
#include "cli/run/run_directory.h"
#include "cli/run/run_display.h"
#include "cli/run/status.h"
#include "cli/run_option.h"
#include "cli/terminal.h"
#include "cli/version.h"
#include "config/memory_parts.h"
#include "config/run_config.h"
#include "io/metrics_file.h"
#include "io/report/report.h"
#include "io/report/svg_chart.h"
#include "io/report/verdict.h"
#include "metrics/step_metrics.h"
#include "rpc/certificate_files.h"
#include "rpc/channel.h"
#include "rpc/stop_signal.h"
#include "rpc/tls.h"
#include "rpc/tls_flags.h"
#include "run/model_facts.h"
#include "run/run_lock.h"
#include "run/run_record.h"
#include "run/start_weights.h"
#include "services/learner/record/facts_of_run.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kPollEvery = absl::Milliseconds(50);
constexpr absl::Duration kShowEvery = absl::Milliseconds(500);

struct TrainFlags {
  std::string file;        // `oxbow train` has this one,
  std::string resume_dir;  // `oxbow resume` that one.
  std::vector<std::string> set;
  std::string name;
  std::string listen;
  std::string from;
  bool resume = false;
  bool resume_if_any = false;
  bool accept_reward_change = false;
  bool overwrite = false;
  bool set_aside = false;
  bool no_progress = false;
  rpc::TlsOptions tls;
};

// "oxbow train" or "oxbow resume": begins each line to stderr.
std::string& Program() {
  static std::string& name = *new std::string();
  return name;
}

// The flags' choice for an earlier run of this name.
absl::StatusOr<EarlierRun> EarlierRunOf(const TrainFlags& flags) {
  if (flags.resume + flags.resume_if_any + flags.overwrite + flags.set_aside > 1) {
    return absl::InvalidArgumentError(
        "--resume, --resume-if-any, --set-aside and --overwrite exclude each other; choose one");
  }
  if (flags.resume) return EarlierRun::kResume;
  if (flags.overwrite) return EarlierRun::kOverwrite;
  return flags.set_aside ? EarlierRun::kSetAside : EarlierRun::kRefuse;
}

void Warn(const config::Problem& problem, const config::Provenance& provenance) {
  std::cerr << Program() << ": warning: " << config::ProblemLine(problem, provenance) << "\n";
}

fs::path DirectoryOf(const v1::RunConfig& config) {
  return fs::path(config.run().directory()) / config.run().name();
}

// The address of --listen; without it any port of services.host.
absl::StatusOr<JoinAddress> JoinOf(const TrainFlags& flags) {
  if (flags.listen.empty()) return JoinAddress();
  OXBOW_ASSIGN_OR_RETURN(JoinAddress join, ParseJoinAddress(flags.listen));
  if (const std::string warning = LoopbackWarning(join.host); !warning.empty()) {
    std::cerr << Program() << ": warning: " << warning << "\n";
  }
  return join;
}

// A stop signal that arrives within `wait`; 0 if none does.
int TakeStopSignal(absl::Duration wait) {
  const sigset_t signals = rpc::StopSignals();
  const timespec timeout = absl::ToTimespec(wait);
  return std::max(0, sigtimedwait(&signals, nullptr, &timeout));
}

absl::StatusOr<config::ResolvedConfig> ResolveAndCheck(const TrainFlags& flags,
                                                       const JoinAddress& join) {
  std::vector<std::string> set = flags.set;
  if (!flags.name.empty()) set.push_back("run.name=" + flags.name);
  if (!join.host.empty()) set.push_back("services.host=" + join.host);
  const std::vector<std::string> environment = config::ProcessEnvironment();
  OXBOW_ASSIGN_OR_RETURN(config::ResolvedConfig resolved,
                         flags.resume_dir.empty()
                             ? config::LoadRunConfig(flags.file, set, environment, GpusHere().count)
                             : config::LoadRunAgain(flags.resume_dir, set, environment));
  if (!join.host.empty()) resolved.provenance["services.host"] = "--listen";
  OXBOW_ASSIGN_OR_RETURN(
      const std::vector<config::Problem> problems,
      CheckRunWithGraphs(
          resolved.config, environment, [] { return TakeStopSignal(kPollEvery) != 0; }, std::cout));
  OXBOW_RETURN_IF_ERROR(config::FirstError(problems, resolved.provenance));
  for (const config::Problem& problem : problems) {
    Warn(problem, resolved.provenance);
  }
  // The ports of a live run are its own; who takes its directory is told of it.
  if (!run::IsLive(DirectoryOf(resolved.config))) {
    OXBOW_RETURN_IF_ERROR(CheckPorts(resolved.config, join));
  }
  OXBOW_ASSIGN_OR_RETURN(const run::ModelFacts facts, run::ReadModelFacts(resolved.config));
  const Gpus gpus = GpusHere();
  if (flags.resume || flags.resume_if_any) KeepMemory(DirectoryOf(resolved.config), resolved);
  Settle(facts, RewardBytes(resolved.config.reward()), gpus, resolved);
  const std::vector<ProcessRow> rows = ProcessesOn(gpus, resolved.config, facts);
  if (config::MemoryOf(resolved.config.model()) != config::MemoryParts()) {
    const std::string chosen = MemoryChoice(resolved, rows, gpus);
    if (!chosen.empty()) std::cout << "model.memory: " << chosen << std::endl;
  }
  const std::vector<config::Problem> memory = CheckMemory(resolved.config, rows, gpus);
  OXBOW_RETURN_IF_ERROR(FirstMemoryError(memory, resolved.provenance));
  for (const config::Problem& problem : memory) Warn(problem, resolved.provenance);
  OXBOW_RETURN_IF_ERROR(CheckOwnRewards(resolved.config, "train").status());
  return resolved;
}

// A run's own config.resolved.yaml says the name and place that it was started with.
absl::Status CheckItsOwn(const TrainFlags& flags, const fs::path& run_dir) {
  const fs::path file(flags.file);
  std::error_code ignored;
  if (!flags.resume || file.filename() != config::kResolvedConfig) return absl::OkStatus();
  const fs::path directory = fs::absolute(file, ignored).parent_path();
  if (fs::weakly_canonical(directory, ignored) == fs::weakly_canonical(run_dir, ignored)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "this file is of the run in ", file.parent_path().string(), " and would go on with ",
      run_dir.string(), ": use oxbow resume ", run::Quoted(file.parent_path().string())));
}

// The weights that --from names, if any.
absl::StatusOr<std::optional<run::StartWeights>> StartOf(const TrainFlags& flags,
                                                         const v1::RunConfig& config) {
  if (flags.from.empty()) return std::optional<run::StartWeights>();
  if (flags.resume) {
    return absl::InvalidArgumentError(
        "--from begins a new run and --resume goes on with one; choose one");
  }
  if (!config.model().lora().path().empty()) {
    return absl::InvalidArgumentError("--from and model.lora.path exclude each other; choose one");
  }
  OXBOW_ASSIGN_OR_RETURN(run::StartWeights start, StartWeightsFrom(flags.from, config));
  return std::optional(std::move(start));
}

// Faults of this machine for this run, as `oxbow doctor` finds them.
Checks WhatIsNotOk(const config::ResolvedConfig& resolved, const fs::path& run_dir) {
  MachineNeeds needs;
  Checks checks = CheckConfig(resolved, needs);
  std::erase_if(checks,
                [](const Check& check) { return check.name != "device"; });  // Others: said.
  needs.other_machines = SpansMachines(resolved.config);
  Append(CheckMachine(run_dir, {}, needs, absl::InfiniteDuration()), checks);
  std::erase_if(checks, [](const Check& check) { return check.verdict == Grade::kOk; });
  return checks;
}

std::string LineOf(const Check& check) {
  return absl::StrCat(check.area, "/", check.name, ": ", check.found, " (", check.fix, ")");
}

// kResourceExhausted for a machine on which the run is certain to end. A run that it replaces makes
// room.
absl::Status CheckRoom(const Checks& checks, EarlierRun earlier) {
  for (const Check& check : checks) {
    if (check.ends_run && (earlier != EarlierRun::kOverwrite || check.name != "disk")) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a disk is too small, nothing was started: ", LineOf(check)));
    }
  }
  return absl::OkStatus();
}

// The error of a reward that no server of reward.endpoints has; one that does not answer is a
// warning, since the run waits for it.
absl::Status AskServersElsewhere(const config::ResolvedConfig& resolved) {
  const std::vector<config::Problem> problems = CheckEndpoints(resolved.config.reward());
  for (const config::Problem& problem : problems) {
    if (problem.severity != config::Severity::kError) Warn(problem, resolved.provenance);
  }
  return config::FirstError(problems, resolved.provenance);
}

// Until the run has ended. `joinable`: workers of other machines may come, and are told where.
void Supervise(Fleet& fleet, RunDisplay& display, bool joinable) {
  const Clock& clock = Clock::Steady();
  absl::Duration next;
  while (true) {
    fleet.Poll();
    if (fleet.supervisor().phase() == Supervisor::Phase::kDone) break;
    if (joinable && !fleet.learner().empty()) {
      std::cout << JoinLine(fleet.learner(), rpc::UsesTls()) << std::endl;
      joinable = false;
    }
    if (const absl::Duration now = clock.Now(); now >= next) {
      next = now + kShowEvery;
      // The learner may be busy; the next call will show.
      absl::StatusOr<v1::StatusResponse> status = absl::UnavailableError("no learner yet");
      if (!fleet.learner().empty()) status = AskStatus(fleet.learner(), absl::Milliseconds(400));
      if (status.ok()) {
        display.Show(now, *status);
      } else {
        display.ShowSilence(now);
      }
    }
    fleet.Committed(display.committed());
    const int signal = TakeStopSignal(kPollEvery);
    const bool running = fleet.supervisor().phase() == Supervisor::Phase::kRunning;
    // A terminal that closes tells its processes, and so does its shell: that is one request.
    if (signal == 0 || (signal == SIGHUP && !running)) continue;
    display.End();
    std::cerr << (running ? "stopping after this step; once more to stop at once\n"
                          : "stopping at once\n");
    fleet.Stop(signal);
  }
  display.End();
}

void Row(const char* label, const std::string& value) {
  std::cout << absl::StrFormat("%-11s %s\n", label, value);
}

// Prints the verdict, the rewards before and after, and where the results are: what exists.
void Summarise(const fs::path& run_dir) {
  io::RunReading reading(run_dir);
  if (!reading.UpdateHistory().ok() || reading.history().empty()) return;
  const io::RunFacts facts = learner::FactsOfRun(run_dir, /*live=*/false);
  io::History rest;
  const io::History& history = io::Comparable(reading.history(), facts, rest);
  const size_t columns = TerminalColumns(STDOUT_FILENO).value_or(0);
  std::cout << "\n" << io::VerdictText(io::VerdictOf(history, facts), columns) << "\n";
  std::vector<std::string> names = {metric::kEvalRewardMean};
  const std::string family(metric::kEvalRewardNameMean.before);
  for (const std::string& name : history.NamesWithPrefix(family)) {
    if (metric::kEvalRewardNameMean.ValueIn(name).has_value()) names.push_back(name);
  }
  names.push_back(metric::kTrainRewardMean);
  for (const std::string& name : names) {
    const auto first = history.First(name), last = history.Last(name);
    if (first) Row(name.c_str(), absl::StrCat(io::Number(first->y), " -> ", io::Number(last->y)));
  }
  const absl::Status report = io::WriteReport(run_dir, facts, reading);
  if (report.ok()) {
    Row("report", (run_dir / "report.html").string());
  } else {
    std::cerr << Program() << ": no report: " << report.message() << "\n";
  }
  std::error_code ignored;
  if (fs::exists(run_dir / "weights", ignored)) Row("weights", (run_dir / "weights").string());
  Row("curves", absl::StrCat("tensorboard --logdir ", run::Quoted(run_dir.string())));
}

// Why `oxbow train` itself ended the run, and the trouble that the learner was in.
std::string OwnReason(const Supervisor& supervisor, const std::string& trouble) {
  return trouble.empty() ? supervisor.failure() : absl::StrCat(supervisor.failure(), "; ", trouble);
}

// The last words of the process that ended the run: in its log, or where a full disk kept them from
// that, in the learner's record. Else what its exit code means, and the trouble that it was in.
std::string LastWords(const fs::path& run_dir, const Fleet& fleet, const std::string& trouble) {
  const Supervisor& supervisor = fleet.supervisor();
  if (supervisor.failed_child().empty()) return "";  // `oxbow train` itself ended the run.
  std::error_code ignored;
  if (!fs::exists(run_dir, ignored)) {
    return absl::StrCat(
        "the run's directory is not there any more (`oxbow resume DIR` goes on where ",
        "it was moved to): ", run_dir.string());
  }
  const std::string words = fleet.LastWordsOf(supervisor.failed_child());
  if (!words.empty()) return words;
  const auto said = run::ReadEnd(run_dir);
  const bool same = said.has_value() && said->exit_code == supervisor.exit_code();
  if (same && !said->reason.empty()) return said->reason;
  return absl::StrCat(MeaningOf(supervisor.exit_code()), trouble.empty() ? "" : "; ", trouble);
}

// "No space left on device: FILE (learner ended with exit code 5)".
std::string FailureOf(const Supervisor& supervisor, std::string words, const std::string& trouble) {
  if (words.empty()) return OwnReason(supervisor, trouble);
  const size_t program = words.find(": ");  // "learner: No space ..."
  if (program != words.npos && words.find(' ') > program) words.erase(0, program + 2);
  return absl::StrCat(words, " (", supervisor.failure(), ")");
}

// Whether a learner came to the end that it was to come to.
bool IsOrderly(run::RunEnd end) {
  return end != run::RunEnd::kUnsaid && end != run::RunEnd::kFailed;
}

// How the run ended. The learner has said it, if it lived to say so.
run::EndRecord EndOf(const fs::path& run_dir, const Supervisor& supervisor,
                     const std::string& words, const std::string& trouble, uint64_t committed) {
  run::EndRecord record{.end = run::RunEnd::kInterrupted,
                        .step = committed,
                        .exit_code = supervisor.exit_code(),
                        .reason = supervisor.exit_code() == kExitDrained
                                      ? "drained by a signal while the learner loaded"
                                      : "stopped at once",
                        .time = absl::Now()};
  if (!supervisor.failure().empty()) {
    record.end = run::RunEnd::kFailed;
    record.reason = FailureOf(supervisor, words, trouble);
  } else if (const auto said = run::ReadEnd(run_dir); said.has_value() && IsOrderly(said->end)) {
    record = *said;
    const bool by_rule = said->end == run::RunEnd::kByRule;
    record.exit_code = by_rule ? int{kExitStopped} : supervisor.exit_code();
  }
  return record;
}

// The reason comes last, where a person looks first.
void ExplainFailure(const fs::path& run_dir, const Fleet& fleet, const std::string& words,
                    const std::string& trouble) {
  const Supervisor& supervisor = fleet.supervisor();
  // About the steps that were done, if any.
  io::WriteReport(run_dir, learner::FactsOfRun(run_dir, /*live=*/false)).IgnoreError();
  const std::string& child = supervisor.failed_child();
  std::string why = child.empty() ? OwnReason(supervisor, trouble) : supervisor.failure();
  if (!child.empty()) {
    for (const absl::string_view line : absl::StrSplit(fleet.LogTailOf(child, 10), '\n')) {
      if (!line.empty() && line != words) std::cerr << line << "\n";  // They follow.
    }
    if (fs::exists(fleet.LogOf(child)))
      std::cerr << "(all of it: " << fleet.LogOf(child).string() << ")\n";
    absl::StrAppend(&why, ": ", words);
  }
  if (supervisor.exit_code() == kExitNotFinite) {
    why += " (lower optimizer.learning_rate or optimizer.grad_norm_max)";
  }
  std::cerr << Program() << ": " << why << "\n";
}

// Says what begins, and writes it down for the report.
void Announce(const fs::path& run_dir, const config::ResolvedConfig& resolved, bool resumed,
              const EnteredDirectory& entered) {
  const BuildFacts build = ThisBuild();
  std::vector<std::string> changed;
  for (const config::ChangedKey& key : entered.changed) {
    changed.push_back(absl::StrCat(key.key, ": ", key.before, " -> ", key.now));
  }
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const absl::Status written =
      run::AppendStart(run_dir, {.time = absl::Now(),
                                 .command = run::ThisCommand(),
                                 .recipe = config::RecipesOf(resolved.provenance),
                                 .version = absl::StrCat(build.version, " (", build.git, ")"),
                                 .host = host,
                                 .resumed = resumed,
                                 .step = entered.step,
                                 .changed = changed});
  if (!written.ok()) std::cerr << Program() << ": warning: " << written.message() << "\n";
  Row("run", absl::StrCat(run_dir.string(), ", ", resolved.config.run().steps(), " steps"));
  if (const std::string from = run::StartSource(run_dir); !from.empty()) Row("starts from", from);
  for (const std::string& one : changed) {
    Row("changed", absl::StrCat(one, ", from step ", entered.step));
  }
  Row("watch", absl::StrCat("oxbow watch ", run::Quoted(run_dir.string())));
  std::cout << std::flush;
}

// Writes down and says how the run ended. Returns the exit code.
int SayEnd(const fs::path& run_dir, const Fleet& fleet, const std::string& trouble,
           uint64_t committed, uint64_t steps) {
  const std::string words = LastWords(run_dir, fleet, trouble);  // Before a record is written.
  const run::EndRecord end = EndOf(run_dir, fleet.supervisor(), words, trouble, committed);
  if (const absl::Status written = run::WriteEnd(run_dir, end); !written.ok()) {
    std::cerr << Program() << ": warning: why it ended was not written: " << written.message()
              << "\n";
  }
  if (end.end == run::RunEnd::kFailed) {
    ExplainFailure(run_dir, fleet, words, trouble);
    return end.exit_code;
  }
  Summarise(run_dir);
  if (end.end == run::RunEnd::kByRule) {
    std::cout << "stopped at step " << end.step << " of " << steps << ": " << end.reason << "\n";
  }
  if (end.end == run::RunEnd::kInterrupted && end.step < steps) {
    const bool drained = end.exit_code == kExitDrained;
    std::cout << (drained ? "drained" : "interrupted") << " at step " << end.step << " of "
              << steps;
    if (drained) std::cout << " " << absl::StripPrefix(end.reason, "drained ");
    std::cout << "; go on with: " << run::CommandToGoOn(run::ThisCommand(), run_dir) << "\n";
  }
  if (const std::string uncopied = run::UncopiedOf(end); !uncopied.empty()) {
    std::cerr << Program() << ": warning: " << uncopied << "\n";
  }
  return end.exit_code;
}

absl::StatusOr<int> TrainInFleet(TrainFlags flags) {
  OXBOW_RETURN_IF_ERROR(EarlierRunOf(flags).status());
  OXBOW_RETURN_IF_ERROR(rpc::UseTls(flags.tls).status());
  std::error_code ignored;
  if (flags.resume_dir.empty() &&
      fs::exists(fs::path(flags.file) / config::kResolvedConfig, ignored)) {
    return absl::InvalidArgumentError(
        absl::StrCat("this is a run's directory and no run file: to go on with it, oxbow resume ",
                     run::Quoted(flags.file)));
  }
  if (!flags.resume_dir.empty()) {
    if (!fs::exists(fs::path(flags.resume_dir) / config::kResolvedConfig, ignored)) {
      return NoRun(flags.resume_dir);
    }
  }
  OXBOW_ASSIGN_OR_RETURN(const JoinAddress join, JoinOf(flags));
  OXBOW_ASSIGN_OR_RETURN(const config::ResolvedConfig resolved, ResolveAndCheck(flags, join));
  if (resolved.config.services().http_proxy()) rpc::UseHttpProxy(true);  // The children, too.
  if (rpc::UsesTls() && flags.tls.name.empty()) {
    OXBOW_RETURN_IF_ERROR(
        rpc::CheckServesHost(flags.tls.files.cert, resolved.config.services().host()));
  }
  const fs::path run_dir = DirectoryOf(resolved.config);
  if (std::exchange(flags.resume_if_any, false)) flags.resume = HasRun(run_dir);
  OXBOW_ASSIGN_OR_RETURN(const EarlierRun earlier, EarlierRunOf(flags));
  OXBOW_RETURN_IF_ERROR(CheckItsOwn(flags, run_dir));
  OXBOW_ASSIGN_OR_RETURN(const std::optional<run::StartWeights> start,
                         StartOf(flags, resolved.config));
  const Checks not_ok = WhatIsNotOk(resolved, run_dir);
  OXBOW_RETURN_IF_ERROR(CheckRoom(not_ok, earlier));
  OXBOW_RETURN_IF_ERROR(AskServersElsewhere(resolved));
  OXBOW_ASSIGN_OR_RETURN(const EnteredDirectory entered,
                         EnterRunDirectory(run_dir, earlier, resolved, [&] {
                           return start ? run::WriteStart(run_dir, *start) : absl::OkStatus();
                         }));
  if (!entered.said.empty()) std::cout << entered.said << std::endl;
  if (const uint64_t steps = resolved.config.run().steps(); entered.step >= steps) {
    std::cout << "all " << steps
              << " steps are done, nothing is left to train; for more: --set run.steps=N"
              << std::endl;
  }

  OXBOW_RETURN_IF_ERROR(run::ReserveEnd(run_dir));
  Announce(run_dir, resolved, flags.resume, entered);

  const rpc::GrpcHold hold;
  for (const Check& check : not_ok) {
    std::cerr << Program() << ": warning: " << LineOf(check) << "\n";
  }
  Fleet fleet({.binaries = BinaryDirectory(),
               .run_dir = run_dir,
               .config = resolved.config,
               .join = join,
               .gpus = GpusHere().count,
               .resume = flags.resume,
               .accept_reward_change = flags.accept_reward_change,
               .tls = flags.tls},
              entered.lock, Clock::Steady());
  RunDisplay display({.run_dir = run_dir,
                      .images_per_step = uint64_t{resolved.config.batch().groups()} *
                                         resolved.config.batch().group_size(),
                      .resumed = flags.resume,
                      .columns = [quiet = flags.no_progress]() -> std::optional<size_t> {
                        return quiet ? std::nullopt : TerminalColumns(STDOUT_FILENO);
                      }},
                     std::cout);
  const bool joinable = !flags.listen.empty() ||
                        !rpc::IsLoopback(absl::StrCat(resolved.config.services().host(), ":0"));
  Supervise(fleet, display, joinable);

  return SayEnd(run_dir, fleet, display.trouble(), std::max(display.committed(), entered.step),
                resolved.config.run().steps());
}

// Adds the part that `train` and `resume` share.
void AddRun(CLI::App& command, const std::shared_ptr<TrainFlags>& flags, int& exit_code) {
  AddSettings(command, flags->set);
  command.add_option("--listen", flags->listen,
                     "HOST:PORT at which workers of other machines find the learner; the buffer "
                     "and the reward servers take the ports behind it");
  command.add_flag("--accept-reward-change", flags->accept_reward_change,
                   "resume although a reward has another identity than before");
  command.add_flag("--no-progress", flags->no_progress, "one line per 10 s even on a terminal");
  rpc::AddTlsFlags(command, flags->tls);
  rpc::AddPlaintextFlag(command, flags->tls);
  command.callback([flags, &exit_code, name = command.get_name()] {
    Program() = "oxbow " + name;
    const auto code = TrainInFleet(*flags);
    if (!code.ok()) std::cerr << Program() << ": " << code.status().message() << "\n";
    exit_code = code.ok() ? *code : ExitCodeOf(code.status());
  });
}

}  // namespace

void AddTrain(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<TrainFlags>();  // Lives as long as the callback below.
  CLI::App* command = app.add_subcommand(kTrain.name, kTrain.says);
  command->footer(
      "Ctrl-C finishes the step and writes a checkpoint; a second one stops at once. A terminal "
      "that\ncloses does as Ctrl-C; under nohup or tmux the run goes on. Exit code 3 if the run is "
      "live,\n8 if a rule of run.stop_if has ended it, 9 if somebody else has asked it to end "
      "before its last step.\n"
      "Example: oxbow train configs/digits.yaml --set run.steps=50 --name short");
  command->add_option("file", flags->file, "run YAML")->required();
  command->add_option("--name", flags->name, "name of the run; the same as --set run.name=NAME")
      ->check([](const std::string& name) {
        return name.empty() ? std::string("a run needs a name") : std::string();
      });
  command->add_option(
      "--from", flags->from,
      "RUN_DIR[@STEP|@best], or an adapter of another tool: a new run that starts from "
      "its weights");
  command->add_flag("--resume", flags->resume, "continue the run from its last checkpoint");
  command->add_flag("--resume-if-any", flags->resume_if_any,
                    "continue the run if there is one, else begin it: for launchers, which start "
                    "the same command again");
  command->add_flag("--set-aside", flags->set_aside,
                    "rename an earlier run of this name to NAME.1, NAME.2, ...");
  command->add_flag("--overwrite", flags->overwrite, "delete an earlier run of this name");
  AddRun(*command, flags, exit_code);
}

void AddResume(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<TrainFlags>();  // Lives as long as the callback below.
  flags->resume = true;
  CLI::App* command = app.add_subcommand(kResume.name, kResume.says);
  command->footer(
      "Reads the run's own config.resolved.yaml; the directory may have been renamed, moved or "
      "copied.\nModel and training prompts may lie elsewhere, if they are the same.\n"
      "Example: oxbow resume runs/digits --set run.steps=200");
  AddRunDirectory(*command, flags->resume_dir)->required();
  AddRun(*command, flags, exit_code);
}

}  // namespace oxbow::cli
