// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/rank_environment.h"

#include <cstdint>
#include <initializer_list>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "core/parallel/rank_variables.h"

namespace oxbow::parallel {
namespace {

// For an srun step without MASTER_PORT: each job has its own port above the registered services.
constexpr int kSlurmPortFirst = 20000;
constexpr int kSlurmPorts = 10000;
constexpr int64_t kRanksMax = 1 << 20;  // Far more than there are anywhere.

struct Setting {
  std::string name;
  std::string value;
};

class Reader {
 public:
  explicit Reader(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  bool Has(const std::string& name) const { return Find({name.c_str()}).has_value(); }

  // The first of `names` that is set.
  std::optional<Setting> Find(std::initializer_list<const char*> names) const {
    for (const char* const name : names) {
      const std::optional<std::string> value = lookup_(name);
      if (value && !value->empty()) return Setting{name, *value};
    }
    return std::nullopt;
  }

  absl::StatusOr<Setting> Need(std::initializer_list<const char*> names,
                               const std::string& because) const {
    if (const auto found = Find(names)) return *found;
    return absl::InvalidArgumentError(absl::StrCat("the environment names ranks by half: ", because,
                                                   " is set, ", absl::StrJoin(names, " or "),
                                                   " is not"));
  }

  absl::StatusOr<int> NeedNumber(std::initializer_list<const char*> names,
                                 const std::string& because) const {
    OXBOW_ASSIGN_OR_RETURN(const Setting setting, Need(names, because));
    return Number(setting);
  }

  absl::StatusOr<int> NumberOr(const std::string& name, int otherwise) const {
    const auto found = Find({name.c_str()});
    return found ? Number(*found) : otherwise;
  }

  static absl::StatusOr<int> Number(const Setting& setting) {
    int value = 0;
    if (absl::SimpleAtoi(setting.value, &value) && value >= 0) return value;
    return absl::InvalidArgumentError(
        absl::StrCat("not a whole number in the environment: ", setting.name, "=", setting.value));
  }

 private:
  const EnvironmentLookup& lookup_;
};

absl::Status ReadMeetingPlace(const Reader& reader, const std::string& because,
                              JoinOptions& result) {
  if (result.size == 1 && !reader.Has("MASTER_ADDR")) return absl::OkStatus();
  OXBOW_ASSIGN_OR_RETURN(const Setting address,
                         reader.Need({"MASTER_ADDR", "MASTER_IP", "CHIEF_IP"}, because));
  result.address = address.value;
  OXBOW_ASSIGN_OR_RETURN(result.port, reader.NeedNumber({"MASTER_PORT"}, because));
  return absl::OkStatus();
}

// The number that "oxbow-learner-3" ends in.
absl::StatusOr<int> Ordinal(const Setting& pod) {
  return Reader::Number({pod.name, pod.value.substr(pod.value.rfind('-') + 1)});
}

absl::StatusOr<JoinOptions> FromTorchrun(const Reader& reader) {
  JoinOptions result;
  OXBOW_ASSIGN_OR_RETURN(result.size, reader.NeedNumber({"WORLD_SIZE"}, "RANK"));
  if (const auto pod = reader.Find({"POD_NAME"});
      pod && !reader.Find({"RANK", "JOB_COMPLETION_INDEX"}) && result.size > 1) {
    OXBOW_ASSIGN_OR_RETURN(result.rank, Ordinal(*pod));
  } else if (result.size > 1 || reader.Has("RANK")) {
    OXBOW_ASSIGN_OR_RETURN(result.rank,
                           reader.NeedNumber({"RANK", "JOB_COMPLETION_INDEX"}, "WORLD_SIZE"));
  }
  OXBOW_ASSIGN_OR_RETURN(result.local_rank, reader.NumberOr("LOCAL_RANK", 0));
  OXBOW_RETURN_IF_ERROR(ReadMeetingPlace(reader, "WORLD_SIZE", result));
  return result;
}

absl::StatusOr<JoinOptions> FromSlurm(const Reader& reader) {
  const std::string because = kSlurmStepVariable;
  JoinOptions result;
  OXBOW_ASSIGN_OR_RETURN(result.size, reader.NeedNumber({kSlurmStepVariable}, because));
  OXBOW_ASSIGN_OR_RETURN(result.rank, reader.NeedNumber({"SLURM_PROCID"}, because));
  OXBOW_ASSIGN_OR_RETURN(result.local_rank, reader.NumberOr("SLURM_LOCALID", 0));
  if (const auto address = reader.Find({"MASTER_ADDR"})) {
    result.address = address->value;
  } else {
    OXBOW_ASSIGN_OR_RETURN(const Setting nodes,
                           reader.Need({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}, because));
    result.address = FirstHostOf(nodes.value);
  }
  if (reader.Has("MASTER_PORT")) {
    OXBOW_ASSIGN_OR_RETURN(result.port, reader.NeedNumber({"MASTER_PORT"}, because));
  } else {
    OXBOW_ASSIGN_OR_RETURN(const int job, reader.NeedNumber({"SLURM_JOB_ID"}, because));
    result.port = kSlurmPortFirst + job % kSlurmPorts;
  }
  return result;
}

absl::StatusOr<JoinOptions> FromMachines(const Reader& reader, const Setting& machines) {
  JoinOptions result;
  OXBOW_ASSIGN_OR_RETURN(const int count, Reader::Number(machines));
  OXBOW_ASSIGN_OR_RETURN(const int per_machine, reader.NumberOr("GPUS_PER_NODE", 1));
  if (int64_t{count} * per_machine > kRanksMax) {
    return absl::InvalidArgumentError(absl::StrCat("the environment names too many ranks: ", count,
                                                   " machines with ", per_machine, " each"));
  }
  result.size = count * per_machine;
  if (result.size > 1) {
    OXBOW_ASSIGN_OR_RETURN(
        const int machine,
        reader.NeedNumber({"MACHINE_RANK", "NODE_RANK", "INDEX"}, machines.name));
    if (per_machine > 1) {
      OXBOW_ASSIGN_OR_RETURN(result.local_rank, reader.NeedNumber({"LOCAL_RANK"}, "GPUS_PER_NODE"));
    }
    if (machine >= count || result.local_rank >= per_machine) {
      return absl::InvalidArgumentError(
          absl::StrCat("the environment names a rank that cannot be: ", result.local_rank, " of ",
                       per_machine, " on machine ", machine, " of ", count));
    }
    result.rank = machine * per_machine + result.local_rank;
  }
  OXBOW_RETURN_IF_ERROR(ReadMeetingPlace(reader, machines.name, result));
  return result;
}

absl::StatusOr<JoinOptions> Read(const Reader& reader) {
  if (reader.Find({kRankVariable, kWorldSizeVariable})) return FromTorchrun(reader);
  // A batch script has SLURM_PROCID too; only tasks of srun have a step.
  if (reader.Has(kSlurmStepVariable)) return FromSlurm(reader);
  if (const auto machines = reader.Find(kMachineCountVariables)) {
    return FromMachines(reader, *machines);
  }
  for (const std::string name : kHalfVariables) {
    if (reader.Has(name)) return reader.Need({"RANK", "WORLD_SIZE"}, name).status();
  }
  return JoinOptions{};
}

}  // namespace

absl::StatusOr<JoinOptions> ReadRankEnvironment(const EnvironmentLookup& lookup) {
  const Reader reader(lookup);
  OXBOW_ASSIGN_OR_RETURN(JoinOptions result, Read(reader));
  if (result.size < 1 || result.rank >= result.size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the environment names a rank that cannot be: ", result.rank, " of ", result.size));
  }
  if ((result.size > 1 && result.port < 1) || result.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a port in the environment: MASTER_PORT=", result.port));
  }
  result.agent_has_store = lookup(kAgentStoreVariable).value_or("") == "True";
  for (const std::string name : kRestartVariables) {
    OXBOW_ASSIGN_OR_RETURN(result.restart, reader.NumberOr(name, result.restart));
  }
  return result;
}

std::string FirstHostOf(const std::string& slurm_node_list) {
  const size_t bracket = slurm_node_list.find('[');
  const size_t comma = slurm_node_list.find(',');
  if (bracket == std::string::npos || comma < bracket) return slurm_node_list.substr(0, comma);
  const size_t end = slurm_node_list.find_first_of(",-]", bracket);
  if (end == std::string::npos) return slurm_node_list.substr(0, bracket);
  const size_t closed = slurm_node_list.find(']', bracket);
  const size_t next = slurm_node_list.find(',', closed);
  const std::string suffix =
      closed == std::string::npos ? "" : slurm_node_list.substr(closed + 1, next - closed - 1);
  return slurm_node_list.substr(0, bracket) +
         slurm_node_list.substr(bracket + 1, end - bracket - 1) + suffix;
}

}  // namespace oxbow::parallel
