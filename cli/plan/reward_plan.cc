// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/reward_plan.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"
#include "cli/run/work_progress.h"
#include "cli/terminal.h"
#include "core/model/device.h"
#include "io/weight_files.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/port_language.h"
#include "rpc/status.h"
#include "run/prompt_files.h"
#include "run/rewards.h"
#include "services/reward/scorer_table.h"

namespace oxbow::cli {

namespace {

struct AskedEndpoint {
  std::string endpoint;
  absl::Status status;               // The status of its answer to Describe.
  std::vector<std::string> rewards;  // That it has.
};

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

// Side by side.
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

config::Problem Warning(std::string message) {
  return {config::Severity::kWarning, "reward.endpoints", std::move(message)};
}

constexpr uint64_t kFloat = 4;

std::string DeviceOf(const v1::ScorerConfig& entry) {
  return entry.device().empty() ? "cpu" : entry.device();
}

// Directories of an entry's networks: PP-OCR has two in one, a detector and a recogniser.
std::vector<std::string> NetworksOf(const v1::ScorerConfig& entry) {
  if (entry.engine() != "ppocr") return {entry.model()};
  return {entry.model() + "/det", entry.model() + "/rec"};
}

// Whether its head is a model of its own, beside `model`; else it is some layers, which stay
// float32 on the host.
bool HeadIsATower(const v1::ScorerConfig& entry) {
  return reward::ScorerNameOf(entry) == "geneval";
}

// Bytes of the floats of a directory or file, each of `width` bytes; 0 if it cannot be read.
uint64_t BytesAt(const std::string& path, uint64_t width) {
  std::error_code ignored;
  const auto files = std::filesystem::is_directory(path, ignored)
                         ? io::WeightFiles::Open(path, "model")
                         : io::WeightFiles::OpenFile(path);
  if (!files.ok()) return 0;
  uint64_t values = 0;
  for (const auto& [name, header] : files->headers()) {
    uint64_t count = 1;
    for (const int64_t side : header.shape) count *= static_cast<uint64_t>(side);
    values += count;
  }
  return values * width;
}

void AddWeights(const std::string& path, const std::string& device, uint64_t width,
                const std::string& reward, std::vector<RewardWeights>& all) {
  std::error_code ignored;
  const std::string place = std::filesystem::weakly_canonical(path, ignored).string();
  const uint64_t bytes = path.empty() ? 0 : BytesAt(path, width);
  if (bytes == 0) return;
  for (RewardWeights& weights : all) {
    if (weights.path != place || weights.device != device || weights.bytes != bytes) continue;
    weights.rewards.push_back(reward);
    return;
  }
  all.push_back({place, device, bytes, {reward}});
}

bool HasKey(const v1::Prompt& prompt, const std::string& key) {
  const auto object = ParseJson(prompt.metadata_json());
  return object.is_object() && object.contains(key);
}

}  // namespace

absl::StatusOr<std::vector<reward::RewardFacts>> LoadOwnRewards(
    const v1::RewardConfig& reward, const std::function<void(const std::string& doing)>& says) {
  std::vector<std::unique_ptr<reward::Scorer>> scorers;  // Together: they may share a model.
  std::vector<reward::RewardFacts> facts;
  for (const std::string& name : run::OwnRewards(reward)) {
    v1::ScorerConfig entry = run::ScorerOf(reward, name);
    if (!entry.device().empty()) {
      OXBOW_RETURN_IF_ERROR(Annotate(model::DeviceNamed(entry.device()).status(), name));
      entry.set_device("cpu");
    }
    says(absl::StrCat("reading and hashing the files of reward ", name));
    OXBOW_ASSIGN_OR_RETURN(std::unique_ptr<reward::Scorer> scorer, reward::MakeScorer(entry));
    facts.push_back(scorer->facts());
    facts.back().identity = run::IdentityVia(reward.transport(), facts.back().identity);
    scorers.push_back(std::move(scorer));
  }
  return facts;
}

bool KeepsRewardsAway(const std::string& key) {
  return key.starts_with("reward.") || key.starts_with("prompts.");
}

absl::StatusOr<std::vector<reward::RewardFacts>> CheckOwnRewards(const v1::RunConfig& config,
                                                                 const std::string& command) {
  WorkProgress progress(command);
  OXBOW_ASSIGN_OR_RETURN(
      std::vector<reward::RewardFacts> rewards,
      LoadOwnRewards(config.reward(), [&](const std::string& doing) { progress.Begin(doing); }));
  const std::pair<std::string, run::PromptSplit> files[] = {
      {config.prompts().train(), run::PromptSplit::kTrain},
      {config.prompts().eval(), run::PromptSplit::kHeldOut}};
  for (const auto& [file, split] : files) {
    OXBOW_ASSIGN_OR_RETURN(const std::vector<v1::Prompt> prompts, run::ReadPrompts(file, split));
    OXBOW_RETURN_IF_ERROR(CheckMetadataKeys(rewards, prompts, file));
  }
  return rewards;
}

std::vector<RewardWeights> WeightsOfRewards(const v1::RewardConfig& reward) {
  std::vector<RewardWeights> all;
  for (const std::string& name : run::OwnRewards(reward)) {
    const v1::ScorerConfig entry = run::ScorerOf(reward, name);
    const bool half = entry.dtype() == "bf16" || entry.dtype() == "f16";
    const uint64_t width = half ? kFloat / 2 : kFloat;
    for (const std::string& network : NetworksOf(entry)) {
      AddWeights(network, DeviceOf(entry), width, name, all);
    }
    if (HeadIsATower(entry)) {
      AddWeights(entry.head(), DeviceOf(entry), width, name, all);
    } else {
      AddWeights(entry.head(), "cpu", kFloat, name, all);
    }
  }
  return all;
}

BytesOfDevices RewardBytes(const v1::RewardConfig& reward) {
  BytesOfDevices bytes;
  for (const RewardWeights& weights : WeightsOfRewards(reward)) {
    bytes[weights.device] += weights.bytes;
  }
  return bytes;
}

std::string RewardsText(const v1::RunConfig& config,
                        const std::vector<reward::RewardFacts>& rewards) {
  std::string text;
  for (const reward::RewardFacts& facts : rewards) {
    absl::StrAppend(&text, "reward ", facts.name, ": identity ", facts.identity, "\n");
  }
  for (const RewardWeights& weights : WeightsOfRewards(config.reward())) {
    absl::StrAppend(&text, "weights of ", absl::StrJoin(weights.rewards, ", "), ": ",
                    BytesText(weights.bytes), " on ", weights.device, " in each of ",
                    config.services().reward_servers(), " reward servers (", weights.path, ")\n");
  }
  return text;
}

absl::Status CheckMetadataKeys(const std::vector<reward::RewardFacts>& rewards,
                               const std::vector<v1::Prompt>& prompts, const std::string& file) {
  for (const reward::RewardFacts& facts : rewards) {
    for (const std::string& key : facts.metadata_keys) {
      for (const v1::Prompt& prompt : prompts) {
        if (HasKey(prompt, key)) continue;
        return absl::InvalidArgumentError(absl::StrCat("reward ", facts.name, " needs `", key,
                                                       "` in the metadata of each prompt; ", file,
                                                       " has none for: ", prompt.text()));
      }
    }
  }
  return absl::OkStatus();
}

std::vector<config::Problem> CheckEndpoints(const v1::RewardConfig& config,
                                            absl::Duration timeout) {
  std::vector<config::Problem> problems;
  std::set<std::string> had;
  const std::vector<AskedEndpoint> asked = AskEndpoints(config, timeout);
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
