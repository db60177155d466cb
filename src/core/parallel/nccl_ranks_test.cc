// SPDX-License-Identifier: Apache-2.0
// The collectives over NCCL, one GPU per rank. Gloo runs the same lines on CPU in ranks_test.cc;
// only making the process group differs. NCCL takes one rank per GPU.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "core/parallel/ranks.h"
#include "tests/testing/forked_ranks.h"

namespace oxbow::parallel {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// Asked in a child, because CUDA does not survive a fork.
int GpuCount() {
  const pid_t child = fork();
  if (child == 0) _exit(static_cast<int>(c10::cuda::device_count()));
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

void ExpectSame(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_TRUE(at::equal(got.cpu(), want));
}

class NcclRanksTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (GpuCount() < GetParam()) {
      GTEST_SKIP() << "needs " << GetParam() << " GPUs, this machine has " << GpuCount();
    }
  }
};

TEST_P(NcclRanksTest, CollectivesAreWhatTheirNamesSay) {
  const auto body = [](Ranks& ranks) {
    const int size = ranks.size();
    const int64_t n = 1000;
    const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(ranks.rank()));
    const auto share = [&](int rank, int64_t length) -> at::Tensor {
      return at::arange(length, at::kFloat) + 100 * rank;
    };
    at::Tensor sum = at::zeros({size * n}, at::kFloat);
    for (int r = 0; r < size; ++r) sum += share(r, size * n);

    at::Tensor tensor = share(ranks.rank(), size * n).to(device);
    EXPECT_EQ(ranks.AllReduceSum(tensor), absl::OkStatus());
    ExpectSame(tensor, sum);
    tensor = share(ranks.rank(), n).to(device);
    EXPECT_EQ(ranks.AllReduceMax(tensor), absl::OkStatus());
    ExpectSame(tensor, share(size - 1, n));
    tensor = share(ranks.rank(), size * n).to(device);
    EXPECT_EQ(ranks.StartAllReduceSum(tensor)->Wait(), absl::OkStatus());
    ExpectSame(tensor, sum);
    tensor = share(ranks.rank(), size * n).to(device);
    EXPECT_EQ(ranks.StartReduceSum(tensor, size - 1)->Wait(), absl::OkStatus());
    if (ranks.rank() == size - 1) ExpectSame(tensor, sum);
    at::Tensor part = at::empty({n}, tensor.options());
    EXPECT_EQ(ranks.ReduceScatterSum(share(ranks.rank(), size * n).to(device), part),
              absl::OkStatus());
    ExpectSame(part, sum.narrow(0, ranks.rank() * n, n));
    at::Tensor whole = at::empty({size * n}, tensor.options());
    EXPECT_EQ(ranks.AllGather(part, whole), absl::OkStatus());
    ExpectSame(whole, sum);
    tensor = share(ranks.rank(), n).to(device);
    EXPECT_EQ(ranks.Broadcast(tensor, size - 1), absl::OkStatus());
    ExpectSame(tensor, share(size - 1, n));
    tensor = share(ranks.rank(), n).to(device);
    EXPECT_EQ(ranks.StartBroadcast(tensor, size - 1)->Wait(), absl::OkStatus());
    ExpectSame(tensor, share(size - 1, n));
    EXPECT_EQ(ranks.Barrier(), absl::OkStatus());

    const auto all = ranks.GatherBytes(std::string(static_cast<size_t>(ranks.rank()), 'x'));
    ASSERT_TRUE(all.ok()) << all.status();
    for (int r = 0; r < size; ++r) EXPECT_EQ((*all)[static_cast<size_t>(r)].size(), r);
  };
  EXPECT_THAT(RunRanks(GetParam(), {.on_gpus = true}, body), Each(0));
}

TEST_P(NcclRanksTest, StoppedRankFailsTheOthersWithinTheDeadline) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank has no others";
  const int victim = GetParam() - 1;
  const auto body = [&](Ranks& ranks) {
    if (ranks.rank() == victim) raise(SIGSTOP);
    const absl::Time started = absl::Now();
    EXPECT_TRUE(absl::IsDeadlineExceeded(ranks.Barrier()));
    EXPECT_LT(absl::Now() - started, absl::Seconds(5));
  };
  const ForkOptions options{
      .operation_timeout = absl::Seconds(2), .killed_last = victim, .on_gpus = true};
  EXPECT_EQ(RunRanks(GetParam(), options, body).front(), 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, NcclRanksTest, ::testing::Values(1, 2));

TEST(NcclJoinTest, GpuThatIsNotThereIsNamed) {
  const ForkOptions options{.on_join_error =
                                [](const absl::Status& status) {
                                  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
                                  EXPECT_THAT(
                                      std::string(status.message()),
                                      HasSubstr("no device cuda:0: this machine has 0 GPUs"));
                                },
                            .on_gpus = true};
  if (GpuCount() > 0) GTEST_SKIP() << "this machine has GPUs";
  EXPECT_THAT(RunRanks(1, options, [](Ranks&) { ADD_FAILURE(); }), Each(0));
}

}  // namespace
}  // namespace oxbow::parallel
