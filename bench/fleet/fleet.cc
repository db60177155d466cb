// SPDX-License-Identifier: Apache-2.0
#include "bench/fleet/fleet.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "bench/fleet/learner_ranks.h"

namespace oxbow::bench {
namespace {

constexpr absl::Duration kStartMax = absl::Seconds(60);
constexpr absl::Duration kEndMax = absl::Seconds(60);
constexpr absl::Duration kLook = absl::Milliseconds(20);
// The steps that are committed when a rank is killed; the leases of dead workers have expired by
// then, which the learner counts until it starts again.
constexpr size_t kRankDiesAfter = 3;

std::string Last(const std::string& text, const std::string& prefix) {
  const size_t at = text.rfind(prefix);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

double Number(const std::string& line, const std::string& key) {
  const std::string value = testing::ValueOf(line, key);
  return value.empty() ? 0 : std::stod(value);
}

}  // namespace

Fleet::Fleet(const Load& load, std::vector<std::string> argv)
    : load_(load), argv_(std::move(argv)) {}

absl::StatusOr<std::unique_ptr<testing::Process>> Fleet::Spawn(
    const std::string& role, const std::vector<std::string>& more) const {
  std::vector<std::string> argv = argv_;
  argv.push_back(absl::StrCat("--role=", role));
  argv.push_back(absl::StrCat("--directory=", load_.directory));
  argv.insert(argv.end(), more.begin(), more.end());
  return Process::Start({.argv = std::move(argv), .environment = {}});
}

absl::Status Fleet::Start() {
  const std::filesystem::path folder = std::filesystem::path(argv_[0]).parent_path();
  for (int i = 0; i < load_.rewards; ++i) {
    OXBOW_ASSIGN_OR_RETURN(rewards_.emplace_back(),
                           Process::Start({.argv = {folder / "fleet_reward"}, .environment = {}}));
  }
  for (const auto& reward : rewards_) {
    OXBOW_ASSIGN_OR_RETURN(const std::string ready, reward->WaitForLine("READY", kStartMax));
    reward_endpoints_.push_back(testing::ValueOf(ready, "grpc"));
  }
  OXBOW_RETURN_IF_ERROR(StartLearner());
  const int living = load_.workers - load_.kill_workers;
  for (int i = 0; i < load_.hosts; ++i) {
    const int first = i * living / load_.hosts;
    OXBOW_RETURN_IF_ERROR(StartHost(first, (i + 1) * living / load_.hosts - first));
  }
  if (load_.kill_workers > 0) {
    OXBOW_RETURN_IF_ERROR(StartHost(living, load_.kill_workers, {"--holds"}));
    doomed_ = std::move(hosts_.back());
    hosts_.pop_back();
  }
  return absl::OkStatus();
}

absl::Status Fleet::StartLearner() {
  ++epoch_;
  std::vector<std::string> more = {absl::StrCat("--leader=", listen_),
                                   absl::StrCat("--epoch=", epoch_)};
  for (const std::string& reward : reward_endpoints_) {
    more.push_back(absl::StrCat("--reward-endpoints=", reward));
  }
  OXBOW_ASSIGN_OR_RETURN(leader_, Spawn("leader", more));
  OXBOW_ASSIGN_OR_RETURN(const std::string ready, leader_->WaitForLine("READY", kStartMax));
  listen_ = testing::ValueOf(ready, "grpc");
  for (int rank = 1; rank < load_.ranks; ++rank) {
    OXBOW_ASSIGN_OR_RETURN(
        members_.emplace_back(),
        Spawn("member", {absl::StrCat("--leader=", listen_), absl::StrCat("--rank=", rank)}));
  }
  return absl::OkStatus();
}

absl::Status Fleet::StartHost(int first, int count, std::vector<std::string> more) {
  more.push_back(absl::StrCat("--leader=", listen_));
  more.push_back(absl::StrCat("--first=", first));
  more.push_back(absl::StrCat("--count=", count));
  OXBOW_ASSIGN_OR_RETURN(hosts_.emplace_back(), Spawn("host", more));
  return absl::OkStatus();
}

absl::Status Fleet::Run() {
  const absl::Time end = absl::Now() + absl::Seconds(load_.seconds_max);
  while (true) {
    if (absl::Now() > end) {
      return absl::DeadlineExceededError(absl::StrCat("stuck after ", steps().size(), " steps"));
    }
    KillWhatIsDue();
    for (const auto& host : hosts_) {
      if (!host->running() && steps().size() < load_.steps) {
        return absl::InternalError(absl::StrCat("a host ended: ", host->error_output()));
      }
    }
    OXBOW_ASSIGN_OR_RETURN(const bool done, LearnerIsDone());
    if (done) break;
    absl::SleepFor(kLook);
  }
  OXBOW_RETURN_IF_ERROR(End("leader", *leader_));
  for (const auto& member : members_) OXBOW_RETURN_IF_ERROR(End("member", *member));
  for (const auto& host : hosts_) OXBOW_RETURN_IF_ERROR(End("host", *host));
  for (const auto& reward : rewards_) {
    reward->Kill(SIGTERM);
    OXBOW_RETURN_IF_ERROR(End("reward", *reward));
  }
  return absl::OkStatus();
}

void Fleet::KillWhatIsDue() {
  if (doomed_ != nullptr && !Last(doomed_->output(), "HOLDS").empty()) {
    doomed_->Kill(SIGKILL);
    doomed_ = nullptr;
  }
  const bool expired = load_.kill_workers == 0 || most_expired() > 0;
  if (load_.kill_rank && !rank_killed_ && expired && steps().size() >= kRankDiesAfter) {
    members_.back()->Kill(SIGKILL);
    rank_killed_ = true;
  }
}

absl::StatusOr<bool> Fleet::LearnerIsDone() {
  if (leader_->running()) return false;
  OXBOW_ASSIGN_OR_RETURN(const int code, leader_->WaitExit(kEndMax));
  if (code == 0) return true;
  if (code != kRankLost || !rank_killed_ || epoch_ > 1) {
    std::string said = leader_->error_output();
    for (const auto& member : members_) absl::StrAppend(&said, member->error_output());
    return absl::InternalError(absl::StrCat("the learner ended with ", code, ": ", said));
  }
  members_.clear();  // Kills those that are left, as a supervisor does.
  OXBOW_RETURN_IF_ERROR(StartLearner());
  return false;
}

absl::Status Fleet::End(const std::string& role, Process& process) {
  OXBOW_ASSIGN_OR_RETURN(const int code, process.WaitExit(kEndMax));
  if (code != 0) {
    return absl::InternalError(
        absl::StrCat(role, " ended with ", code, ": ", process.error_output()));
  }
  ends_.emplace(role, Last(process.output(), "END "));
  return absl::OkStatus();
}

Fleet::Account Fleet::AccountOf(const std::string& role) const {
  Account account;
  for (auto [line, end] = ends_.equal_range(role); line != end; ++line) {
    account.mib_most = std::max(account.mib_most, Number(line->second, "mib"));
    account.cpu_s += Number(line->second, "cpu_s");
    if (role == "host" || role == "leader") {
      const double version = Number(line->second, "version");
      account.version = account.at_ms == 0 ? version : std::min(account.version, version);
      account.at_ms = std::max(account.at_ms, Number(line->second, "at_ms"));
    }
    for (const char* key :
         {"accepted", "late", "failed", "sent_bytes", "busy_ms", "content_bytes"}) {
      account.sums[key] += static_cast<uint64_t>(Number(line->second, key));
    }
    std::istringstream refused(testing::ValueOf(line->second, "refused"));
    for (std::string call; std::getline(refused, call, ',');) {
      const size_t colon = call.rfind(':');
      account.refused[call.substr(0, colon)] += std::stoull(call.substr(colon + 1));
    }
  }
  return account;
}

std::vector<std::string> Fleet::steps() const {
  std::ifstream file(StepsFile(load_));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

double Fleet::step_seconds() const {
  const std::vector<std::string> lines = steps();
  if (lines.size() < 2) return 0;
  return (Number(lines.back(), "at_ms") - Number(lines.front(), "at_ms")) / 1000 /
         static_cast<double>(lines.size() - 1);
}

double Fleet::most_expired() const {
  double most = 0;
  for (const std::string& line : steps()) most = std::max(most, Number(line, "expired"));
  return most;
}

absl::Status Fleet::CheckSteps() const {
  const std::vector<std::string> lines = steps();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (Number(lines[i], "step") != static_cast<double>(i) ||
        Number(lines[i], "groups") != static_cast<double>(load_.groups)) {
      return absl::DataLossError(absl::StrCat("line ", i, " of the steps is: ", lines[i]));
    }
  }
  if (lines.size() == load_.steps) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(lines.size(), " steps were committed"));
}

std::vector<double> Fleet::latencies_ms() const {
  std::vector<double> latencies;
  for (int i = 0; i < load_.hosts; ++i) {
    const int first = i * (load_.workers - load_.kill_workers) / load_.hosts;
    std::ifstream file(absl::StrCat(load_.directory, "/latencies-", first));
    for (double ms = 0; file >> ms;) latencies.push_back(ms);
  }
  return latencies;
}

}  // namespace oxbow::bench
