// SPDX-License-Identifier: Apache-2.0
// The tools for a person on call during a run: status, doctor, replay, and the trace of a group
// through the logs of all processes.
#include <signal.h>

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/trace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/integration/oxbow_command.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

// The JSON lines of the logs of a run's processes whose name begins with `name`, by event.
std::multimap<std::string, json> LogOf(const std::filesystem::path& run, const std::string& name) {
  std::multimap<std::string, json> lines;
  for (const auto& file : std::filesystem::directory_iterator(run / "logs")) {
    if (file.path().filename().string().rfind(name, 0) != 0) continue;
    std::ifstream log(file.path());
    for (std::string line; std::getline(log, line);) {
      const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (object.is_object() && object.contains("event"))
        lines.emplace(object["event"].get<std::string>(), object);
    }
  }
  return lines;
}

std::set<std::string> TracesOf(const std::multimap<std::string, json>& log,
                               const std::string& event) {
  std::set<std::string> traces;
  for (auto [at, end] = log.equal_range(event); at != end; ++at) {
    traces.insert(at->second.value("trace", "none"));
  }
  return traces;
}

class OncallTest : public ::testing::Test {
 protected:
  // More steps than any scenario takes: the test ends the run.
  OncallTest()
      : run_({"run.steps=100000", "batch.groups=4", "services.log_level=debug",
              "services.log_format=json", "services.rollout_workers=1"}) {}

  void End() {
    run_.process().Kill(SIGINT);
    ASSERT_EQ(run_.WaitExit().value(), 130) << run_.process().error_output();
  }
  std::string directory() const { return run_.directory().string(); }

  TrainingRun run_;
};

TEST_F(OncallTest, ALiveRunIsWellAndAnEndedOneIsLookedAtAllTheSame) {
  ASSERT_TRUE(run_.WaitForStep(3));
  const Outcome status = RunOxbow({"status", "--run", directory(), "--format", "json"});
  ASSERT_EQ(status.exit_code, 0) << status.message;
  const json told = json::parse(status.output);
  EXPECT_GE(told["metrics"]["train/samples"], 1);
  EXPECT_EQ(told["workers"].size(), 1u);
  EXPECT_EQ(told["buffer_endpoints"].size(), 1u);

  const Outcome doctor = RunOxbow({"doctor", "--run-dir", directory(), "--format", "json"});
  const json checkup = json::parse(doctor.output);
  std::map<std::string, std::string> fleet;  // Verdicts; those of the machine vary.
  for (const json& check : checkup["checks"]) {
    if (check["area"] != "fleet") continue;
    EXPECT_NE(check["verdict"], "fail") << check;
    const std::string name = check["name"];
    fleet[name.substr(0, name.find(" 127"))] = check["verdict"];
  }
  for (const char* name : {"learner", "replay_buffer", "clocks", "last step", "staleness",
                           "workers", "weights lag", "leases", "replay", "buffer disk"}) {
    EXPECT_EQ(fleet.count(name), 1u) << name << " in " << doctor.output;
  }
  EXPECT_FALSE(told["reward_endpoints"].empty());

  const Outcome live = RunOxbow({"replay", "list", "--run", directory(), "--format", "json"});
  ASSERT_EQ(live.exit_code, 0) << live.message;
  EXPECT_EQ(json::parse(live.output)["live"], true);
  End();
  const Outcome ended = RunOxbow({"replay", "list", "--run", directory(), "--format", "json"});
  ASSERT_EQ(ended.exit_code, 0) << ended.message;
  const json rows = json::parse(ended.output);
  EXPECT_EQ(rows["live"], false);
  ASSERT_GE(rows["rows"].size(), 1u);
  EXPECT_TRUE(rows["rows"][0]["priority"].is_number()) << "the run's config lies beside it";
  EXPECT_TRUE(rows["rows"][0]["staleness_steps"].is_number());
  const std::string entry = rows["rows"][0]["entry"];
  const Outcome exported =
      RunOxbow({"replay", "export", entry, directory(), "--out", directory() + "/exported"});
  ASSERT_EQ(exported.exit_code, 0) << exported.message;
  EXPECT_TRUE(std::filesystem::exists(directory() + "/exported/entry_" + entry + ".png"));
  EXPECT_TRUE(std::filesystem::exists(directory() + "/exported/entry_" + entry + ".picture.png"));
  const Outcome verify = RunOxbow({"replay", "verify", directory()});
  EXPECT_EQ(verify.exit_code, 0) << verify.output;
  const Outcome gone = RunOxbow({"doctor", directory()});
  EXPECT_THAT(gone.output, AllOf(HasSubstr("run/state"), HasSubstr("interrupted, step"),
                                 Not(HasSubstr("fail  ")), Not(HasSubstr("fleet/"))))
      << "nobody is expected to answer for a run that Ctrl-C has ended";
}

// Promise: One trace per group. Log lines of worker, reward server and learner about one group
// carry the same trace id. So do log lines of learner and buffer about one step. Ids follow from
// run, group and step.
TEST_F(OncallTest, OneTraceLeadsThroughTheLogsOfAllProcesses) {
  ASSERT_TRUE(run_.WaitForStep(4));
  End();
  const auto worker = LogOf(run_.directory(), "rollout_worker");
  const auto learner = LogOf(run_.directory(), "learner");
  const auto rewards = LogOf(run_.directory(), "reward_server");
  const auto buffer = LogOf(run_.directory(), "replay_buffer");
  ASSERT_EQ(worker.count("registered"), 1u);
  const std::string run_id = worker.find("registered")->second["run"];

  int followed = 0;
  const std::set<std::string> scored = TracesOf(rewards, "images scored");
  const std::set<std::string> granted = TracesOf(learner, "lease granted");
  const std::set<std::string> taken = TracesOf(learner, "result taken");
  for (auto [at, end] = worker.equal_range("group delivered"); at != end; ++at) {
    const json& line = at->second;
    if (line["outcome"] != "accepted") continue;
    const std::string trace = line["trace"];
    const Trace expected =
        TraceOfGroup(run_id, GroupId(std::stoull(line["group"].get<std::string>())),
                     LeaseId(std::stoull(line["lease"].get<std::string>())));
    EXPECT_EQ(trace, TraceId(expected));
    EXPECT_TRUE(scored.contains(trace)) << "at the reward server: " << line;
    EXPECT_TRUE(granted.contains(trace)) << "when the learner gave the lease: " << line;
    EXPECT_TRUE(taken.contains(trace)) << "when its sink took the result: " << line;
    ++followed;
  }
  EXPECT_GE(followed, 16) << "four groups of four steps";
  // The learner's own calls carry the trace of their step.
  const std::set<std::string> steps = TracesOf(learner, "step committed");
  EXPECT_FALSE(steps.contains("none"));
  const std::set<std::string> offered = TracesOf(buffer, "entries offered");
  EXPECT_GE(offered.size(), 1u);
  for (const std::string& trace : offered) EXPECT_TRUE(steps.contains(trace)) << trace;
  EXPECT_THAT(TracesOf(buffer, "step advanced"), IsSupersetOf(steps));
}

}  // namespace
}  // namespace oxbow::testing
