#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/oncall/run_checks.h"
#include "cli/plan/check_files.h"
#include "cli/run/fleet.h"
#include "cli/run/progress_line.h"
#include "cli/run/run_directory.h"
#include "cli/run/status.h"
#include "config/run_config.h"
#include "io/metrics_file.h"
#include "io/report/report.h"
#include "metrics/step_metrics.h"
#include "rpc/certificate_files.h"
#include "rpc/grpc_hold.h"
#include "rpc/tls.h"
#include "rpc/tls_flags.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kPollEvery = absl::Milliseconds(50);
constexpr absl::Duration kShowEvery = absl::Milliseconds(500);  // On a terminal.
constexpr absl::Duration kLogEvery = absl::Seconds(10);         // Elsewhere.

struct Flags {
  std::string file;
  std::vector<std::string> set;
  std::string name;
  bool resume = false;
  bool accept_reward_change = false;
  bool overwrite = false;
  bool set_aside = false;
  bool no_progress = false;
  rpc::TlsOptions tls;
};

// What the flags say about an earlier run of this name.
absl::StatusOr<EarlierRun> EarlierRunOf(const Flags& flags) {
  if (flags.resume + flags.overwrite + flags.set_aside > 1) {
    return absl::InvalidArgumentError(
        "--resume, --set-aside and --overwrite exclude each other; choose one");
  }
  if (flags.resume) return EarlierRun::kResume;
  if (flags.overwrite) return EarlierRun::kOverwrite;
  return flags.set_aside ? EarlierRun::kSetAside : EarlierRun::kRefuse;
}

absl::StatusOr<config::ResolvedConfig> ResolveAndCheck(const Flags& flags) {
  std::vector<std::string> set = flags.set;
  if (!flags.name.empty()) set.push_back("run.name=" + flags.name);
  OXBOW_ASSIGN_OR_RETURN(config::ResolvedConfig resolved,
                         config::LoadRunConfig(flags.file, set, config::ProcessEnvironment()));
  const std::vector<config::Problem> problems = CheckRun(resolved.config);
  OXBOW_RETURN_IF_ERROR(config::FirstError(problems, resolved.provenance));
  for (const config::Problem& problem : problems) {
    std::cerr << "oxbow train: warning: " << config::ProblemLine(problem, resolved.provenance)
              << "\n";
  }
  return resolved;
}

// Prints what `oxbow doctor` finds wrong with this machine for this run.
void SayWhatIsNotOk(const config::ResolvedConfig& resolved, const fs::path& run_dir) {
  MachineNeeds needs;
  Checks checks = CheckConfig(resolved, needs);
  std::erase_if(checks,
                [](const Check& check) { return check.name != "device"; });  // Others: said.
  needs.other_machines = SpansMachines(resolved.config);
  for (Check& check : CheckMachine(run_dir, {}, needs, absl::InfiniteDuration())) {
    checks.push_back(std::move(check));
  }
  for (const Check& check : checks) {
    if (check.verdict == Verdict::kOk) continue;
    std::cerr << "oxbow train: " << (check.verdict == Verdict::kFail ? "fail: " : "warning: ")
              << check.area << "/" << check.name << ": " << check.found << " (" << check.fix
              << ")\n";
  }
}

// Shows the progress line: rewritten in place on a terminal, a new line each time elsewhere.
class Display {
 public:
  Display(const v1::RunConfig& config, bool quiet)
      : images_(uint64_t{config.batch().groups()} * config.batch().group_size()),
        terminal_(!quiet && isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr) {}

  void Update(absl::Duration now, const std::string& learner) {
    if (learner.empty() || now < next_) return;
    next_ = now + kShowEvery;
    const auto status = AskStatus(learner, absl::Milliseconds(400));
    if (!status.ok()) return;  // The learner may be busy; the next poll will show.
    committed_ = status->learner_step();
    rate_.Observe(now, committed_);
    const std::string line = ProgressLine(*status, rate_.per_second(), images_);
    if (terminal_) {
      std::cout << "\r\033[K" << line << std::flush;
    } else if (now >= next_log_) {
      next_log_ = now + kLogEvery;
      std::cout << line << std::endl;
    }
  }
  // Committed steps that the learner last reported; 0 before its first answer.
  uint64_t committed() const { return committed_; }
  void End() {
    if (terminal_) std::cout << "\r\033[K" << std::flush;
  }

 private:
  const uint64_t images_;
  const bool terminal_;
  absl::Duration next_;
  absl::Duration next_log_;
  uint64_t committed_ = 0;
  StepRate rate_;
};

// A stop signal that arrives within `wait`; 0 if none does.
int TakeStopSignal(absl::Duration wait) {
  sigset_t blocked;  // By main: SIGHUP is not if it is ignored.
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    if (sigismember(&blocked, number) == 1) sigaddset(&signals, number);
  }
  const timespec timeout = absl::ToTimespec(wait);
  return std::max(0, sigtimedwait(&signals, nullptr, &timeout));
}

void Supervise(Fleet& fleet, Display& display) {
  const Clock& clock = Clock::Steady();
  while (true) {
    fleet.Poll();
    if (fleet.supervisor().phase() == Supervisor::Phase::kDone) break;
    display.Update(clock.Now(), fleet.learner());
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

std::optional<double> Find(const std::map<std::string, double>& line, const std::string& name) {
  const auto found = line.find(name);
  return found == line.end() ? std::nullopt : std::optional(found->second);
}

// Prints the reward before and after, and where the results are.
void Summarise(const fs::path& run_dir) {
  const auto lines = io::ReadMetrics(run_dir / "metrics.jsonl");
  if (!lines.ok() || lines->empty()) return;
  for (const std::string& name :
       {std::string(metric::kEvalRewardMean), metric::kEvalShortMean.Of("strict"),
        std::string(metric::kTrainRewardMean)}) {
    std::optional<double> first;
    std::optional<double> last;
    for (const auto& line : *lines) {
      const auto value = Find(line, name);
      if (!value) continue;
      if (!first) first = value;
      last = value;
    }
    if (first) std::cout << absl::StrFormat("%-18s %.3f -> %.3f\n", name, *first, *last);
  }
  const absl::Status report = io::WriteReport(run_dir);
  if (report.ok()) {
    std::cout << absl::StrFormat("%-18s %s\n", "report", (run_dir / "report.html").string());
  } else {
    std::cerr << "oxbow train: no report: " << report.message() << "\n";
  }
  std::cout << absl::StrFormat("%-18s %s\n", "weights", (run_dir / "weights").string())
            << absl::StrFormat("%-18s tensorboard --logdir %s\n", "curves", run_dir.string());
}

// The reason comes last, where a person looks first.
void ExplainFailure(const fs::path& run_dir, const Fleet& fleet) {
  const Supervisor& supervisor = fleet.supervisor();
  io::WriteReport(run_dir).IgnoreError();  // About the steps that were done, if any.
  std::string why = supervisor.failure();
  if (const std::string& child = supervisor.failed_child(); !child.empty()) {
    const fs::path log = fleet.LogOf(child);
    std::cerr << LogTail(log, 10) << "\n(all of it: " << log.string() << ")\n";
    absl::StrAppend(&why, ": ", fleet.LastWordsOf(child));
  }
  std::cerr << "oxbow train: " << why << "\n";
}

absl::StatusOr<int> Run(const Flags& flags) {
  ConfigureLog(LogLevel::kInfo, LogFormat::kText, "oxbow");
  OXBOW_ASSIGN_OR_RETURN(const EarlierRun earlier, EarlierRunOf(flags));
  OXBOW_RETURN_IF_ERROR(rpc::UseTls(flags.tls).status());
  OXBOW_ASSIGN_OR_RETURN(const config::ResolvedConfig resolved, ResolveAndCheck(flags));
  if (rpc::UsesTls() && flags.tls.name.empty()) {
    OXBOW_RETURN_IF_ERROR(
        rpc::CheckServesHost(flags.tls.files.cert, resolved.config.services().host()));
  }
  const fs::path run_dir =
      fs::path(resolved.config.run().directory()) / resolved.config.run().name();
  OXBOW_ASSIGN_OR_RETURN(const EnteredDirectory entered,
                         EnterRunDirectory(run_dir, earlier, resolved));
  if (!entered.said.empty()) std::cout << entered.said << std::endl;

  const rpc::GrpcHold hold;
  SayWhatIsNotOk(resolved, run_dir);
  Fleet fleet({.binaries = BinaryDirectory(),
               .run_dir = run_dir,
               .config = resolved.config,
               .resume = flags.resume,
               .accept_reward_change = flags.accept_reward_change,
               .tls = flags.tls},
              entered.lock, Clock::Steady());
  Display display(resolved.config, flags.no_progress);
  Supervise(fleet, display);

  if (!fleet.supervisor().failure().empty()) {
    ExplainFailure(run_dir, fleet);
  } else {
    Summarise(run_dir);
  }
  return fleet.supervisor().exit_code();
}

}  // namespace

void AddTrain(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<Flags>();  // Lives as long as the callback below.
  CLI::App* command = app.add_subcommand("train", "Run everything on this machine");
  command->footer(
      "Ctrl-C finishes the step and writes a checkpoint; a second one stops at once. A terminal "
      "that\ncloses does as Ctrl-C; under nohup or tmux the run goes on. Exit code 3 if the run is "
      "live.\n"
      "Example: oxbow train configs/digits.yaml --set run.steps=50 --name short");
  command->add_option("file", flags->file, "run YAML")->required();
  command->add_option("--set", flags->set, "KEY=VALUE over everything else; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--name", flags->name, "name of the run; the same as --set run.name=NAME");
  command->add_flag("--resume", flags->resume, "continue the run from its last checkpoint");
  command->add_flag("--accept-reward-change", flags->accept_reward_change,
                    "resume although a reward has another identity than before");
  command->add_flag("--set-aside", flags->set_aside,
                    "rename an earlier run of this name to NAME.1, NAME.2, ...");
  command->add_flag("--overwrite", flags->overwrite, "delete an earlier run of this name");
  command->add_flag("--no-progress", flags->no_progress, "one line per 10 s even on a terminal");
  rpc::AddTlsFlags(*command, flags->tls);
  command->callback([flags, &exit_code] {
    const auto code = Run(*flags);
    if (!code.ok()) std::cerr << "oxbow train: " << code.status().message() << "\n";
    exit_code = code.ok() ? *code : ExitCodeOf(code.status());
  });
}

}  // namespace oxbow::cli
