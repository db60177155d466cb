// SPDX-License-Identifier: Apache-2.0
#include "cli/run/supervisor.h"

#include <signal.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "cli/terminal.h"

namespace oxbow::cli {
namespace {

constexpr int kSignalBase = 128;
constexpr absl::Duration kComesBack = absl::Seconds(5);  // A worker that has ended well.

std::string Ended(const std::string& child, int code) {
  return code > kSignalBase ? absl::StrCat(child, " was ended by signal ", code - kSignalBase)
                            : absl::StrCat(child, " ended with exit code ", code);
}

}  // namespace

Supervisor::Supervisor(Options options, const Clock& clock) : options_(options), clock_(clock) {}

void Supervisor::Started(const std::string& child, FleetRole role) {
  Child& state = children_.try_emplace(child, Child{.role = role}).first->second;
  state.alive = true;
  state.ready = false;
  state.due = absl::InfiniteDuration();
}

// A child that never ran is not known; its owner tries again by itself.
void Supervisor::StartFailed(const std::string& child) {
  const auto found = children_.find(child);
  if (found != children_.end()) found->second.due = clock_.Now() + options_.backoff_first;
}

void Supervisor::Ready(const std::string& child) {
  Child& state = children_.at(child);
  state.ready = true;
  state.was_ready = true;
  state.ready_at = clock_.Now();
}

bool Supervisor::AnyAlive() const {
  return std::any_of(children_.begin(), children_.end(),
                     [](const auto& c) { return c.second.alive; });
}

// Whether the run waits for this one: none of its kind can take its place now. The learner starts
// only when each buffer and reward server has been ready once.
bool Supervisor::IsAlone(const Child& child) const {
  if (child.role != FleetRole::kWorker && !child.was_ready) return true;
  return std::none_of(children_.begin(), children_.end(), [&](const auto& other) {
    return &other.second != &child && other.second.role == child.role && other.second.alive;
  });
}

// Whether none of its kind that the run can do with will come back by being started again.
bool Supervisor::IsHopeless(const Child& child) const {
  if (!IsFinal(child.code)) return false;
  if (child.role != FleetRole::kWorker && !child.was_ready) return true;
  return std::all_of(children_.begin(), children_.end(), [&](const auto& other) {
    return other.second.role != child.role || (!other.second.alive && IsFinal(other.second.code));
  });
}

void Supervisor::CountDeath(Child& child, int code) {
  const absl::Duration now = clock_.Now();
  const bool progress = committed_ > child.committed;
  const bool steady = child.ready && now - child.ready_at >= options_.steady;
  child.ready = false;
  child.code = code;
  if (progress || child.deaths == 0) {
    child.committed = committed_;
    child.since = now;
    child.deaths = 0;
    child.not_finite = false;
  }
  // Where others go on, their steps say nothing of this one.
  if ((progress && IsAlone(child)) || (steady && child.role != FleetRole::kLearner))
    child.quick = 0;
  ++child.deaths;
}

std::vector<Supervisor::Action> Supervisor::Exited(const std::string& name, int code) {
  Child& child = children_.at(name);
  OXBOW_CHECK(child.alive) << name << " exited twice";
  child.alive = false;
  if (phase_ == Phase::kStopping) {
    if (!AnyAlive()) phase_ = Phase::kDone;
    return {};
  }
  if (child.role == FleetRole::kLearner &&
      (code == kExitOk || code == kExitStopped || code == kExitDrained)) {
    if (signal_ == 0) exit_code_ = code;
    return Stop();
  }
  if (child.role == FleetRole::kLearner && phase_ == Phase::kDraining) {
    return Fail(name, code, absl::StrCat("while draining, ", Ended(name, code)));
  }
  const absl::Duration now = clock_.Now();
  // The learner has told it that the run is complete, and is about to end as well.
  if (child.role == FleetRole::kWorker && code == kExitOk) {
    child.ready = false;
    child.due = now + kComesBack;
    return {};
  }
  CountDeath(child, code);
  if (IsHopeless(child)) return Fail(name, code, Ended(name, code));
  if (code == kExitNotFinite && std::exchange(child.not_finite, true)) {
    return Fail(name, code,
                absl::StrCat(Ended(name, code), " twice without a committed step between"));
  }
  const bool alone = IsAlone(child);
  if (alone && child.deaths > options_.restarts_min && now - child.since >= options_.patience) {
    return Fail(name, code,
                absl::StrCat(Ended(name, code), ", ", child.deaths, " times in ",
                             absl::FormatDuration(absl::Trunc(now - child.since, absl::Seconds(1))),
                             " without a committed step (services.patience_minutes)"));
  }
  child.due = now + std::min(options_.backoff_first * (int64_t{1} << std::min(child.quick, 20)),
                             alone ? options_.backoff_max : options_.backoff_beside_max);
  ++child.quick;
  return {};
}

absl::Duration Supervisor::Pause(const std::string& name) const {
  return std::max(children_.at(name).due - clock_.Now(), absl::ZeroDuration());
}

std::string Supervisor::TroubleOf(const std::string& name) const {
  const Child& child = children_.at(name);
  if (child.alive || child.quick == 0) return "";
  return absl::StrCat(Ended("", child.code).substr(1),
                      child.quick > 1 ? absl::StrCat(", ", child.quick, " times in a row") : "");
}

std::vector<Supervisor::Action> Supervisor::StopRequested(int signal) {
  if (signal_ != 0) {  // The second signal: stop waiting and kill.
    exit_code_ = kSignalBase + signal;
    phase_ = AnyAlive() ? Phase::kStopping : Phase::kDone;
    deadline_ = absl::InfiniteDuration();
    std::vector<Action> actions;
    for (auto& [name, child] : children_) {
      child.due = absl::InfiniteDuration();
      if (child.alive) actions.push_back({Do::kKill, name});
    }
    return actions;
  }
  signal_ = signal;
  if (phase_ != Phase::kRunning) return {};
  exit_code_ = signal == SIGUSR1 || signal == SIGUSR2 ? int{kExitDrained} : kSignalBase + signal;
  for (const auto& [name, child] : children_) {
    if (child.role == FleetRole::kLearner && child.alive && child.ready) {
      phase_ = Phase::kDraining;
      deadline_ = clock_.Now() + options_.drain_max;
      return {{Do::kDrain, name}};
    }
  }
  return Stop();
}

std::vector<Supervisor::Action> Supervisor::DrainFailed() {
  for (const auto& [name, child] : children_) {
    if (phase_ == Phase::kDraining && child.role == FleetRole::kLearner && child.alive) {
      return {{Do::kTerminate, name}};
    }
  }
  return {};
}

std::vector<Supervisor::Action> Supervisor::Abort(int exit_code, const std::string& why) {
  if (phase_ == Phase::kStopping || phase_ == Phase::kDone) return {};
  exit_code_ = exit_code;
  failure_ = why;
  return Stop();
}

std::vector<Supervisor::Action> Supervisor::Fail(const std::string& child, int code,
                                                 const std::string& why) {
  failed_child_ = child;
  return Abort(code > 0 && code < kSignalBase ? code : kExitFailure, why);
}

std::vector<Supervisor::Action> Supervisor::Stop() {
  phase_ = Phase::kStopping;
  deadline_ = clock_.Now() + options_.stop_grace;
  std::vector<Action> actions;
  for (auto& [name, child] : children_) {
    child.due = absl::InfiniteDuration();
    if (child.alive) actions.push_back({Do::kTerminate, name});
  }
  if (actions.empty()) phase_ = Phase::kDone;
  return actions;
}

std::vector<Supervisor::Action> Supervisor::Tick() {
  const absl::Duration now = clock_.Now();
  std::vector<Action> actions;
  if (now >= deadline_ && phase_ == Phase::kDraining) {
    return Abort(kExitFailure, "the learner did not finish its step in time after the stop signal");
  }
  if (now >= deadline_ && phase_ == Phase::kStopping) {
    deadline_ = absl::InfiniteDuration();
    for (const auto& [name, child] : children_) {
      if (child.alive) actions.push_back({Do::kKill, name});
    }
    return actions;
  }
  for (auto& [name, child] : children_) {
    if (child.alive || now < child.due) continue;
    child.due = absl::InfiniteDuration();
    actions.push_back({Do::kStart, name, child.role == FleetRole::kLearner && child.was_ready});
  }
  return actions;
}

}  // namespace oxbow::cli
