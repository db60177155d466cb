// SPDX-License-Identifier: Apache-2.0
#include "base/machine_share.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <thread>

namespace oxbow {
namespace {

namespace fs = std::filesystem;

class MachineShareTest : public ::testing::Test {
 protected:
  ~MachineShareTest() override { fs::remove_all(root_); }
  void Write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  GroupQuotas Quotas(const std::string& cgroup) const { return QuotasOf(cgroup, root_); }

  const fs::path root_ = fs::path(::testing::TempDir()) / ("cgroup_" + std::to_string(::getpid()));
};

TEST_F(MachineShareTest, QuotasOfTheUnifiedHierarchyCount) {
  const std::string cgroup = "0::/\n";
  EXPECT_FALSE(Quotas(cgroup).cores.has_value());
  Write("cpu.max", "max 100000\n");
  Write("memory.max", "max\n");
  Write("memory.current", "900\n");
  EXPECT_FALSE(Quotas(cgroup).cores.has_value()) << "no limit";
  EXPECT_FALSE(Quotas(cgroup).memory_left.has_value()) << "no limit";
  Write("cpu.max", "30000 100000\n");
  Write("memory.max", "1000\n");
  EXPECT_DOUBLE_EQ(*Quotas(cgroup).cores, 0.3);
  EXPECT_EQ(Quotas(cgroup).memory_left, 100u);
  EXPECT_EQ(Quotas(cgroup).memory_limit, 1000u);
  Write("memory.stat", "anon 300\nfile 600\ninactive_file 500\nactive_file 100\n");
  EXPECT_EQ(Quotas(cgroup).memory_left, 600u) << "pages that can be dropped are free";
  Write("memory.current", "1700\n");  // The limit was lowered.
  EXPECT_EQ(Quotas(cgroup).memory_left, 0u);
}

// Promise: Limits add up to less than the memory.
// Promise: Containers' quotas count.
TEST_F(MachineShareTest, ALimitOfAGroupAboveCounts) {
  Write("pod/cpu.max", "200000 100000\n");
  Write("pod/worker/cpu.max", "max 100000\n");
  EXPECT_DOUBLE_EQ(*Quotas("0::/pod/worker\n").cores, 2);
  Write("pod/worker/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(*Quotas("0::/pod/worker\n").cores, 0.5);
  Write("pod/memory.max", "900\n");
  Write("pod/worker/memory.max", "max\n");
  EXPECT_EQ(Quotas("0::/pod/worker\n").memory_limit, 900u);
}

// Promise: Containers' quotas count. Threads, engines and the memory that is left follow the
// control groups of either version, those above included. Where memory runs out, the kernel prefers
// a child of `oxbow train` to it, and the learner last.
TEST_F(MachineShareTest, QuotasOfVersionOneCount) {
  const std::string cgroup =
      "9:name=systemd:/\n4:memory:/docker/ab\n1:cpu,cpuacct:/docker/ab\n0::/\n";
  Write("cpu,cpuacct/docker/ab/cpu.cfs_quota_us", "-1\n");
  Write("cpu,cpuacct/docker/ab/cpu.cfs_period_us", "100000\n");
  Write("memory/docker/ab/memory.limit_in_bytes", "9223372036854771712\n");
  Write("memory/docker/ab/memory.usage_in_bytes", "500\n");
  EXPECT_FALSE(Quotas(cgroup).cores.has_value()) << "no limit";
  EXPECT_FALSE(Quotas(cgroup).memory_left.has_value()) << "no limit";
  Write("cpu,cpuacct/docker/ab/cpu.cfs_quota_us", "30000\n");
  Write("memory/docker/ab/memory.limit_in_bytes", "600\n");
  Write("memory/docker/ab/memory.stat", "cache 1\ntotal_inactive_file 50\n");
  EXPECT_DOUBLE_EQ(*Quotas(cgroup).cores, 0.3);
  EXPECT_EQ(Quotas(cgroup).memory_left, 150u);
  EXPECT_EQ(Quotas(cgroup).memory_limit, 600u);
}

// There the mount point is the container's own group, and its path outside leads nowhere.
TEST_F(MachineShareTest, InAContainerOfVersionOneTheMountPointIsTheGroup) {
  Write("cpu/cpu.cfs_quota_us", "150000\n");
  Write("cpu/cpu.cfs_period_us", "100000\n");
  Write("memory/memory.limit_in_bytes", "1000\n");
  Write("memory/memory.usage_in_bytes", "100\n");
  const GroupQuotas quotas = Quotas("4:memory:/docker/ab\n1:cpu:/docker/ab\n");
  EXPECT_DOUBLE_EQ(*quotas.cores, 1.5);
  EXPECT_EQ(quotas.memory_left, 900u);
}

TEST_F(MachineShareTest, ThisProcessHasCores) {
  EXPECT_GT(UsableCores(), 0);
  EXPECT_LE(UsableCores(), std::thread::hardware_concurrency());
  EXPECT_GE(UsableThreads(), 1);
  EXPECT_GE(UsableThreads(), UsableCores());
}

}  // namespace
}  // namespace oxbow
