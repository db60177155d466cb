// SPDX-License-Identifier: Apache-2.0
// A complete run under mutual TLS: all its processes connect, also on loopback, and no others.
#include <signal.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/training_run.h"
#include "tests/testing/certificates.h"
#include "tests/testing/eventually.h"
#include "tests/testing/process.h"
#include "tests/testing/scoped_directory.h"
#include "tests/testing/scrape.h"

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

// Promise: Unauthenticated callers are refused.
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
  const Outcome by_its_own = RunOxbow({"status", run.directory().string()});
  EXPECT_THAT(by_its_own.output, HasSubstr("rollout_worker-1")) << by_its_own.message;

  run.process().Kill(SIGINT);
  EXPECT_EQ(run.WaitExit().value(), 130) << run.process().error_output();
  EXPECT_THAT(run.Series("train/onpolicy_ratio_err"), Each(0.0));

  // Half of a set, as a shell has it: of a run that has ended nobody is called.
  const Outcome ended =
      RunOxbow({"status", "--run", run.directory().string(), "--tls-ca",
                (scratch.path() / "ours" / "ca.crt").string(), "--tls-name", "oxbow"});
  EXPECT_EQ(ended.exit_code, 0) << ended.message;
  EXPECT_THAT(ended.output, HasSubstr("progress   step "));
}

// A renewal writes three files, one after another.
// Promise: Unauthenticated callers are refused.
TEST(TlsRunTest, AChildIsStartedAgainOnceKeyAndCertificateFit) {
  const ScopedDirectory scratch;
  const std::filesystem::path folder = scratch.path() / "tls";
  const Authority ours("ours");
  ours.Write(folder, {});
  ours.Write(scratch.path() / "newer", {});
  TrainingRun run({"run.steps=100000", "services.rollout_workers=1"}, FlagsOf(folder, "oxbow"));
  ASSERT_TRUE(run.WaitForStep(1)) << run.process().error_output();
  const auto renew = [&](const char* file) {
    std::filesystem::copy_file(scratch.path() / "newer" / file, folder / file,
                               std::filesystem::copy_options::overwrite_existing);
  };
  renew("tls.key");
  ASSERT_TRUE(run.KillChild("rollout_worker", SIGKILL));
  ASSERT_TRUE(Eventually([&] {
    return absl::StrContains(run.process().error_output(), "not the key of --tls-cert");
  })) << run.process().error_output();
  renew("tls.crt");
  const int64_t reached = run.metrics().back()["step"];
  EXPECT_TRUE(run.WaitForStep(reached + 2)) << run.process().error_output();
  run.process().Kill(SIGINT);
  EXPECT_EQ(run.WaitExit().value(), 130) << run.process().error_output();
}

TEST(TlsRunTest, ACertificateWithoutTheHostIsRefusedBeforeAnythingStarts) {
  const ScopedDirectory scratch;
  const Authority ours("ours");
  ours.Write(scratch.path() / "ours", {});
  const std::string source = OXBOW_SOURCE_DIR;
  std::vector<std::string> argv = {"train", source + "/configs/digits.yaml"};
  for (const std::string& setting :
       {"run.directory=" + (scratch.path() / "runs").string(),
        "model.path=" + source + "/models/digits",
        "prompts.train=" + source + "/configs/prompts/digits_train.txt",
        "prompts.eval=" + source + "/configs/prompts/digits_eval.txt"}) {
    argv.insert(argv.end(), {"--set", setting});
  }
  const std::vector<std::string> nameless = FlagsOf(scratch.path() / "ours", "");
  argv.insert(argv.end(), nameless.begin(), nameless.end());
  const Outcome outcome = RunOxbow(argv);
  EXPECT_EQ(outcome.exit_code, 4) << outcome.message;
  EXPECT_THAT(outcome.message, HasSubstr("127.0.0.1, which is not in it (give --tls-name"));
  EXPECT_FALSE(std::filesystem::exists(scratch.path() / "runs"));
}

// The processes of a run, each with the certificate of its own role.
class RunOfRoles {
 public:
  RunOfRoles() {
    const Outcome made =
        RunOxbow({"certificates", Tls("").string(), "--member", "learner", "--member", "buffer",
                  "--member", "reward", "--member", "operator", "--member", "worker/gpu"});
    EXPECT_EQ(made.exit_code, 0) << made.message;
    std::ofstream(revoked_) << "# nobody\n";
    const std::string source = OXBOW_SOURCE_DIR;
    const std::string config = (scratch_.path() / "config.yaml").string();
    const Outcome resolved =
        RunOxbow({"config",
                  "show",
                  source + "/configs/recipes/digits-op-grpo.yaml",
                  "--out",
                  config,
                  "--set",
                  "run.name=run",
                  "--set",
                  "run.directory=" + scratch_.path().string(),
                  "--set",
                  "run.steps=100000",
                  "--set",
                  "eval.every=0",
                  "--set",
                  "eval.images=16",
                  "--set",
                  "eval.grid_images=16",
                  "--set",
                  "model.path=" + source + "/models/digits",
                  "--set",
                  "prompts.train=" + source + "/configs/prompts/digits_train.txt",
                  "--set",
                  "prompts.eval=" + source + "/configs/prompts/digits_eval.txt"});
    EXPECT_EQ(resolved.exit_code, 0) << resolved.message;
    buffer = Start("buffer", {"replay_buffer", "--data", (scratch_.path() / "replay").string(),
                              "--config", config});
    reward = Start("reward", {"reward_server"});
    buffer_at = ValueOf(Ready(*buffer), "grpc");
    learner = Start("learner",
                    {"learner", "--config", config, "--run-dir", (scratch_.path() / "run").string(),
                     "--buffer", buffer_at, "--reward", ValueOf(Ready(*reward), "grpc")});
    const std::string ready = Ready(*learner);
    learner_at = ValueOf(ready, "grpc");
    metrics_at = ValueOf(ready, "metrics");
  }

  std::unique_ptr<Process> Start(const std::string& member, std::vector<std::string> argv) const {
    argv[0] = BinaryPath(argv[0]);
    for (std::string& flag : FlagsOf(Tls(member), "oxbow")) argv.push_back(std::move(flag));
    argv.insert(argv.end(), {"--tls-revoked", revoked_.string()});
    return Process::Start({.argv = std::move(argv)}).value();
  }
  std::unique_ptr<Process> Worker(const std::string& id) const {
    return Start("worker-gpu", {"rollout_worker", "--learner", learner_at, "--id", id});
  }
  Outcome Command(const std::string& member, std::vector<std::string> arguments) const {
    for (std::string& flag : FlagsOf(Tls(member), "oxbow")) arguments.push_back(std::move(flag));
    return RunOxbow(arguments);
  }
  static std::string Ready(Process& process) {
    return process.WaitForLine("READY", absl::Seconds(60)).value();
  }
  void Revoke(const std::string& line) const { std::ofstream(revoked_) << line << "\n"; }

  std::unique_ptr<Process> buffer;
  std::unique_ptr<Process> reward;
  std::unique_ptr<Process> learner;
  std::string buffer_at;
  std::string learner_at;
  std::string metrics_at;

 private:
  std::filesystem::path Tls(const std::string& member) const {
    return scratch_.path() / "tls" / member;
  }

  const ScopedDirectory scratch_;
  const std::filesystem::path revoked_ = scratch_.path() / "revoked";
};

// Promise: A certificate allows the calls of its role alone.
TEST(TlsRunTest, ARunOfOneCertificatePerServiceRefusesWhatNoRoleMay) {
  const RunOfRoles run;
  const auto worker = run.Worker("gpu-0");
  // Weights, leases, results, scores and the buffer: the run needs every call between services.
  const auto committed = [&] { return Scrape(run.metrics_at, "oxbow_learner_policy_version"); };
  const Clock& clock = Clock::Steady();
  const absl::Duration deadline = clock.Now() + absl::Seconds(60);
  while (committed().value_or(0) < 4 && clock.Now() < deadline && run.learner->running()) {
    (void)worker->WaitExit(absl::Milliseconds(20));
  }
  ASSERT_GE(committed().value_or(0), 4) << run.learner->error_output() << worker->error_output();
  EXPECT_THAT(run.Command("operator", {"status", "--addr", run.learner_at}).output,
              HasSubstr("gpu-0"));
  EXPECT_THAT(run.Command("operator", {"replay", "list", "--buffer", run.buffer_at}).exit_code, 0);

  const Outcome foreign = run.Command("reward", {"replay", "list", "--buffer", run.buffer_at});
  EXPECT_EQ(foreign.exit_code, 4);
  EXPECT_THAT(foreign.message, HasSubstr("oxbow://oxbow/reward may not call"));
  const auto impostor = run.Worker("other-0");
  EXPECT_EQ(impostor->WaitExit(absl::Seconds(30)).value(), 4) << impostor->error_output();
  EXPECT_THAT(impostor->error_output(), HasSubstr("may not speak for the worker other-0"));
  const auto usurper = run.Start("worker-gpu", {"reward_server"});
  EXPECT_EQ(usurper->WaitExit(absl::Seconds(30)).value(), 4);
  EXPECT_THAT(usurper->error_output(), HasSubstr("this process takes the role reward"));

  run.Revoke("oxbow://oxbow/worker/gpu");
  EXPECT_EQ(worker->WaitExit(absl::Seconds(60)).value(), 4) << worker->error_output();
  EXPECT_THAT(worker->error_output(), HasSubstr("revoked"));
  EXPECT_GT(Scrape(run.metrics_at,
                   "oxbow_rpc_refused_total{method=\"oxbow.v1.Coordinator/Register\","
                   "reason=\"revoked\"}")
                .value_or(0),
            0);
  run.learner->Kill(SIGTERM);
  EXPECT_EQ(run.learner->WaitExit(absl::Seconds(60)).value(), 9) << run.learner->error_output();
  EXPECT_THAT(run.buffer->error_output(),
              ::testing::ContainsRegex("audit call=Restore caller=oxbow://oxbow/learner "
                                       "address=ipv4:127.0.0.1:[0-9]+ checkpoint="));
}

TEST(TlsRunTest, DoctorNamesEachMistakeOfACertificate) {
  const ScopedDirectory scratch;
  const Authority authority("ours");
  const auto doctor = [&](const Authority::Issue& issue) {
    authority.Write(scratch.path(), issue);
    std::vector<std::string> arguments = {"doctor", "--format", "json"};
    for (const std::string& flag : FlagsOf(scratch.path(), "oxbow")) arguments.push_back(flag);
    return RunOxbow(arguments).output;
  };
  EXPECT_THAT(doctor({}), ::testing::Not(HasSubstr("--tls-cert")));
  EXPECT_THAT(doctor({.names = "DNS:oxbow"}), HasSubstr("--tls-cert: no role in it"));
  EXPECT_THAT(doctor({.names = NamesWithRoles("oxbow", "other")}),
              HasSubstr("it is of the fleet other, not of oxbow"));
  EXPECT_THAT(doctor({.starts = -absl::Hours(3), .ends = -absl::Hours(2)}), HasSubstr("expired"));
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
