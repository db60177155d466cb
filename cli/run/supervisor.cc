// SPDX-License-Identifier: Apache-2.0
#include "cli/run/supervisor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/exit_code.h"

namespace oxbow::cli {
namespace {

constexpr int kSignalBase = 128;

std::string Ended(const std::string& child, int code) {
  return code > kSignalBase ? absl::StrCat(child, " was ended by signal ", code - kSignalBase)
                            : absl::StrCat(child, " ended with exit code ", code);
}

}  // namespace

Supervisor::Supervisor(Options options, const Clock& clock) : options_(options), clock_(clock) {}

void Supervisor::Started(const std::string& child, Role role) {
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
  children_.at(child).ready = true;
  children_.at(child).was_ready = true;
}

bool Supervisor::AnyAlive() const {
  return std::any_of(children_.begin(), children_.end(),
                     [](const auto& c) { return c.second.alive; });
}

std::vector<Supervisor::Action> Supervisor::Exited(const std::string& name, int code) {
  Child& child = children_.at(name);
  OXBOW_CHECK(child.alive) << name << " exited twice";
  child.alive = false;
  child.ready = false;
  if (phase_ == Phase::kStopping) {
    if (!AnyAlive()) phase_ = Phase::kDone;
    return {};
  }
  if (child.role == Role::kLearner && code == kExitOk) return Stop();
  if (child.role == Role::kLearner && phase_ == Phase::kDraining) {
    return Fail(name, code, absl::StrCat("while draining, ", Ended(name, code)));
  }
  // The learner has told it that the run is complete, and is about to end as well.
  if (child.role == Role::kWorker && code == kExitOk) {
    child.due = clock_.Now() + options_.backoff_max;
    return {};
  }
  if (IsFinal(code)) return Fail(name, code, Ended(name, code));
  if (committed_ > child.committed) {
    child.committed = committed_;
    child.restarts = 0;
    child.not_finite = false;
  }
  if (code == kExitNotFinite && std::exchange(child.not_finite, true)) {
    return Fail(name, code,
                absl::StrCat(Ended(name, code), " twice without a committed step between"));
  }
  if (child.restarts >= options_.restarts_max) {
    return Fail(name, code,
                absl::StrCat(Ended(name, code), ", after ", child.restarts,
                             " restarts without a committed step"));
  }
  Restart(child);
  return {};
}

void Supervisor::Restart(Child& child) {
  const absl::Duration backoff = options_.backoff_first * (1 << std::min(child.restarts, 20));
  child.due = clock_.Now() + std::min(backoff, options_.backoff_max);
  ++child.restarts;
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
  exit_code_ = kSignalBase + signal;
  for (const auto& [name, child] : children_) {
    if (child.role == Role::kLearner && child.alive && child.ready) {
      phase_ = Phase::kDraining;
      deadline_ = clock_.Now() + options_.drain_max;
      return {{Do::kDrain, name}};
    }
  }
  return Stop();
}

std::vector<Supervisor::Action> Supervisor::DrainFailed() {
  for (const auto& [name, child] : children_) {
    if (phase_ == Phase::kDraining && child.role == Role::kLearner && child.alive) {
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
    actions.push_back({Do::kStart, name, child.role == Role::kLearner && child.was_ready});
  }
  return actions;
}

}  // namespace oxbow::cli
