// SPDX-License-Identifier: Apache-2.0
#include "cli/oncall/machine_checks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/terminal.h"
#include "rpc/tls.h"

namespace oxbow::cli {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr double kAmple = 1.25;  // Less than this multiple of the need is a warning.

// Nothing is to be done where it is ok.
Check Machine(std::string name, Grade verdict, std::string found, std::string fix = "") {
  if (verdict == Grade::kOk) fix.clear();
  return {"machine", std::move(name), verdict, std::move(found), std::move(fix)};
}

// Ok if value >= ample, warn if value >= least, else fail.
Grade Graded(double value, double least, double ample) {
  return value >= ample ? Grade::kOk : value >= least ? Grade::kWarn : Grade::kFail;
}

std::string Needed(uint64_t needs) {
  return needs == 0 ? "" : absl::StrCat(", the run takes about ", BytesText(needs));
}

Check Memory(const MachineFacts& facts, uint64_t needs) {
  const auto least = static_cast<double>(std::max(needs, 256 * kMiB));
  const Grade verdict = Graded(static_cast<double>(facts.memory_available), least, kAmple * least);
  return Machine(
      "memory", verdict,
      absl::StrCat(BytesText(facts.memory_available), " available",
                   facts.memory_of_cgroup ? " (limit of the control group)" : "", Needed(needs)),
      "fewer services.rollout_workers, a smaller services.sink_bytes_max, or a larger limit");
}

// Each is right alone. Together they may let the kernel end a process before one says "busy".
Check MemoryLimits(const MachineFacts& facts, uint64_t limits) {
  const bool fit = limits <= facts.memory_usable;
  return Machine("memory limits", fit ? Grade::kOk : Grade::kWarn,
                 absl::StrCat("buffers, queues and processes: up to ", BytesText(limits), " of ",
                              BytesText(facts.memory_usable)),
                 "a smaller services.sink_bytes_max, fewer services.rollout_workers, or a larger "
                 "limit: else the kernel may end a process that is overrun");
}

// `runs`: the run's directory is there, which always needs some room.
Check JudgeDisk(const Disk& disk, bool runs) {
  const std::string keys = absl::StrJoin(disk.keys, ", ");
  const std::string name = runs ? "disk" : absl::StrCat("disk of ", keys);
  const auto least = static_cast<double>(std::max(disk.needs, runs ? 128 * kMiB : 0));
  const double ample = std::max(kAmple * least, runs ? 1024.0 * kMiB : 0);
  Check check =
      Machine(name, Graded(static_cast<double>(disk.free), least, ample),
              absl::StrCat(BytesText(disk.free), " free at ", disk.path, Needed(disk.needs)));
  if (!disk.writable) {
    check.verdict = Grade::kFail;
    check.found = absl::StrCat("cannot write to ", disk.path);
    check.fix = absl::StrCat("choose another ", keys, ", or give it to this user");
  } else if (check.verdict != Grade::kOk) {
    check.fix = absl::StrCat("free some space, ",
                             runs ? "lower checkpoint.keep, replay.capacity or eval.grid_images, "
                                    "raise eval.every, "
                                  : "",
                             "or move ", keys);
  }
  check.ends_run = disk.free < disk.least;
  return check;
}

Check Descriptors(const MachineFacts& facts) {
  const Grade verdict =
      Graded(static_cast<double>(facts.descriptors_max), static_cast<double>(kDescriptorsLeast),
             static_cast<double>(kDescriptorsWanted));
  return Machine(
      "open files", verdict, absl::StrCat("hard limit ", facts.descriptors_max),
      absl::StrCat("ulimit -Hn ", kDescriptorsWanted,
                   " (LimitNOFILE= of a unit, --ulimit of a container): a process has a connection "
                   "to each of its peers"));
}

Check Cores(const MachineFacts& facts, const MachineNeeds& needs) {
  const double busy = needs.met ? 0 : needs.busy_processes;
  std::string found = absl::StrFormat("%.4g usable, load %.1f", facts.cores, facts.load);
  if (needs.busy_processes > 0) {
    absl::StrAppend(&found, ", ", needs.busy_processes,
                    " processes that compute (learner ranks and workers), ", needs.processes,
                    " in all");
  }
  if (busy > facts.cores) {
    return Machine("cores", Grade::kWarn, found,
                   "lower services.rollout_workers or learner.ranks: more processes than cores "
                   "slow each other down");
  }
  if (!needs.met && facts.load + busy > 1.5 * facts.cores + 1) {
    return Machine("cores", Grade::kWarn, found, "something else is busy here: see top");
  }
  return Machine("cores", Grade::kOk, found);
}

// `oxbow train` sets both for its children; other services inherit them from their launcher.
Check Threads(const MachineFacts& facts) {
  int threads = 0;
  const bool many = absl::SimpleAtoi(facts.omp_num_threads, &threads) && threads > 1;
  const bool spins = absl::AsciiStrToLower(facts.omp_wait_policy) == "active";
  const auto shown = [](const std::string& value) { return value.empty() ? "not set" : value; };
  const std::string found = absl::StrCat("OMP_NUM_THREADS ", shown(facts.omp_num_threads),
                                         ", OMP_WAIT_POLICY ", shown(facts.omp_wait_policy));
  return Machine("OpenMP", spins || many ? Grade::kWarn : Grade::kOk, found,
                 "OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE: each process computes in one thread, "
                 "more of them only wait for each other");
}

Check Kernels(const MachineFacts& facts) {
  const bool slow = !facts.fast_blas || facts.cpu_capability == "DEFAULT";
  return Machine("LibTorch", slow ? Grade::kWarn : Grade::kOk,
                 absl::StrCat("kernels ", facts.cpu_capability, ", ",
                              facts.fast_blas ? "tuned BLAS" : "generic BLAS"),
                 "matrix products are several times slower like this: install the LibTorch wheel "
                 "that tools/install_deps.sh names");
}

Check ClockCheck(bool synchronised) {
  return Machine(
      "clock", synchronised ? Grade::kOk : Grade::kWarn,
      synchronised ? "synchronised" : "not synchronised by the kernel's account",
      "run chrony or systemd-timesyncd: leases do not depend on it, log lines of several "
      "machines do");
}

// A variable that gRPC reads, not one in capitals, which other programs do.
bool IsRead(const std::string& proxy) { return absl::ascii_islower(proxy.front()); }

Check Proxy(const std::vector<std::string>& proxies, bool used) {
  const std::string set = absl::StrJoin(proxies, ", ");
  if (!used) {
    return Machine("proxy", Grade::kOk,
                   absl::StrCat(set, ": calls between services of a run do not go through it"));
  }
  if (std::any_of(proxies.begin(), proxies.end(), IsRead)) {
    return Machine(
        "proxy", Grade::kOk,
        absl::StrCat(set, ": calls between services go through it (services.http_proxy)"));
  }
  return Machine(
      "proxy", Grade::kWarn, "services.http_proxy is true, and no variable names one",
      "set grpc_proxy, https_proxy or http_proxy, in small letters, or leave the key out");
}

Check Launcher(const std::vector<std::string>& variables) {
  return Machine("launcher", Grade::kOk,
                 absl::StrCat(absl::StrJoin(variables, ", "),
                              ": oxbow train does not look at them; a learner that is started by "
                              "hand takes its rank from them"));
}

// An expired certificate is a finding of its own (doctor.cc).
Check Certificate(absl::Duration left) {
  const bool enough = left >= absl::Hours(24 * kCertificateDaysWanted);
  return Machine("certificate", enough ? Grade::kOk : Grade::kWarn,
                 absl::StrFormat("ends in %.1f days", absl::ToDoubleHours(left) / 24),
                 "renew the files of TLS (docs/operations.md): no new connection is made after its "
                 "end");
}

}  // namespace

bool SpansMachines(const v1::RunConfig& config) {
  const auto elsewhere = [](const std::string& address) { return !rpc::IsLoopback(address); };
  const std::string& host = config.services().host();
  return (!host.empty() && elsewhere(absl::StrCat(host, ":0"))) ||
         std::any_of(config.reward().endpoints().begin(), config.reward().endpoints().end(),
                     elsewhere);
}

Checks JudgeDisks(const std::vector<Disk>& disks) {
  Checks checks;
  for (const Disk& disk : disks) checks.push_back(JudgeDisk(disk, checks.empty()));
  return checks;
}

Checks JudgeMachine(const MachineFacts& facts, const MachineNeeds& needs) {
  std::vector<Disk> disks = facts.disks;
  for (Disk& disk : disks) {
    if (needs.met) disk.needs = disk.least = 0;
  }
  Checks checks = JudgeDisks(disks);
  checks.insert(checks.begin(), Memory(facts, needs.met ? 0 : needs.memory));
  checks.insert(checks.end(), {Descriptors(facts), Cores(facts, needs), Threads(facts)});
  if (needs.memory_limits > 0) checks.push_back(MemoryLimits(facts, needs.memory_limits));
  if (!facts.cpu_capability.empty()) checks.push_back(Kernels(facts));
  if (facts.clock_synchronised.has_value() && needs.other_machines) {
    checks.push_back(ClockCheck(*facts.clock_synchronised));
  }
  if (!facts.proxies.empty() || needs.http_proxy) {
    checks.push_back(Proxy(facts.proxies, needs.http_proxy));
  }
  if (!facts.rank_variables.empty()) checks.push_back(Launcher(facts.rank_variables));
  if (facts.certificate_left < absl::InfiniteDuration()) {
    checks.push_back(Certificate(facts.certificate_left));
  }
  for (const MachineFacts::Port& port : facts.ports) {
    const bool free = port.taken.empty();
    checks.push_back(Machine(absl::StrCat("port ", port.endpoint), free ? Grade::kOk : Grade::kFail,
                             free ? "free" : port.taken,
                             "stop what listens there (ss -ltnp), or choose another port"));
  }
  return checks;
}

}  // namespace oxbow::cli
