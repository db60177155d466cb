// A complete run under mutual TLS: all its processes connect, also on loopback, and no others.
#include <signal.h>

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/training_run.h"
#include "tests/testing/certificates.h"
#include "tests/testing/process.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

std::vector<std::string> FlagsOf(const std::filesystem::path& folder, const std::string& name) {
  std::vector<std::string> flags = {"--tls-ca",   (folder / "ca.crt").string(),
                                    "--tls-cert", (folder / "tls.crt").string(),
                                    "--tls-key",  (folder / "tls.key").string()};
  if (!name.empty()) flags.insert(flags.end(), {"--tls-name", name});
  return flags;
}

// Exit code of a probe.
int Health(const std::string& endpoint, std::vector<std::string> flags) {
  flags.insert(flags.begin(), {BinaryPath("oxbow_health"), "--addr", endpoint});
  return Process::Start({.argv = std::move(flags)}).value()->WaitExit(absl::Seconds(20)).value();
}

TEST(TlsRunTest, AFleetTrainsAndAnswersMembersAlone) {
  const ScopedDirectory scratch;
  const Authority ours("ours");
  const Authority theirs("theirs");
  ours.Write(scratch.path() / "ours", {});
  theirs.Write(scratch.path() / "theirs", {});
  const std::vector<std::string> member = FlagsOf(scratch.path() / "ours", "oxbow");
  // With two workers one fetches weights from the other; two ranks speak gRPC, too.
  TrainingRun run({"run.steps=100000", "services.rollout_workers=2", "learner.ranks=2"}, member);
  ASSERT_TRUE(run.WaitForStep(2)) << run.process().error_output();

  std::ifstream in(run.directory() / "endpoints.json");
  const nlohmann::json services = nlohmann::json::parse(in)["services"];
  EXPECT_GE(services.size(), 6) << "learner, its second rank, buffer, reward, two workers";
  for (const nlohmann::json& service : services) {
    const std::string endpoint = service["grpc"];
    EXPECT_EQ(Health(endpoint, member), 0) << service["name"];
    EXPECT_EQ(Health(endpoint, {}), 2) << service["name"] << " speaks plaintext";
    EXPECT_EQ(Health(endpoint, FlagsOf(scratch.path() / "theirs", "oxbow")), 2)
        << service["name"] << " hears a stranger";
  }
  std::vector<std::string> status = {"status", "--run", run.directory().string()};
  status.insert(status.end(), member.begin(), member.end());
  EXPECT_THAT(RunOxbow(status).output, HasSubstr("rollout_worker-1"));

  run.process().Kill(SIGINT);
  EXPECT_EQ(run.WaitExit().value(), 130) << run.process().error_output();
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), Each(0.0));
}

TEST(TlsRunTest, MistakesEndAServiceBeforeItStarts) {
  const ScopedDirectory scratch;
  Authority("ours").Write(scratch.path(), {});
  const auto outcome = [&](std::vector<std::string> flags, std::vector<std::string> environment) {
    flags.insert(flags.begin(), BinaryPath("reward_server"));
    auto process = Process::Start({.argv = flags, .environment = std::move(environment)});
    const int exit_code = (*process)->WaitExit(absl::Seconds(20)).value();
    return std::make_pair(exit_code, (*process)->error_output());
  };
  const auto [refused, why] = outcome({"--listen", "0.0.0.0:0"}, {});
  EXPECT_EQ(refused, 2);
  EXPECT_THAT(why, ::testing::MatchesRegex("reward_server: .*--tls-cert.*--plaintext.*\n"));
  const auto [half, what] = outcome({}, {"OXBOW_TLS_CA=" + (scratch.path() / "ca.crt").string()});
  EXPECT_EQ(half, 2);
  EXPECT_THAT(what, HasSubstr("missing: --tls-cert --tls-key"));
  std::vector<std::string> flags = FlagsOf(scratch.path(), "");
  flags.back() = (scratch.path() / "none.key").string();
  const auto [missing, which] = outcome(flags, {});
  EXPECT_EQ(missing, 4);
  EXPECT_THAT(which, ::testing::AllOf(HasSubstr("--tls-key"), HasSubstr("none.key")));
}

}  // namespace
}  // namespace oxbow::testing
