// SPDX-License-Identifier: Apache-2.0
// A worker of another machine joins a run with nothing but the line that `oxbow train` prints.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/listening_sockets.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kLine[] = "workers may join: ";

bool IsFree(int port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool bound = bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  close(listener);
  return bound;
}

// The first of three free ports in a row, below those that the kernel gives out.
int ThreeFreePorts() {
  for (int port = 20000 + getpid() % 10000; port < 32000; port += 3) {
    if (IsFree(port) && IsFree(port + 1) && IsFree(port + 2)) return port;
  }
  return 0;
}

std::string GrpcOf(const nlohmann::json& endpoints, const std::string& name) {
  for (const nlohmann::json& service : endpoints["services"]) {
    if (service["name"] == name) return service["grpc"];
  }
  return "";
}

TEST(JoinTest, AWorkerNeedsTheLineThatTrainPrintsAndEndsWithTheRun) {
  const int port = ThreeFreePorts();
  ASSERT_NE(port, 0);
  TrainingRun run({"run.steps=2", "services.rollout_workers=0"},
                  {"--listen", absl::StrCat("127.0.0.1:", port)});
  const auto line = run.process().WaitForLine(kLine, kRunDeadline);
  ASSERT_TRUE(line.ok()) << line.status();
  std::vector<std::string> command =
      absl::StrSplit(std::string(absl::StripPrefix(*line, kLine)), ' ');
  ASSERT_EQ(command[0], "rollout_worker");
  EXPECT_EQ(command.back(), absl::StrCat("127.0.0.1:", port));
  std::ifstream in(run.directory() / "endpoints.json");
  const nlohmann::json endpoints = nlohmann::json::parse(in);
  EXPECT_EQ(GrpcOf(endpoints, "replay_buffer"), absl::StrCat("127.0.0.1:", port + 1));
  EXPECT_EQ(GrpcOf(endpoints, "reward_server-0"), absl::StrCat("127.0.0.1:", port + 2));
  command[0] = BinaryPath("rollout_worker");
  const auto worker = Process::Start({.argv = command});
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ(run.WaitExit().value(), 0) << run.process().error_output();
  EXPECT_EQ((*worker)->WaitExit(kRunDeadline).value(), 0) << (*worker)->error_output();
}

// Promise: A bad config does not start.
TEST(JoinTest, APortThatIsTakenIsSaidAtOnceAndNothingIsWritten) {
  const int port = ThreeFreePorts();
  ASSERT_NE(port, 0);
  const auto other = Listen(absl::StrCat("127.0.0.1:", port + 1));
  ASSERT_TRUE(other.ok()) << other.status();
  TrainingRun run({"run.steps=2"}, {"--listen", absl::StrCat("127.0.0.1:", port)});
  EXPECT_EQ(run.WaitExit().value(), 3) << run.process().error_output();
  EXPECT_THAT(run.process().error_output(),
              ::testing::AllOf(HasSubstr("replay_buffer: cannot listen"),
                               HasSubstr(absl::StrCat("127.0.0.1:", port + 1)),
                               HasSubstr("Address already in use")));
  EXPECT_FALSE(std::filesystem::exists(run.directory()));
}

}  // namespace
}  // namespace oxbow::testing
