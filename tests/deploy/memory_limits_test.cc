// SPDX-License-Identifier: Apache-2.0
// The memory that manifests and compose files give a program is more than its default limits and
// what it takes idle: a server that is overrun says "busy" before the kernel ends it.
#include "base/memory_limits.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace oxbow {
namespace {

namespace fs = std::filesystem;

const fs::path kDeploy = OXBOW_SOURCE_DIR "/deploy";
constexpr uint64_t kMiB = uint64_t{1} << 20;

// A program, and the memory that a file gives it.
struct Given {
  std::string program;
  uint64_t memory = 0;
};

// "2Gi", "512Mi", "1g", "${OXBOW_REWARD_MEMORY:-1g}".
uint64_t BytesOf(std::string text) {
  if (const size_t value = text.find(":-"); value != std::string::npos) {
    text = text.substr(value + 2, text.find('}') - value - 2);
  }
  const uint64_t number = std::strtoull(text.c_str(), nullptr, 10);
  const size_t unit = text.find_first_not_of("0123456789");
  return number * (text.at(unit) == 'M' || text.at(unit) == 'm' ? kMiB : kMiB << 10);
}

const std::vector<std::string> kPrograms = {"learner", "reward_server", "rollout_worker",
                                            "replay_buffer"};

std::string ProgramOf(const YAML::Node& command) {
  if (!command || !command.IsSequence() || command.size() == 0) return "";
  const auto name = command[0].as<std::string>();
  return std::find(kPrograms.begin(), kPrograms.end(), name) == kPrograms.end() ? "" : name;
}

// The value in a map, or in the one that it continues.
YAML::Node Value(const YAML::Node& map, const std::string& key) {
  if (map[key]) return map[key];
  return map["<<"] ? Value(map["<<"], key) : YAML::Node(YAML::NodeType::Undefined);
}

void Find(const YAML::Node& node, std::vector<Given>& found);

// A patch of an overlay replaces the memory of what it is about.
void FindInPatch(const std::string& target, const YAML::Node& patch, std::vector<Given>& found) {
  for (const YAML::Node& change : patch) {
    const YAML::Node value = change["value"];
    if (!value || !value.IsMap() || !value["limits"]) continue;
    found.push_back({target == "rollout" ? "rollout_worker" : target,
                     BytesOf(value["limits"]["memory"].as<std::string>())});
  }
}

void Find(const YAML::Node& node, std::vector<Given>& found) {
  if (node.IsSequence()) {
    for (const YAML::Node& child : node) Find(child, found);
  }
  if (!node.IsMap()) return;
  if (node["target"] && node["patch"]) {
    return FindInPatch(node["target"]["name"].as<std::string>(""),
                       YAML::Load(node["patch"].as<std::string>()), found);
  }
  if (const std::string program = ProgramOf(Value(node, "command")); !program.empty()) {
    if (const YAML::Node limit = Value(node, "mem_limit"); limit.IsDefined()) {
      found.push_back({program, BytesOf(limit.as<std::string>())});
    } else if (node["resources"]) {
      const YAML::Node limits = node["resources"]["limits"];
      ASSERT_TRUE(limits && limits["memory"]) << program << " has no limit of memory";
      found.push_back({program, BytesOf(limits["memory"].as<std::string>())});
    }
    return;
  }
  for (const auto& child : node) Find(child.second, found);
}

uint64_t SinkOf(const fs::path& run_file) {
  const YAML::Node services = YAML::LoadFile(run_file.string())["services"];
  if (!services || !services["sink_bytes_max"]) return uint64_t{1} << 30;  // configs/defaults.yaml
  return services["sink_bytes_max"].as<uint64_t>();
}

// Idle with the digits model, from `ps`, and what the program lets grow.
uint64_t MostOf(const Given& given) {
  const auto limit = [&](const MemoryShare& share) { return LimitOf(share, given.memory); };
  const uint64_t grpc = limit(kGrpcShare);
  if (given.program == "reward_server") {
    return 410 * kMiB + grpc + std::max(limit(kMediaShare), limit(kWaitingShare));
  }
  if (given.program == "replay_buffer") return 110 * kMiB + grpc + limit(kOffersShare);
  if (given.program == "rollout_worker") return 450 * kMiB + grpc + limit(kConditioningShare);
  // The large one has the large groups.
  const bool large = given.memory >= uint64_t{32} << 30;
  const uint64_t sink =
      SinkOf(kDeploy / "k8s/overlays" / (large ? "sd35m-gpu" : "digits-cpu") / "run.yaml");
  return 450 * kMiB + grpc + limit(kPromptsShare) + sink + std::min(sink, limit(kBacklogShare));
}

// Promise: Limits add up to less than the memory.
TEST(MemoryLimitsTest, DefaultLimitsAddUpToLessThanEachManifestGives) {
  std::map<std::string, int> seen;
  for (const auto& file : fs::recursive_directory_iterator(kDeploy)) {
    const std::string name = file.path().filename().string();
    if (!absl::EndsWith(name, ".yaml") && !absl::EndsWith(name, ".yml")) continue;
    std::vector<Given> found;
    for (const YAML::Node& document : YAML::LoadAllFromFile(file.path().string())) {
      Find(document, found);
    }
    for (const Given& given : found) {
      EXPECT_LT(MostOf(given), given.memory) << given.program << " in " << file.path();
      ++seen[given.program];
    }
  }
  for (const std::string& program : kPrograms) EXPECT_GE(seen[program], 2) << program;
}

// Promise: Limits add up to less than the memory.
TEST(MemoryLimitsTest, ALimitIsAShareWithinItsBounds) {
  constexpr MemoryShare kShare{0.25, 64 * kMiB, 1024 * kMiB};
  EXPECT_EQ(LimitOf(kShare, 2048 * kMiB), 512 * kMiB);
  EXPECT_EQ(LimitOf(kShare, 100 * kMiB), 64 * kMiB);
  EXPECT_EQ(LimitOf(kShare, 65536 * kMiB), 1024 * kMiB);
}

// Promise: Limits add up to less than the memory.
TEST(MemoryLimitsTest, ALauncherDividesItsMemory) {
  const uint64_t all = UsableMemory();
  EXPECT_EQ(MemoryFor(2, 8), "OXBOW_MEMORY_BYTES=" + std::to_string(all / 8 * 2));
  ShareMemoryAmong(4);
  EXPECT_EQ(UsableMemory(), all / 4);
  EXPECT_EQ(MemoryFor(1, 2), "OXBOW_MEMORY_BYTES=" + std::to_string(all / 4 / 2));
  ::unsetenv("OXBOW_MEMORY_BYTES");
  EXPECT_EQ(UsableMemory(), all);
}

}  // namespace
}  // namespace oxbow
