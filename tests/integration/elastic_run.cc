// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/elastic_run.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "base/clock.h"
#include "tests/testing/scrape.h"

namespace oxbow::testing {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Milliseconds(10);

std::vector<std::string> WithoutWorkers(std::vector<std::string> overrides) {
  overrides.push_back("services.rollout_workers=0");
  return overrides;
}

}  // namespace

template <typename Read>
bool ElasticRun::Await(Read read, double least, absl::Duration timeout) {
  const Clock& clock = Clock::Steady();
  const absl::Duration deadline = clock.Now() + timeout;
  do {
    if (read() >= least) return true;
    // Waits for the end of the run, after which further checks are useless.
    if (run_.WaitExit(kBetweenLooks).ok()) return false;
  } while (clock.Now() < deadline);
  return false;
}

ElasticRun::ElasticRun(std::vector<std::string> overrides)
    : run_(WithoutWorkers(std::move(overrides))) {
  OXBOW_CHECK(Await([this] { return FindLearner() ? 1 : 0; }, 1, absl::Seconds(60)))
      << run_.process().error_output();
}

// Reads endpoints.json, which is written when the learner is ready.
bool ElasticRun::FindLearner() {
  std::ifstream in(run_.directory() / "endpoints.json");
  const nlohmann::json endpoints = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!endpoints.is_object()) return false;
  for (const nlohmann::json& service : endpoints["services"]) {
    if (service["name"] != "learner") continue;
    learner_ = service["grpc"];
    learner_metrics_ = service["metrics"];
  }
  return !learner_.empty();
}

Process& ElasticRun::Join(const std::string& name, std::vector<std::string> environment) {
  auto process =
      Process::Start({.argv = {BinaryPath("rollout_worker"), "--learner", learner_, "--id", name},
                      .environment = std::move(environment)});
  OXBOW_CHECK(process.ok()) << process.status().ToString();
  const auto ready = (*process)->WaitForLine("READY", absl::Seconds(20));
  OXBOW_CHECK(ready.ok()) << ready.status().ToString();
  workers_[name] = {*std::move(process), ValueOf(*ready, "metrics")};
  return *workers_[name].process;
}

double ElasticRun::Learner(const std::string& series) const {
  return Scrape(learner_metrics_, series).value_or(-1);
}

double ElasticRun::Worker(const std::string& name, const std::string& series) const {
  return Scrape(workers_.at(name).metrics, series).value_or(-1);
}

bool ElasticRun::AwaitLearner(const std::string& series, double least, absl::Duration timeout) {
  return Await([&] { return Learner(series); }, least, timeout);
}

bool ElasticRun::AwaitWorker(const std::string& name, const std::string& series, double least,
                             absl::Duration timeout) {
  return Await([&] { return Worker(name, series); }, least, timeout);
}

bool ElasticRun::AwaitSteps(int64_t more) {
  const std::vector<nlohmann::json> rows = run_.metrics();
  const int64_t now = rows.empty() ? 0 : rows.back().value("step", int64_t{0});
  return run_.WaitForStep(now + more);
}

std::string ElasticRun::log() const {
  std::ifstream in(run_.directory() / "logs" / "learner.log");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<nlohmann::json> ElasticRun::StepLog() const {
  std::vector<nlohmann::json> rows;
  std::ifstream in(run_.directory() / "steps.jsonl");
  for (std::string line; std::getline(in, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

std::map<uint64_t, int> ElasticRun::GroupsTrained() const {
  std::map<uint64_t, int> counts;
  for (const nlohmann::json& row : StepLog()) {
    for (const nlohmann::json& group : row["groups"]) ++counts[group["group"].get<uint64_t>()];
  }
  return counts;
}

uint64_t ElasticRun::HighestAttempt() const {
  uint64_t highest = 0;
  for (const nlohmann::json& row : StepLog()) {
    for (const nlohmann::json& group : row["groups"])
      highest = std::max(highest, group["attempt"].get<uint64_t>());
  }
  return highest;
}

}  // namespace oxbow::testing
