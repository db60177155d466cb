// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/machine_load.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/exit_code.h"
#include "cli/oncall/machine_checks.h"
#include "cli/plan/reward_plan.h"
#include "cli/terminal.h"
#include "config/device_plan.h"
#include "config/memory_parts.h"
#include "core/model/device.h"
#include "core/model/device_memory.h"
#include "run/rewards.h"
#include "run/sampling_spec.h"

namespace oxbow::cli {

namespace {

constexpr int kCpu = -1;

const char* NameOf(ProcessKind kind) {
  static constexpr const char* kNames[] = {"learner rank", "rollout worker", "reward server",
                                           "replay buffer"};
  return kNames[static_cast<int>(kind)];
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

// By which a plan is above the peak that is measured, at most.
constexpr double kPlanError = 0.15;

// The cheapest key that is left to make a rank need less memory, and how to set it.
std::pair<std::string, std::string> KeyOfRank(const v1::RunConfig& config) {
  const std::string part = config::NextMemoryPart(config);
  if (part != "recompute" && config.model().compute_dtype() != v1::STORAGE_D_TYPE_BF16) {
    return {"model.compute_dtype", "set bf16, or lower batch.rows_per_pass"};
  }
  if (part.empty()) return {"batch.rows_per_pass", "lower it or batch.group_size"};
  return {"model.memory", absl::StrCat("add ", part, ", or lower batch.rows_per_pass")};
}

std::pair<std::string, std::string> KeyAndFix(const v1::RunConfig& config, const GpuLoad& load,
                                              uint64_t gpu_bytes) {
  if (load.rank_bytes > gpu_bytes) return KeyOfRank(config);
  if (load.worker_bytes > gpu_bytes) {
    return {"sampling.rows_per_forward",
            "set it, or lower services.groups_in_flight or services.rollout_workers"};
  }
  if (load.rank_bytes + load.worker_bytes > gpu_bytes) {
    return {"services.rollout_workers",
            "lower it and learner.ranks until each has a GPU of its own, or set "
            "sampling.rows_per_forward, or add offload_weights to model.memory"};
  }
  return {"reward.scorers", "give rewards another `device`, or lower services.reward_servers"};
}

// The values of model.memory that may fit, best first.
std::vector<std::string> MemoriesToTry(const config::ResolvedConfig& resolved, const Gpus& gpus) {
  const v1::ModelConfig& model = resolved.config.model();
  if (!resolved.chosen_memory) return {config::MemoryName(config::MemoryOf(model))};
  std::vector<config::MemoryParts> rungs = config::MemoryRungs(model);
  if (gpus.bytes == 0 || model.device() == "cpu") rungs.resize(1);
  std::vector<std::string> memories;
  for (const config::MemoryParts& rung : rungs) memories.push_back(config::MemoryName(rung));
  return memories;
}

}  // namespace

std::vector<ProcessRow> ProcessRows(const v1::RunConfig& config, const run::ModelFacts& facts,
                                    const BytesOfDevices& rewards, int gpus) {
  const config::DevicePlan plan = config::PlanDevices(config, gpus);
  const std::string& device = config.model().device();
  const std::vector<MemoryItem> learner = LearnerMemory(config, facts);
  const std::vector<MemoryItem> member = MemberMemory(config, facts);
  const std::vector<MemoryItem> worker = WorkerMemory(config, facts);
  const std::vector<MemoryItem> borrower = WorkerMemory(config, facts, /*borrows=*/true);
  std::set<std::optional<int>> lenders;
  if (config::LendsBase(config.model())) {
    for (const int planned : plan.ranks) lenders.insert(config::GpuOf(device, planned));
  }
  std::vector<ProcessRow> rows;
  for (size_t i = 0; i < plan.ranks.size(); ++i) {
    rows.push_back(ModelRow(ProcessKind::kRank, static_cast<int>(i), device, plan.ranks[i],
                            i == 0 ? learner : member));
  }
  for (size_t i = 0; i < plan.workers.size(); ++i) {
    const bool borrows = lenders.contains(config::GpuOf(device, plan.workers[i]));
    rows.push_back(ModelRow(ProcessKind::kWorker, static_cast<int>(i), device, plan.workers[i],
                            borrows ? borrower : worker));
  }
  for (size_t i = 0; i < run::RewardServersOf(config); ++i) {
    AddRewardServer(static_cast<int>(i), plan.rewards[i], rewards, rows);
  }
  for (uint32_t i = 0; i < config::ReplayBuffersOf(config); ++i) {
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

std::map<int, GpuLoad> LoadOfGpus(const std::vector<ProcessRow>& rows) {
  std::map<int, GpuLoad> loads;
  for (const ProcessRow& row : rows) {
    if (row.gpu < 0) continue;
    GpuLoad& load = loads[row.gpu];
    load.ranks += row.kind == ProcessKind::kRank;
    load.workers += row.kind == ProcessKind::kWorker;
    (row.kind == ProcessKind::kRank     ? load.rank_bytes
     : row.kind == ProcessKind::kWorker ? load.worker_bytes
                                        : load.reward_bytes) += row.gpu_bytes;
  }
  return loads;
}

std::optional<config::Problem> CheckGpuLoad(const v1::RunConfig& config,
                                            const std::vector<ProcessRow>& rows, const Gpus& gpus) {
  if (gpus.bytes == 0) return std::nullopt;
  for (const auto& [gpu, load] : LoadOfGpus(rows)) {
    if (load.bytes() <= gpus.bytes) continue;
    std::vector<std::string> parts;
    const auto add = [&](uint32_t count, const char* what, uint64_t bytes) {
      if (bytes == 0) return;
      parts.push_back(count == 1 ? absl::StrCat("a ", what, " takes ", BytesText(bytes))
                                 : absl::StrCat(count, " ", what, "s take ", BytesText(bytes)));
    };
    add(load.ranks, "learner rank", load.rank_bytes);
    add(load.workers, "rollout worker", load.worker_bytes);
    if (load.reward_bytes > 0) {
      parts.push_back(absl::StrCat("rewards take ", BytesText(load.reward_bytes)));
    }
    const auto [key, fix] = KeyAndFix(config, load, gpus.bytes);
    const bool certain =
        static_cast<double>(load.bytes()) > (1 + kPlanError) * static_cast<double>(gpus.bytes);
    return config::Problem{certain ? config::Severity::kError : config::Severity::kWarning, key,
                           absl::StrCat("on cuda:", gpu, " ", absl::StrJoin(parts, ", "),
                                        "; it has ", BytesText(gpus.bytes), ": ", fix),
                           absl::StatusCode::kResourceExhausted};
  }
  return std::nullopt;
}

namespace {

// Weights that come over the bus come once for each pass: as many rows as fit, but no fewer than
// were asked for.
void WidenPasses(const run::ModelFacts& facts, const BytesOfDevices& rewards, const Gpus& gpus,
                 config::ResolvedConfig& resolved) {
  const v1::RunConfig& config = resolved.config;
  if (!resolved.chosen_memory || config.batch().rows_per_pass() == 0 ||
      config.model().trained() != v1::TRAINED_PART_FULL ||
      !config::MemoryOf(config.model()).offload_weights) {
    return;
  }
  const uint32_t rows = RowsThatFit(config, [&](const v1::RunConfig& tried) {
    return !CheckGpuLoad(tried, ProcessRows(tried, facts, rewards, gpus.count), gpus).has_value();
  });
  if (rows == config.batch().rows_per_pass()) return;
  resolved.config.mutable_batch()->set_rows_per_pass(rows);
  resolved.provenance["batch.rows_per_pass"] = config::kMemoryAuto;
}

void SettleMemory(const run::ModelFacts& facts, const BytesOfDevices& rewards, const Gpus& gpus,
                  config::ResolvedConfig& resolved) {
  const bool counted = resolved.counted_ranks || resolved.counted_workers;
  const std::vector<std::string> memories = MemoriesToTry(resolved, gpus);
  using config::GpuSharing;
  for (const std::string& memory : memories) {
    resolved.config.mutable_model()->set_memory(memory);
    if (memory != memories.front()) resolved.provenance["model.memory"] = config::kMemoryAuto;
    if (!counted && memories.size() == 1) return;
    for (const GpuSharing sharing :
         {GpuSharing::kTogether, GpuSharing::kApart, GpuSharing::kApartFromRewards}) {
      v1::RunConfig tried = resolved.config;
      if (resolved.counted_ranks) tried.mutable_learner()->set_ranks(config::kAuto);
      if (resolved.counted_workers) tried.mutable_services()->set_rollout_workers(config::kAuto);
      config::CountProcesses(gpus.count, sharing, tried);
      const auto rows = ProcessRows(tried, facts, rewards, gpus.count);
      if (!CheckGpuLoad(tried, rows, gpus).has_value()) {
        resolved.config = std::move(tried);
        return;
      }
      if (!counted) break;
    }
  }
}

}  // namespace

uint32_t RowsThatFit(const v1::RunConfig& config,
                     const std::function<bool(const v1::RunConfig&)>& fits) {
  v1::RunConfig tried = config;
  const uint32_t asked = config.batch().rows_per_pass();
  tried.mutable_batch()->set_rows_per_pass(0);
  auto rows = static_cast<uint32_t>(run::RowsOfPass(tried));
  if (fits(tried)) return 0;
  for (rows = (rows + 1) / 2; rows > asked; rows = (rows + 1) / 2) {
    tried.mutable_batch()->set_rows_per_pass(rows);
    if (fits(tried)) return rows;
    if (rows == 1) break;
  }
  return asked;
}

void Settle(const run::ModelFacts& facts, const BytesOfDevices& rewards, const Gpus& gpus,
            config::ResolvedConfig& resolved) {
  run::FillLoraTargets(*facts.architecture, *resolved.config.mutable_model());
  SettleMemory(facts, rewards, gpus, resolved);
  WidenPasses(facts, rewards, gpus, resolved);
}

std::string MemoryChoice(const config::ResolvedConfig& resolved,
                         const std::vector<ProcessRow>& rows, const Gpus& gpus) {
  if (!resolved.chosen_memory) return "";
  uint64_t most = 0;
  for (const auto& [gpu, load] : LoadOfGpus(rows)) most = std::max(most, load.bytes());
  return absl::StrCat("auto -> ", resolved.config.model().memory(),
                      most == 0 || gpus.bytes == 0
                          ? ""
                          : absl::StrCat(", ", BytesText(most), " of ", BytesText(gpus.bytes),
                                         " on the fullest GPU"));
}

uint64_t HostBytes(const std::vector<ProcessRow>& rows) {
  uint64_t bytes = kProcessBytes;
  for (const ProcessRow& row : rows) bytes += row.host_bytes;
  return bytes;
}

std::optional<config::Problem> CheckHostMemory(const std::vector<ProcessRow>& rows,
                                               uint64_t available) {
  const uint64_t needed = HostBytes(rows);
  if (available == 0 || needed <= available) return std::nullopt;
  return config::Problem{
      config::Severity::kWarning, "batch.rows_per_pass",
      absl::StrCat("the processes of the run take ", BytesText(needed),
                   " of memory, this machine has ", BytesText(available),
                   " left: lower it, batch.group_size or services.rollout_workers, or set "
                   "model.memory: recompute")};
}

Gpus GpusHere() { return {.count = model::GpuCount(), .bytes = model::GpuBytes()}; }

absl::StatusOr<Gpus> ParseGpus(const std::string& text) {
  constexpr int kGpusMax = 1024;
  constexpr double kGibMax = 1 << 20;
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('x', 1));
  Gpus gpus;
  double gib = 0;
  const bool read = parts.size() == 2 && absl::SimpleAtoi(parts[0], &gpus.count) &&
                    absl::SimpleAtod(parts[1], &gib);
  if (!read || gpus.count < 1 || gpus.count > kGpusMax || !(gib > 0 && gib <= kGibMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--gpus takes a number of GPUs and the GiB of each, such as 8x80: ", text));
  }
  gpus.bytes = static_cast<uint64_t>(gib * (uint64_t{1} << 30));
  return gpus;
}

std::vector<ProcessRow> ProcessesOn(const Gpus& gpus, const v1::RunConfig& config,
                                    const run::ModelFacts& facts) {
  return ProcessRows(config, facts, RewardBytes(config.reward()), gpus.count);
}

std::vector<config::Problem> CheckMemory(const v1::RunConfig& config,
                                         const std::vector<ProcessRow>& rows, const Gpus& gpus,
                                         bool elsewhere) {
  std::vector<config::Problem> problems;
  const uint64_t available = elsewhere ? 0 : LookAtMachine({}, {}).memory_available;
  if (auto host = CheckHostMemory(rows, available)) problems.push_back(*host);
  if (auto gpu = CheckGpuLoad(config, rows, gpus)) problems.push_back(*gpu);
  return problems;
}

std::vector<config::Problem> CheckDisks(const v1::RunConfig& config, const run::ModelFacts& facts) {
  std::vector<config::Problem> problems;
  const std::vector<Disk> disks = LookAtDisks(DiskSharesOf(config, facts));
  const Checks checks = JudgeDisks(disks);
  for (size_t i = 0; i < disks.size(); ++i) {
    if (disks[i].free >= disks[i].needs) continue;
    problems.push_back({checks[i].ends_run ? config::Severity::kError : config::Severity::kWarning,
                        disks[i].keys.front(), absl::StrCat(checks[i].found, ": ", checks[i].fix),
                        absl::StatusCode::kResourceExhausted});
  }
  return problems;
}

absl::Status FirstMemoryError(const std::vector<config::Problem>& problems,
                              const config::Provenance& provenance) {
  const absl::Status first = config::FirstError(problems, provenance);
  return first.ok() ? first : OutOfMemoryError(std::string(first.message()));
}

}  // namespace oxbow::cli
