// SPDX-License-Identifier: Apache-2.0
// This process and its children. Children are spawned, never forked: gRPC does not survive a fork.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow {

// How a child starts with respect to signals: blocked and ignored ones stay so across an exec.
enum class ChildSignals {
  kInherited,
  kUnblocked,  // None is blocked, and SIGPIPE is not ignored.
  kDefault,    // None is blocked or ignored.
};

struct SpawnOptions {
  std::filesystem::path binary;
  std::vector<std::string> argv;         // argv[0] included.
  std::vector<std::string> environment;  // "NAME=value", in place of inherited ones of that name.
  std::vector<std::string> without;      // Names that the child does not inherit.
  // Descriptors that become stdout and stderr; stdin is then /dev/null. Unset: all are inherited.
  struct Output {
    int out = -1;
    int err = -1;
  };
  std::optional<Output> output;
  bool own_group = false;  // The child leads a process group of its own.
  ChildSignals signals = ChildSignals::kInherited;
};

// Starts a child and returns its id; the caller waits for it. kUnavailable if it cannot be started,
// kResourceExhausted if it could be later (no descriptor, process or memory is free); the message
// is the system's reason alone.
absl::StatusOr<pid_t> Spawn(const SpawnOptions& options);

// Reaps what has ended of a process group and was left to this process, as a process 1 of a
// container inherits the children of a shell that has ended. False when nothing of the group is
// left to it.
bool ReapGroup(pid_t group);

// This executable, links resolved. kUnavailable where the system does not say; the message is its
// reason alone.
absl::StatusOr<std::filesystem::path> ExecutablePath();

// Raises the soft limit of open descriptors to the hard one, or to 2^20 if that is less: the common
// soft limit of 1024 is for programs that use select. Returns the limit that is in force.
uint64_t RaiseDescriptorLimit();

// The value of a variable in lines "NAME=value"; empty: not set.
std::string ValueIn(const std::vector<std::string>& environment, const std::string& name);

// Nothing where the environment has no such name.
std::optional<std::string> FromEnvironment(const std::string& name);

// This machine's name; empty if the system does not say.
std::string HostName();

// Names this boot of the machine: a machine name may be that of several containers.
std::string MachineId();

// Random bits of the system, for names that no other process of any host makes.
uint64_t RandomBits();

}  // namespace oxbow
