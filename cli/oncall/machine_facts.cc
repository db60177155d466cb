// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/machine_share.h"
#include "base/memory_limits.h"
#include "cli/oncall/machine_checks.h"
#include "core/parallel/rank_variables.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;

// Reads a number from a file of lines "NAME NUMBER ..."; 0 if it has no such name.
uint64_t FieldOf(const fs::path& path, const std::string& wanted) {
  std::ifstream file(path);
  for (std::string name; file >> name;) {
    uint64_t number = 0;
    file >> number;
    if (name == wanted) return number;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

void LookAtMemory(MachineFacts& facts) {
  facts.memory_available = FieldOf("/proc/meminfo", "MemAvailable:") << 10;
  facts.memory_usable = UsableMemory();
  const auto left = MemoryLeftInGroups();
  if (!left.has_value() || *left >= facts.memory_available) return;
  facts.memory_available = *left;
  facts.memory_of_cgroup = true;
}

void LookAtCores(MachineFacts& facts) {
  facts.cores = UsableCores();
  double load = 0;
  if (getloadavg(&load, 1) == 1) facts.load = load;
}

// The reason why the address cannot be bound; empty if it can.
std::string WhyTaken(const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos) return "not host:port";
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(endpoint.substr(0, colon).c_str(),
                                    endpoint.substr(colon + 1).c_str(), &hints, &found);
      error != 0) {
    return gai_strerror(error);
  }
  std::string why;
  const int descriptor = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;  // Ignores connections that have just ended.
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (descriptor < 0 || bind(descriptor, found->ai_addr, found->ai_addrlen) != 0 ||
      listen(descriptor, 1) != 0) {
    why = std::strerror(errno);
  }
  if (descriptor >= 0) close(descriptor);
  freeaddrinfo(found);
  return why;
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// "NAME=value" of those that are set.
std::vector<std::string> Set(const std::vector<std::string>& names) {
  std::vector<std::string> set;
  for (const std::string& name : names) {
    if (const std::string value = Variable(name.c_str()); !value.empty()) {
      set.push_back(absl::StrCat(name, "=", value));
    }
  }
  return set;
}

// "http://user:password@proxy:3128" -> "http://proxy:3128".
std::string WithoutPassword(const std::string& assignment) {
  const size_t at = assignment.rfind('@');
  if (at == std::string::npos) return assignment;
  const size_t scheme = assignment.find("://");
  const size_t host = scheme == std::string::npos ? assignment.find('=') + 1 : scheme + 3;
  return assignment.substr(0, host) + assignment.substr(at + 1);
}

}  // namespace

std::vector<Disk> LookAtDisks(const std::vector<DiskShare>& shares) {
  std::vector<Disk> disks;
  std::vector<dev_t> devices;
  for (const DiskShare& share : shares) {
    std::error_code error;
    fs::path at = fs::absolute(share.place, error);
    while (!fs::exists(at, error) && at != at.parent_path()) at = at.parent_path();
    struct stat facts {};
    if (stat(at.c_str(), &facts) != 0) facts.st_dev = 0;
    const auto known = std::find(devices.begin(), devices.end(), facts.st_dev);
    const auto place = static_cast<size_t>(known - devices.begin());
    if (known == devices.end()) {
      devices.push_back(facts.st_dev);
      const fs::space_info space = fs::space(at, error);
      disks.push_back({.path = at.string(), .free = error ? 0 : space.available});
    }
    Disk& disk = disks[place];
    if (std::ranges::find(disk.keys, share.key) == disk.keys.end()) disk.keys.push_back(share.key);
    if (disk.writable && access(at.c_str(), W_OK) != 0) {
      disk.writable = false;
      disk.path = at.string();
    }
    disk.needs += share.bytes;
    disk.least += share.least;
  }
  return disks;
}

MachineFacts LookAtMachine(const std::vector<DiskShare>& shares,
                           const std::vector<std::string>& ports) {
  MachineFacts facts;
  LookAtMemory(facts);
  facts.disks = LookAtDisks(shares);
  LookAtCores(facts);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    facts.descriptors_max = files.rlim_max;
  }
  timex time{};  // No modes: only reads the state.
  if (const int state = adjtimex(&time); state >= 0) facts.clock_synchronised = state != TIME_ERROR;
  facts.omp_num_threads = Variable("OMP_NUM_THREADS");
  facts.omp_wait_policy = Variable("OMP_WAIT_POLICY");
  for (const std::string& proxy : Set({"grpc_proxy", "https_proxy", "http_proxy", "GRPC_PROXY",
                                       "HTTPS_PROXY", "HTTP_PROXY"})) {
    facts.proxies.push_back(WithoutPassword(proxy));
  }
  facts.rank_variables = Set(parallel::RankVariables());
  for (const std::string& port : ports) facts.ports.push_back({port, WhyTaken(port)});
  return facts;
}

}  // namespace oxbow::cli
