// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/process_table.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/plan/bytes_text.h"
#include "config/device_plan.h"
#include "config/validate.h"
#include "run/rewards.h"

namespace oxbow::cli {
namespace {

constexpr int kCpu = -1;

const char* NameOf(ProcessKind kind) {
  switch (kind) {
    case ProcessKind::kRank:
      return "learner rank";
    case ProcessKind::kWorker:
      return "rollout worker";
    case ProcessKind::kReward:
      return "reward server";
    case ProcessKind::kBuffer:
      return "replay buffer";
  }
  return "";
}

// A process whose model is on `device`.
ProcessRow ModelRow(ProcessKind kind, int number, const std::string& device, int planned,
                    const std::vector<MemoryItem>& items) {
  const std::optional<int> gpu = config::GpuOf(device, planned);
  if (!gpu.has_value()) {
    return {.kind = kind, .number = number, .host_bytes = PeakOf(items) + kProcessBytes};
  }
  std::vector<MemoryItem> on_host = items;
  std::erase_if(on_host, [](const MemoryItem& item) { return !item.on_host; });
  return {.kind = kind,
          .number = number,
          .gpu = *gpu,
          .gpu_bytes = DevicePeakOf(items) + kGpuContextBytes,
          .host_bytes = PeakOf(on_host) + kProcessBytes};
}

void AddRewardServer(int number, int planned, const BytesOfDevices& rewards,
                     std::vector<ProcessRow>& rows) {
  uint64_t host = kProcessBytes;
  std::map<int, uint64_t> by_gpu;
  for (const auto& [device, bytes] : rewards) {
    const std::optional<int> gpu = config::GpuOf(device, planned);
    (gpu.has_value() ? by_gpu[*gpu] : host) += bytes;
  }
  if (by_gpu.empty()) {
    rows.push_back({.kind = ProcessKind::kReward, .number = number, .host_bytes = host});
  }
  for (const auto& [gpu, bytes] : by_gpu) {
    rows.push_back({.kind = ProcessKind::kReward,
                    .number = number,
                    .gpu = gpu,
                    .gpu_bytes = bytes + kGpuContextBytes,
                    .host_bytes = std::exchange(host, 0)});
  }
}

// "0" or "0-7".
std::string Range(int first, int last) {
  return first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last);
}

std::string Line(const std::string& process, const std::string& device, const std::string& memory,
                 const std::string& host) {
  std::string line = absl::StrFormat("%-22s %-9s  %-15s %s", process, device, memory, host);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

// Whether `next` goes on the line of the rows from `first` to `last`: all on one device, or each on
// the GPU behind that of the one before.
bool Continues(const ProcessRow& first, const ProcessRow& last, const ProcessRow& next) {
  const int rows = last.number - first.number;
  const bool together = last.gpu == first.gpu && next.gpu == last.gpu;
  const bool spread = first.gpu != kCpu && last.gpu - first.gpu == rows && next.gpu == last.gpu + 1;
  return (together || spread) && next.kind == last.kind && next.number == last.number + 1 &&
         next.gpu_bytes == last.gpu_bytes && next.host_bytes == last.host_bytes;
}

std::string LineOf(const ProcessRow& first, const ProcessRow& last) {
  const bool several = first.number != last.number;
  const std::string each = several ? " each" : "";
  const std::string process =
      absl::StrCat(NameOf(first.kind), several ? "s " : " ", Range(first.number, last.number));
  const std::string host = BytesText(first.host_bytes) + each;
  if (first.gpu == kCpu) return Line(process, "cpu", host, "");
  return Line(process, absl::StrCat("cuda:", Range(first.gpu, last.gpu)),
              BytesText(first.gpu_bytes) + each, first.host_bytes == 0 ? "" : host);
}

// The memory that several processes on one GPU hold together.
std::string TogetherText(const std::vector<ProcessRow>& rows, const Gpus& gpus) {
  std::map<int, std::pair<int, uint64_t>> held;  // Processes and bytes.
  for (const ProcessRow& row : rows) {
    if (row.gpu == kCpu) continue;
    ++held[row.gpu].first;
    held[row.gpu].second += row.gpu_bytes;
  }
  const std::string size = gpus.bytes > 0 ? absl::StrCat(" of ", BytesText(gpus.bytes)) : "";
  std::string text;
  for (auto it = held.begin(); it != held.end();) {
    auto last = it;
    for (auto next = std::next(it);
         next != held.end() && next->first == last->first + 1 && next->second == it->second;
         ++next) {
      last = next;
    }
    if (it->second.first > 1 || gpus.bytes > 0) {
      absl::StrAppend(&text,
                      Line("  together there", absl::StrCat("cuda:", Range(it->first, last->first)),
                           BytesText(it->second.second) + size, ""));
    }
    it = std::next(last);
  }
  return text;
}

}  // namespace

std::vector<ProcessRow> ProcessRows(const v1::RunConfig& config, const run::ModelFacts& facts,
                                    const BytesOfDevices& rewards, int gpus) {
  const config::DevicePlan plan = config::PlanDevices(config, gpus);
  const std::string& device = config.model().device();
  const std::vector<MemoryItem> learner = LearnerMemory(config, facts);
  const std::vector<MemoryItem> member = MemberMemory(config, facts);
  const std::vector<MemoryItem> worker = WorkerMemory(config, facts);
  std::vector<ProcessRow> rows;
  for (size_t i = 0; i < plan.ranks.size(); ++i) {
    rows.push_back(ModelRow(ProcessKind::kRank, static_cast<int>(i), device, plan.ranks[i],
                            i == 0 ? learner : member));
  }
  for (size_t i = 0; i < plan.workers.size(); ++i) {
    rows.push_back(
        ModelRow(ProcessKind::kWorker, static_cast<int>(i), device, plan.workers[i], worker));
  }
  if (!run::OwnRewards(config.reward()).empty()) {
    for (size_t i = 0; i < plan.rewards.size(); ++i) {
      AddRewardServer(static_cast<int>(i), plan.rewards[i], rewards, rows);
    }
  }
  const uint32_t buffers = config::UsesReplayBuffer(config) ? config.services().replay_shards() : 0;
  for (uint32_t i = 0; i < buffers; ++i) {
    rows.push_back(
        {.kind = ProcessKind::kBuffer, .number = static_cast<int>(i), .host_bytes = kProcessBytes});
  }
  return rows;
}

std::string ProcessTable(const std::vector<ProcessRow>& rows, const Gpus& gpus) {
  const bool on_gpu =
      std::any_of(rows.begin(), rows.end(), [](const ProcessRow& row) { return row.gpu != kCpu; });
  std::string text = Line("process", "device", "memory", on_gpu ? "and on the host" : "");
  for (size_t first = 0; first < rows.size();) {
    size_t last = first;
    while (last + 1 < rows.size() && Continues(rows[first], rows[last], rows[last + 1])) ++last;
    absl::StrAppend(&text, LineOf(rows[first], rows[last]));
    first = last + 1;
  }
  return text + TogetherText(rows, gpus);
}

}  // namespace oxbow::cli
