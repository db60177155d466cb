// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/gpu_share.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace oxbow::rollout {
namespace {

constexpr int kTasksMax = 1 << 16;

std::optional<int> NumberOf(const parallel::EnvironmentLookup& lookup, const std::string& name) {
  int number = 0;
  const std::optional<std::string> text = lookup(name);
  if (!text.has_value() || !absl::SimpleAtoi(*text, &number) || number < 0) return std::nullopt;
  return number;
}

// "4(x2),1" is 4, 4 and 1 tasks on three nodes. 0 if it does not say it of `node`.
int TasksOn(int node, absl::string_view per_node) {
  for (const absl::string_view part : absl::StrSplit(per_node, ',')) {
    const std::vector<absl::string_view> words = absl::StrSplit(part, "(x");
    int tasks = 0, nodes = 1;
    if (words.size() > 2 || !absl::SimpleAtoi(words[0], &tasks)) return 0;
    if (words.size() == 2 && !absl::SimpleAtoi(absl::StripSuffix(words[1], ")"), &nodes)) return 0;
    if (node < nodes) return std::clamp(tasks, 0, kTasksMax);
    node -= nodes;
  }
  return 0;
}

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("--gpus: ", what));
}

absl::StatusOr<std::vector<int>> Listed(const std::string& asked, int count) {
  std::vector<int> gpus;
  for (const absl::string_view word : absl::StrSplit(asked, ',')) {
    int gpu = 0;
    if (!absl::SimpleAtoi(word, &gpu) || gpu < 0) {
      return Bad(absl::StrCat("all, or numbers such as 0,1: got ", asked));
    }
    if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) {
      return Bad(absl::StrCat("GPU ", gpu, " is named twice"));
    }
    if (gpu >= count) {
      return absl::UnavailableError(
          absl::StrCat("--gpus: no GPU ", gpu, ", this machine has ", count));
    }
    gpus.push_back(gpu);
  }
  return gpus;
}

// "host:7073" as "host:7074" for 1; an address with port 0 or without one as it is.
std::string Moved(const std::string& address, int by) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port == 0) {
    return address;
  }
  return absl::StrCat(address.substr(0, colon + 1), port + by);
}

}  // namespace

TaskOnNode ReadSlurmTask(const parallel::EnvironmentLookup& lookup) {
  const std::optional<int> index = NumberOf(lookup, "SLURM_LOCALID");
  if (!index.has_value()) return {};
  const int node = NumberOf(lookup, "SLURM_NODEID").value_or(0);
  const int tasks = TasksOn(node, lookup("SLURM_STEP_TASKS_PER_NODE").value_or(""));
  return {.index = *index,
          .tasks = std::max(tasks, *index + 1),
          .bound = !lookup("SLURM_GPUS_PER_TASK").value_or("").empty()};
}

absl::StatusOr<std::vector<int>> GpusOf(const std::string& asked, int count,
                                        const TaskOnNode& task) {
  if (count == 0) return Bad("this machine has no GPU; --device cpu samples on the CPU");
  if (asked != "all") return Listed(asked, count);
  if (!task.bound && count < task.tasks) return std::vector<int>{task.index % count};
  std::vector<int> gpus;
  for (int gpu = 0; gpu < count; ++gpu) {
    if (task.bound || gpu % task.tasks == task.index) gpus.push_back(gpu);
  }
  return gpus;
}

std::vector<std::string> ArgumentsOfGpu(const std::vector<std::string>& arguments, int gpu,
                                        int index) {
  std::vector<std::string> result;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t sign = arguments[i].find('=');
    const std::string flag = arguments[i].substr(0, sign);
    const bool apart = sign == std::string::npos && i + 1 < arguments.size();
    const bool mine = flag == "--gpus" || flag == "--id" || absl::EndsWith(flag, "listen");
    if (!mine) {
      result.push_back(arguments[i]);
      continue;
    }
    const std::string value = apart ? arguments[++i] : arguments[i].substr(sign + 1);
    if (flag == "--id") {
      result.insert(result.end(), {flag, absl::StrCat(value, "-gpu", gpu)});
    } else if (flag != "--gpus") {
      result.insert(result.end(), {flag, Moved(value, index)});
    }
  }
  result.insert(result.end(), {"--device", absl::StrCat("cuda:", gpu)});
  return result;
}

}  // namespace oxbow::rollout
