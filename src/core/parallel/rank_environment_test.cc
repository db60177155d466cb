// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/rank_environment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/parallel/rank_variables.h"

namespace oxbow::parallel {
namespace {

using Variables = std::map<std::string, std::string>;

absl::StatusOr<JoinOptions> Read(const Variables& variables) {
  return ReadRankEnvironment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

// "rank/size local_rank address:port", or the error.
std::string Summary(const Variables& variables) {
  const auto e = Read(variables);
  if (!e.ok()) return std::string(e.status().message());
  return std::to_string(e->rank) + "/" + std::to_string(e->size) + " " +
         std::to_string(e->local_rank) + " " + e->address + ":" + std::to_string(e->port);
}

TEST(RankEnvironmentTest, NoLauncherMeansOneRank) {
  EXPECT_EQ(Summary({}), "0/1 0 127.0.0.1:0");
  EXPECT_EQ(Summary({{"RANK", ""}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}),
            "0/1 0 127.0.0.1:0")
      << "a batch script is no srun task";
  EXPECT_EQ(Summary({{"JOB_COMPLETION_INDEX", "3"}, {"INDEX", "2"}}), "0/1 0 127.0.0.1:0");
}

TEST(RankEnvironmentTest, ReadsTorchrun) {
  const Variables torchrun = {{"RANK", "3"},
                              {"WORLD_SIZE", "8"},
                              {"LOCAL_RANK", "1"},
                              {"LOCAL_WORLD_SIZE", "2"},
                              {"MASTER_ADDR", "node0"},
                              {"MASTER_PORT", "29500"},
                              {"TORCHELASTIC_RESTART_COUNT", "2"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  EXPECT_EQ(Summary(torchrun), "3/8 1 node0:29500");
  EXPECT_TRUE(Read(torchrun)->agent_has_store);
  EXPECT_EQ(Read(torchrun)->restart, 2);
  EXPECT_EQ(Summary({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "0/1 0 127.0.0.1:0");
}

TEST(RankEnvironmentTest, ReadsJobSetWithAndWithoutRank) {
  Variables jobset = {{"WORLD_SIZE", "2"},
                      {"MASTER_ADDR", "run-learner-0-0.run"},
                      {"MASTER_PORT", "3389"},
                      {"JOB_COMPLETION_INDEX", "1"},
                      {"JOBSET_RESTART_ATTEMPT", "4"}};
  EXPECT_EQ(Summary(jobset), "1/2 0 run-learner-0-0.run:3389");
  EXPECT_EQ(Read(jobset)->restart, 4);
  jobset.erase("JOB_COMPLETION_INDEX");
  jobset["POD_NAME"] = "oxbow-learner-1";
  EXPECT_EQ(Summary(jobset), "1/2 0 run-learner-0-0.run:3389");
}

TEST(RankEnvironmentTest, ReadsSrun) {
  Variables srun = {{"SLURM_PROCID", "5"},         {"SLURM_STEP_NUM_TASKS", "8"},
                    {"SLURM_LOCALID", "1"},        {"SLURM_STEP_NODELIST", "gpu[07-10,12]"},
                    {"SLURM_JOB_ID", "123456789"}, {"SLURM_NTASKS", "8"}};
  EXPECT_EQ(Summary(srun), "5/8 1 gpu07:26789");
  srun["MASTER_PORT"] = "1234";
  srun["MASTER_ADDR"] = "head";
  EXPECT_EQ(Summary(srun), "5/8 1 head:1234");
}

TEST(RankEnvironmentTest, ReadsMachineCounts) {
  Variables machines = {{"NODE_RANK", "1"},  {"NUM_NODES", "2"},     {"GPUS_PER_NODE", "4"},
                        {"LOCAL_RANK", "2"}, {"MASTER_PORT", "500"}, {"CHIEF_IP", "10.0.0.1"}};
  EXPECT_EQ(Summary(machines), "6/8 2 10.0.0.1:500");
  machines.erase("LOCAL_RANK");
  EXPECT_EQ(Summary(machines),
            "the environment names ranks by half: GPUS_PER_NODE is set, LOCAL_RANK is not");
}

TEST(RankEnvironmentTest, HalfSetOrImpossibleNamesWhatIsWrong) {
  EXPECT_EQ(Summary({{"RANK", "1"}}),
            "the environment names ranks by half: RANK is set, WORLD_SIZE is not");
  EXPECT_EQ(Summary({{"WORLD_SIZE", "2"}}),
            "the environment names ranks by half: WORLD_SIZE is set, RANK or JOB_COMPLETION_INDEX "
            "is not");
  EXPECT_EQ(Summary({{"WORLD_SIZE", "2"}, {"RANK", "1"}}),
            "the environment names ranks by half: WORLD_SIZE is set, MASTER_ADDR or MASTER_IP or "
            "CHIEF_IP is not");
  EXPECT_EQ(Summary({{"MASTER_ADDR", "x"}}),
            "the environment names ranks by half: MASTER_ADDR is set, RANK or WORLD_SIZE is not");
  EXPECT_EQ(Summary({{"WORLD_SIZE", "two"}, {"RANK", "1"}}),
            "not a whole number in the environment: WORLD_SIZE=two");
  const Variables place = {{"MASTER_ADDR", "x"}, {"MASTER_PORT", "70000"}, {"WORLD_SIZE", "2"}};
  Variables impossible = place;
  impossible["RANK"] = "2";
  EXPECT_EQ(Summary(impossible), "the environment names a rank that cannot be: 2 of 2");
  impossible["RANK"] = "1";
  EXPECT_EQ(Summary(impossible), "not a port in the environment: MASTER_PORT=70000");
  impossible["WORLD_SIZE"] = "1";
  impossible["RANK"] = "0";
  EXPECT_EQ(Summary(impossible), "not a port in the environment: MASTER_PORT=70000");
}

// Promise: Foreign bytes crash no process.
TEST(RankEnvironmentTest, MachinesAndTheirRanksThatCannotBeAreRefused) {
  Variables machines = {{"NUM_NODES", "2"},  {"GPUS_PER_NODE", "2"}, {"NODE_RANK", "0"},
                        {"LOCAL_RANK", "2"}, {"MASTER_ADDR", "x"},   {"MASTER_PORT", "5"}};
  EXPECT_EQ(Summary(machines),
            "the environment names a rank that cannot be: 2 of 2 on machine 0 of 2");
  machines["NODE_RANK"] = "2147483647";
  EXPECT_EQ(Summary(machines),
            "the environment names a rank that cannot be: 2 of 2 on machine 2147483647 of 2");
  machines["NUM_NODES"] = "2147483647";
  EXPECT_EQ(Summary(machines),
            "the environment names too many ranks: 2147483647 machines with 2 each");
}

// Promise: The surroundings of a run change nothing.
TEST(RankEnvironmentTest, WithoutTheVariablesOfLaunchersThereIsOneRankWhateverElseIsSet) {
  const std::vector<std::string> left_out = RankVariables();
  const auto place = ReadRankEnvironment([&](const std::string& name) {
    const bool found = std::find(left_out.begin(), left_out.end(), name) != left_out.end();
    return found ? std::nullopt : std::optional<std::string>("3");
  });
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->size, 1);
  EXPECT_EQ(place->rank, 0);
  EXPECT_EQ(place->restart, 0);
  EXPECT_FALSE(place->agent_has_store);
}

TEST(RankEnvironmentTest, FirstHostOfEverySlurmSpelling) {
  EXPECT_EQ(FirstHostOf("node1"), "node1");
  EXPECT_EQ(FirstHostOf("node1,node2"), "node1");
  EXPECT_EQ(FirstHostOf("a,node[1-2]"), "a");
  EXPECT_EQ(FirstHostOf("node[003-006,9],other"), "node003");
  EXPECT_EQ(FirstHostOf("node[7,9]-ib"), "node7-ib");
}

}  // namespace
}  // namespace oxbow::parallel
