// SPDX-License-Identifier: Apache-2.0
// Children are real processes here: a shell says what it was started with.
#include "base/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/parent_death.h"

namespace oxbow {
namespace {

// The stdout of a shell that runs `script` to its end.
std::string OutputOf(const std::string& script, SpawnOptions options = {}) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  options.binary = "/bin/sh";
  options.argv = {"sh", "-c", script};
  options.output = {.out = ends[1], .err = STDERR_FILENO};
  const absl::StatusOr<pid_t> pid = Spawn(options);
  close(ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t count; (count = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  EXPECT_TRUE(pid.ok()) << pid.status();
  int state = 0;
  EXPECT_EQ(waitpid(*pid, &state, 0), *pid);
  EXPECT_EQ(state, 0);
  return text;
}

TEST(ProcessTest, AVariableIsReplacedAndOthersAreInherited) {
  setenv("OXBOW_TEST_A", "old", 1);
  setenv("OXBOW_TEST_AB", "kept", 1);
  EXPECT_EQ(OutputOf("env | grep OXBOW_TEST_A | sort", {.environment = {"OXBOW_TEST_A=new"}}),
            "OXBOW_TEST_A=new\nOXBOW_TEST_AB=kept\n");
}

TEST(ProcessTest, AVariableThatIsLeftOutIsNotInherited) {
  setenv("OXBOW_TEST_C", "left", 1);
  setenv("OXBOW_TEST_CD", "kept", 1);
  EXPECT_EQ(OutputOf("env | grep OXBOW_TEST_C", {.without = {"OXBOW_TEST_C"}}),
            "OXBOW_TEST_CD=kept\n");
}

TEST(ProcessTest, AGroupOfItsOwnIsLedByTheChild) {
  const std::string script = "test $$ = $(ps -o pgid= -p $$ | tr -d ' ') && echo leads || true";
  EXPECT_EQ(OutputOf(script, {.own_group = true}), "leads\n");
  EXPECT_EQ(OutputOf(script), "");
}

// SigIgn is a mask in hexadecimal whose lowest bit is signal 1, SIGHUP.
TEST(ProcessTest, AnIgnoredSignalStaysSoUnlessAllAreReset) {
  const auto before = signal(SIGHUP, SIG_IGN);
  const std::string ignored = "grep SigIgn /proc/self/status | grep -q '[13579bdf]$' && echo yes";
  EXPECT_EQ(OutputOf(ignored + " || true", {.signals = ChildSignals::kUnblocked}), "yes\n");
  EXPECT_EQ(OutputOf(ignored + " || true", {.signals = ChildSignals::kDefault}), "");
  signal(SIGHUP, before);
}

TEST(ProcessTest, ABlockedSignalIsInheritedUnlessUnblocked) {
  sigset_t set;
  sigset_t before;
  sigemptyset(&set);
  sigaddset(&set, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  const std::string blocked =
      "grep SigBlk /proc/self/status | grep -q '[13579bdf]$' && echo yes || true";
  EXPECT_EQ(OutputOf(blocked), "yes\n");
  EXPECT_EQ(OutputOf(blocked, {.signals = ChildSignals::kUnblocked}), "");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(ProcessTest, WhatCannotBeStartedSaysWhyAlone) {
  const auto pid = Spawn({.binary = "/no/such/binary", .argv = {"x"}});
  EXPECT_EQ(pid.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(pid.status().message(), "No such file or directory");
}

TEST(ProcessTest, TheExecutableIsThisTest) { EXPECT_EQ(ExecutablePath()->filename(), "base_test"); }

TEST(ProcessTest, AChildSeesThatItsParentIsGone) {
  EXPECT_TRUE(DieWithParent(getppid()));
  EXPECT_FALSE(DieWithParent(-1)) << "that process is not the parent";
}

TEST(ProcessTest, TheSoftLimitOfDescriptorsIsRaisedToTheHardOne) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{.rlim_cur = 64, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const uint64_t raised = RaiseDescriptorLimit();
  EXPECT_EQ(raised, std::min<uint64_t>(before.rlim_max, 1 << 20));
  EXPECT_EQ(OutputOf("ulimit -n"), absl::StrCat(raised, "\n"));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace oxbow
