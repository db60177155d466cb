// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "cli/run/rollback.h"
#include "run/endpoints_file.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Milliseconds(300);

// A port of this machine that accepts connections, or refuses them after Close.
class Listener {
 public:
  Listener() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_, 8), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    endpoint_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~Listener() { Close(); }

  void Close() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }
  const std::string& endpoint() const { return endpoint_; }

 private:
  int socket_;
  std::string endpoint_;
};

// The id of a process that has exited and was waited for.
pid_t PidOfNobody() {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  waitpid(pid, nullptr, 0);
  return pid;
}

class EndedRunTest : public ::testing::Test {
 protected:
  void WriteFile(pid_t supervisor, const std::string& more = "") {
    std::ofstream(directory_.path() / "endpoints.json")
        << "{\"supervisor_pid\":" << supervisor << more
        << ",\"services\":[{\"name\":\"learner\",\"grpc\":\"" << learner_.endpoint() << "\"}]}";
  }
  absl::Status Check(const std::string& learner = "") {
    return CheckEnded(directory_.path(), learner, kTimeout);
  }

  oxbow::testing::ScopedDirectory directory_;
  Listener learner_;
};

TEST_F(EndedRunTest, HasEndedIfNobodyListensAndItsSupervisorIsGone) {
  learner_.Close();
  WriteFile(PidOfNobody());
  EXPECT_TRUE(Check().ok()) << Check();
}

// Promise: A run can go back.
TEST_F(EndedRunTest, WhoListensAndDoesNotAnswerMayBeItsLearner) {
  WriteFile(PidOfNobody());  // A busy learner, or one with TLS, is silent.
  EXPECT_EQ(Check().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Check().message()), HasSubstr("--force"));
}

// Promise: A run can go back. `oxbow rollback` makes an earlier whole checkpoint the newest and
// deletes nothing. A deterministic run that continues from it has the losses and weights of a run
// that never went further. The command refuses while the run lives, and where that cannot be known.
TEST_F(EndedRunTest, LivesWhileItsSupervisorDoesThoughTheLearnerStartsAgain) {
  learner_.Close();
  ASSERT_TRUE(run::WriteEndpoints(directory_.path(), {{"learner", learner_.endpoint()}}).ok());
  EXPECT_EQ(Check().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(Check().message()), HasSubstr("live"));
}

TEST_F(EndedRunTest, ASupervisorThatWasNotWaitedForIsGone) {
  learner_.Close();
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
  WriteFile(pid);
  EXPECT_TRUE(Check().ok()) << Check();
  waitpid(pid, nullptr, 0);
}

TEST_F(EndedRunTest, OfAnotherMachineNothingIsKnown) {
  learner_.Close();
  WriteFile(PidOfNobody(), ",\"host\":\"elsewhere.invalid\"");
  EXPECT_THAT(std::string(Check().message()), HasSubstr("elsewhere.invalid"));
}

TEST_F(EndedRunTest, WithoutEndpointsTheLearnersAddressHasToBeNamed) {
  EXPECT_THAT(std::string(Check().message()), HasSubstr("--learner HOST:PORT"));
  EXPECT_FALSE(Check(learner_.endpoint()).ok());
  learner_.Close();
  EXPECT_TRUE(Check(learner_.endpoint()).ok()) << Check(learner_.endpoint());
}

}  // namespace
}  // namespace oxbow::cli
