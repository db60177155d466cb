// SPDX-License-Identifier: Apache-2.0
// Collectives against what they are by definition, over 1, 2 and 4 Gloo ranks; and what the others
// see when a rank dies, stops or never comes.
#include "core/parallel/ranks.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "absl/synchronization/notification.h"
#include "core/parallel/c10d_ranks.h"
#include "tests/testing/forked_ranks.h"

namespace oxbow::parallel {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void ExpectSame(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_TRUE(at::equal(got, want));
}

// The share of rank r; small integers, so that sums are exact in any order.
at::Tensor Share(int rank, int64_t length) { return at::arange(length, at::kFloat) + 100 * rank; }

class RanksTest : public ::testing::TestWithParam<int> {};

TEST_P(RanksTest, CollectivesAreWhatTheirNamesSay) {
  const auto body = [](Ranks& ranks) {
    const int size = ranks.size();
    const int64_t n = 1000;
    at::Tensor sum = at::zeros({size * n}, at::kFloat);
    for (int r = 0; r < size; ++r) sum += Share(r, size * n);

    at::Tensor tensor = Share(ranks.rank(), size * n);
    EXPECT_EQ(ranks.AllReduceSum(tensor), absl::OkStatus());
    ExpectSame(tensor, sum);

    tensor = Share(ranks.rank(), n);
    EXPECT_EQ(ranks.AllReduceMax(tensor), absl::OkStatus());
    ExpectSame(tensor, Share(size - 1, n));

    at::Tensor part = at::empty({n}, at::kFloat);
    EXPECT_EQ(ranks.ReduceScatterSum(Share(ranks.rank(), size * n), part), absl::OkStatus());
    ExpectSame(part, sum.narrow(0, ranks.rank() * n, n));

    at::Tensor whole = at::empty({size * n}, at::kFloat);
    EXPECT_EQ(ranks.AllGather(part, whole), absl::OkStatus());
    ExpectSame(whole, sum);

    tensor = Share(ranks.rank(), n);
    EXPECT_EQ(ranks.Broadcast(tensor, size - 1), absl::OkStatus());
    ExpectSame(tensor, Share(size - 1, n));
    EXPECT_EQ(ranks.Barrier(), absl::OkStatus());
  };
  EXPECT_THAT(RunRanks(GetParam(), {}, body), Each(0));
}

TEST_P(RanksTest, StartedSumsEndInAnyOrderOfWaiting) {
  const auto body = [](Ranks& ranks) {
    std::vector<at::Tensor> tensors;
    std::vector<std::unique_ptr<Pending>> pending;
    for (int i = 0; i < 5; ++i) {
      tensors.push_back(at::full({1 + i * 1000}, ranks.rank() + i, at::kFloat));
      pending.push_back(ranks.StartAllReduceSum(tensors.back()));
    }
    const int size = ranks.size();
    for (int i = 4; i >= 0; --i) {
      EXPECT_TRUE(pending[static_cast<size_t>(i)]->Wait().ok());
      ExpectSame(tensors[static_cast<size_t>(i)],
                 at::full({1 + i * 1000}, size * i + size * (size - 1) / 2, at::kFloat));
    }
  };
  EXPECT_THAT(RunRanks(GetParam(), {}, body), Each(0));
}

TEST_P(RanksTest, StartedSumsForOneRankEndInAnyOrderOfWaiting) {
  const auto body = [](Ranks& ranks) {
    std::vector<at::Tensor> tensors;
    std::vector<std::unique_ptr<Pending>> pending;
    const int size = ranks.size();
    for (int i = 0; i < 5; ++i) {
      tensors.push_back(at::full({1 + i * 1000}, ranks.rank() + i, at::kFloat));
      pending.push_back(ranks.StartReduceSum(tensors.back(), i % size));
    }
    for (int i = 4; i >= 0; --i) {
      EXPECT_TRUE(pending[static_cast<size_t>(i)]->Wait().ok());
      if (i % size != ranks.rank()) continue;
      ExpectSame(tensors[static_cast<size_t>(i)],
                 at::full({1 + i * 1000}, size * i + size * (size - 1) / 2, at::kFloat));
    }
  };
  EXPECT_THAT(RunRanks(GetParam(), {}, body), Each(0));
}

TEST_P(RanksTest, StartedBroadcastsArriveInAnyOrderOfWaiting) {
  const auto body = [](Ranks& ranks) {
    const int root = ranks.size() - 1;
    std::vector<at::Tensor> tensors;
    std::vector<std::unique_ptr<Pending>> pending;
    for (int i = 0; i < 4; ++i) {
      tensors.push_back(Share(ranks.rank() + i, 1 + i * 50'000));
      pending.push_back(ranks.StartBroadcast(tensors.back(), root));
    }
    for (int i = 3; i >= 0; --i) {
      EXPECT_TRUE(pending[static_cast<size_t>(i)]->Wait().ok());
      ExpectSame(tensors[static_cast<size_t>(i)], Share(root + i, 1 + i * 50'000));
    }
  };
  EXPECT_THAT(RunRanks(GetParam(), {}, body), Each(0));
}

TEST_P(RanksTest, BytesOfAnyLengthArriveInRankOrder) {
  const auto body = [](Ranks& ranks) {
    const auto nothing = ranks.GatherBytes("");
    ASSERT_TRUE(nothing.ok());
    EXPECT_THAT(*nothing, Each(""));
    const auto message = [](int rank) { return std::string(rank * 70001, '\0') + "end"; };
    const auto all = ranks.GatherBytes(message(ranks.rank()));
    ASSERT_TRUE(all.ok());
    for (int r = 0; r < ranks.size(); ++r) EXPECT_EQ((*all)[static_cast<size_t>(r)], message(r));

    const int root = ranks.size() - 1;
    std::string bytes = ranks.rank() == root ? std::string("a\0b", 3) : "something else";
    EXPECT_EQ(ranks.BroadcastBytes(bytes, root), absl::OkStatus());
    EXPECT_EQ(bytes, std::string("a\0b", 3));
  };
  EXPECT_THAT(RunRanks(GetParam(), {}, body), Each(0));
}

INSTANTIATE_TEST_SUITE_P(Sizes, RanksTest, ::testing::Values(1, 2, 4));

// Goes on until an operation fails and returns its error.
absl::Status RunUntilError(Ranks& ranks) {
  at::Tensor tensor = at::ones({1000}, at::kFloat);
  for (;;) {
    if (absl::Status status = ranks.AllReduceSum(tensor); !status.ok()) return status;
  }
}

// One rank ends by `signal` after a few operations. Every other must see an error within the
// deadline and the two seconds that the search for the culprit may take.
void ExpectOthersLeave(int signal, int victim) {
  const absl::Duration deadline = absl::Seconds(1);
  const auto body = [&](Ranks& ranks) {
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(ranks.Barrier().ok());
    if (ranks.rank() == victim) raise(signal);
    const absl::Time started = absl::Now();
    const absl::Status status = RunUntilError(ranks);
    EXPECT_LT(absl::Now() - started, deadline + absl::Milliseconds(2500)) << status;
    EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("AllReduceSum 4 on rank " + std::to_string(ranks.rank()) + " of 3"));
    const std::string culprit = victim == 0 && signal == SIGSTOP
                                    ? "; rank 0's store does not answer"
                                    : "; behind: rank " + std::to_string(victim) + " (Barrier 3)";
    if (absl::IsDeadlineExceeded(status)) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(culprit));
      if (victim != 0) {
        EXPECT_THAT(BehindRanks(status), ElementsAre(victim));
      }
    }
    // The failure is final.
    at::Tensor tensor = at::ones({1}, at::kFloat);
    EXPECT_EQ(ranks.AllReduceSum(tensor), status);
  };
  const ForkOptions options{.operation_timeout = deadline,
                            .killed_last = signal == SIGSTOP ? victim : -1};
  const std::vector<int> exits = RunRanks(3, options, body, absl::Seconds(8));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(exits[static_cast<size_t>(rank)], rank == victim ? -SIGKILL : 0) << "rank " << rank;
  }
}

TEST(RanksFailureTest, DeadRankFailsTheOthersWithinTheDeadline) { ExpectOthersLeave(SIGKILL, 1); }
TEST(RanksFailureTest, DeadStoreFailsTheOthersWithinTheDeadline) { ExpectOthersLeave(SIGKILL, 0); }
TEST(RanksFailureTest, StoppedRankFailsTheOthersAndIsNamed) { ExpectOthersLeave(SIGSTOP, 2); }
TEST(RanksFailureTest, StoppedStoreFailsTheOthersWithinTheDeadline) {
  ExpectOthersLeave(SIGSTOP, 0);
}

TEST(RanksFailureTest, AbsentRankIsNamedWhenTheTimeToJoinIsOver) {
  const ForkOptions options{.join_timeout = absl::Seconds(1),
                            .absent = {2},
                            .killed_last = -1,
                            .on_join_error = [](const absl::Status& status) {
                              EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
                              EXPECT_THAT(std::string(status.message()),
                                          HasSubstr("rank 2 of 3 did not come to 127.0.0.1:"));
                              EXPECT_THAT(BehindRanks(status), ElementsAre(2));
                            }};
  const absl::Time started = absl::Now();
  const auto body = [](Ranks&) { ADD_FAILURE() << "joined without rank 2"; };
  EXPECT_THAT(RunRanks(3, options, body), Each(0));
  EXPECT_LT(absl::Now() - started, absl::Seconds(4));
}

TEST(RanksFailureTest, AbortEndsWhatIsUnderWay) {
  const auto body = [](Ranks& ranks) {
    if (ranks.rank() == 0) {
      std::thread killer([&] { ranks.Abort(absl::ResourceExhaustedError("the disk is full")); });
      const absl::Status status = RunUntilError(ranks);
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("the disk is full"));
      killer.join();
    } else {
      EXPECT_FALSE(RunUntilError(ranks).ok());
    }
  };
  EXPECT_THAT(RunRanks(2, {.operation_timeout = absl::Seconds(2)}, body), Each(0));
}

TEST(RanksFailureTest, SingleRankTurnsDownEverythingOnceAborted) {
  const auto ranks = MakeSingleRank();
  EXPECT_TRUE(ranks->Barrier().ok());
  ranks->Abort(absl::UnavailableError("rank 1 has gone"));
  EXPECT_TRUE(absl::IsUnavailable(ranks->Barrier()));
  EXPECT_TRUE(absl::IsUnavailable(ranks->GatherBytes("x").status()));
}

// A process that goes on joins again after each failure; what the failed group held does not pile
// up.
TEST(RanksFailureTest, AProcessThatGoesOnLetsFailedGroupsGo) {
  const auto open_files = [] {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator("/proc/self/fd")) {
      ++count;
    }
    return count;
  };
  const auto body = [&](Ranks&) {
    size_t before = 0;
    for (int life = 0; life < 6; ++life) {
      // The other one leaves at once.
      JoinOptions first{.rank = 0, .size = 2, .operation_timeout = absl::Seconds(1)};
      JoinOptions second{.rank = 1, .size = 2};
      first.process_goes_on = true;
      std::thread leaver;
      first.on_listening = [&](int port) {
        second.port = port;
        leaver = std::thread([&] { EXPECT_TRUE(JoinRanks(second).ok()); });
      };
      auto ranks = JoinRanks(first);
      ASSERT_TRUE(ranks.ok()) << ranks.status();
      leaver.join();
      EXPECT_FALSE((*ranks)->Barrier().ok());
      ranks->reset();
      if (life == 2) before = open_files();
    }
    EXPECT_LE(open_files(), before + 8) << "a life costs a dozen while it lasts";
  };
  EXPECT_THAT(RunRanks(1, {}, body), Each(0));
}

TEST(JoinTest, AWaitIsGivenUpWhenItIsCancelled) {
  const auto body = [](Ranks&) {
    std::atomic<bool> cancelled = false;
    JoinOptions options{.rank = 0, .size = 2};
    options.cancelled = &cancelled;
    options.on_listening = [&](int) { cancelled = true; };
    const absl::Time started = absl::Now();
    EXPECT_TRUE(absl::IsCancelled(JoinRanks(options).status()));
    EXPECT_LT(absl::Now() - started, absl::Seconds(5));
  };
  EXPECT_THAT(RunRanks(1, {}, body), Each(0));
}

TEST(JoinTest, DevicesThatAreNoneAreTurnedDown) {
  EXPECT_TRUE(absl::IsInvalidArgument(JoinRanks({.device = "toaster"}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(JoinRanks({.device = "cuda"}).status()));
}

// The statuses told to processes that meet at one store; the first hosts it.
std::string AllAreTold(std::vector<JoinOptions> gang) {
  absl::Notification listening;
  int port = 0;
  std::vector<absl::Status> told(gang.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < gang.size(); ++i) {
    gang[i].join_timeout = absl::Seconds(1);
    if (i == 0) {
      gang[i].on_listening = [&](int bound) {
        port = bound;
        listening.Notify();
      };
    } else {
      listening.WaitForNotification();
      gang[i].port = port;
    }
    threads.emplace_back([&, i] { told[i] = JoinRanks(gang[i]).status(); });
  }
  std::string all;
  for (size_t i = 0; i < gang.size(); ++i) {
    threads[i].join();
    all += told[i].ToString() + "\n";
  }
  return all;
}

TEST(JoinTest, RanksThatCannotBeOneGangAreTurnedDown) {
  const auto body = [](Ranks&) {
    EXPECT_THAT(AllAreTold({{.rank = 0, .size = 2}, {.rank = 1, .size = 3}}),
                HasSubstr("ranks disagree on how many they are: rank 0 was told 2, rank 1 was "
                          "told 3"));
    // Whichever of the two came later; the gang is not complete, so that neither leaves before.
    EXPECT_THAT(
        AllAreTold({{.rank = 0, .size = 3}, {.rank = 1, .size = 3}, {.rank = 1, .size = 3}}),
        HasSubstr("another process is rank 1 of 3 at 127.0.0.1:"));
  };
  EXPECT_THAT(RunRanks(1, {}, body), Each(0));
}

// torchrun's agents keep one store through all lives of a gang, and those of two machines do not
// count restarts alike.
TEST(JoinTest, RanksMeetThroughAnAgentThatRemembersAnEarlierLife) {
  const auto body = [](Ranks&) {
    c10d::TCPStoreOptions options;
    options.isServer = true;
    options.port = 0;
    options.waitWorkers = false;
    c10d::TCPStore agent("127.0.0.1", options);
    const std::string over = "1 127.0.0.1";  // An earlier start wrote it: no process is there.
    agent.set("oxbow/rank_zero", std::vector<uint8_t>(over.begin(), over.end()));
    std::vector<absl::Status> joined(2);
    std::vector<std::thread> threads;
    for (const int rank : {1, 0}) {
      threads.emplace_back([&, rank] {
        joined[static_cast<size_t>(rank)] = JoinRanks({.rank = rank,
                                                       .size = 2,
                                                       .port = agent.getPort(),
                                                       .agent_has_store = true,
                                                       .restart = 3 * rank,
                                                       .join_timeout = absl::Seconds(20)})
                                                .status();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(joined, Each(absl::OkStatus()));
  };
  EXPECT_THAT(RunRanks(1, {}, body), Each(0));
}

TEST(JoinTest, UnreachableRankZeroIsNamed) {
  const auto ranks = JoinRanks({.rank = 1, .size = 2, .port = 1, .join_timeout = absl::Seconds(1)});
  EXPECT_FALSE(ranks.ok());
  EXPECT_THAT(std::string(ranks.status().message()),
              HasSubstr("rank 1 of 2 found no rank 0 at 127.0.0.1:1 within 1s"));
}

}  // namespace
}  // namespace oxbow::parallel
