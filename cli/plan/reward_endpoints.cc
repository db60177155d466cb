// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/reward_endpoints.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/port_language.h"
#include "rpc/status.h"
#include "run/rewards.h"

namespace oxbow::cli {
namespace {

AskedEndpoint Ask(const std::string& endpoint, absl::Duration timeout) {
  const auto stub = v1::Reward::NewStub(rpc::Connect(endpoint, rpc::Pings::kDuringCalls));
  v1::DescribeResponse response;
  const auto context = rpc::ContextWithDeadline(timeout);
  const absl::Status status = rpc::FromGrpc(stub->Describe(context.get(), {}, &response));
  AskedEndpoint asked{endpoint, rpc::Explained(status, endpoint), {}};
  for (const v1::RewardDescription& reward : response.rewards()) {
    asked.rewards.push_back(reward.name());
  }
  return asked;
}

config::Problem Warning(std::string message) {
  return {config::Severity::kWarning, "reward.endpoints", std::move(message)};
}

}  // namespace

std::vector<AskedEndpoint> AskEndpoints(const v1::RewardConfig& config, absl::Duration timeout) {
  std::vector<AskedEndpoint> asked(static_cast<size_t>(config.endpoints_size()));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < asked.size(); ++i) {
    threads.emplace_back([&asked, &config, timeout, i] {
      asked[i] = Ask(config.endpoints(static_cast<int>(i)), timeout);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return asked;
}

std::vector<config::Problem> EndpointProblems(const v1::RewardConfig& config,
                                              const std::vector<AskedEndpoint>& asked) {
  std::vector<config::Problem> problems;
  std::set<std::string> had;
  for (const AskedEndpoint& one : asked) {
    had.insert(one.rewards.begin(), one.rewards.end());
    if (one.status.ok()) continue;
    problems.push_back(
        Warning(absl::StrCat("no reward server answers at ", one.endpoint,
                             " (is it running?): ", std::string(one.status.message()))));
  }
  if (asked.empty() || !problems.empty()) return problems;
  for (const std::string& own : run::OwnRewards(config)) had.insert(own);
  for (const std::string& name : run::RewardNames(config)) {
    if (had.contains(name)) continue;
    const bool trained =
        std::ranges::any_of(config.terms(), [&](const auto& term) { return term.name() == name; });
    const std::string nearest = NearestName(name, {had.begin(), had.end()});
    problems.push_back(
        {config::Severity::kError, trained ? "reward.terms" : "reward.observed",
         absl::StrCat("no server of reward.endpoints has the reward ", name, "; they have ",
                      had.empty() ? "none" : absl::StrJoin(had, ", "),
                      nearest.empty() ? "; serve it, or take it out of this key"
                                      : absl::StrCat("; did you mean `", nearest, "`?"))});
  }
  return problems;
}

}  // namespace oxbow::cli
