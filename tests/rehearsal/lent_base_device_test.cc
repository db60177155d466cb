// SPDX-License-Identifier: Apache-2.0
// A LoRA's base that two processes have on one GPU once: what they compute, and what becomes of one
// whose other has ended. Each process is a forked child, since CUDA does not survive a fork.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>

#include "base/exit_code.h"
#include "base/file.h"
#include "core/model/lent_base.h"
#include "services/rollout/lender_watch.h"
#include "tests/rehearsal/device_memory.h"
#include "tests/rehearsal/settings.h"
#include "tests/testing/scoped_directory.h"
#include "tests/testing/small_sd3.h"

namespace oxbow::rehearsal {
namespace {

const at::Device kGpu(at::kCUDA, 0);
constexpr at::ScalarType kCompute = at::kBFloat16;

at::Tensor Drawn(uint64_t seed, at::IntArrayRef shape) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  RandomStream random({.seed = seed});
  random.FillNormal(
      std::span<float>(tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel())));
  return tensor;
}

const std::shared_ptr<const model::Architecture>& Network() {
  static const auto network = model::SmallSd3(/*blocks=*/2, /*dual=*/0);
  return network;
}

// As from a file, in the types that a policy keeps. `other`: a tensor with other values.
model::ReadTensor Base(const std::string& other = "") {
  return [other](const std::string& name) -> absl::StatusOr<at::Tensor> {
    const at::Tensor drawn =
        0.2 * Drawn(std::hash<std::string>()(name), Network()->shapes().at(name));
    return (name == other ? drawn + 1 : drawn).to(FrozenType(*Network(), kCompute, name));
  };
}

uint64_t BaseBytes() {
  uint64_t bytes = 0;
  for (const auto& [name, shape] : Network()->shapes()) bytes += (*Base()(name)).nbytes();
  return bytes;
}

std::unique_ptr<model::Policy> PolicyOf(model::ReadTensor read, bool trainable,
                                        bool merged = false) {
  auto policy = model::Policy::Create(
      {.architecture = Network(),
       .read_base = std::move(read),
       .trained = model::Trained::kLora,
       .lora = {.rank = 3, .alpha = 6, .targets = {"attn.to_q", "attn.to_v", "ff.net.2"}},
       .lora_seed = 5,
       .with_ema = false,
       .trainable = trainable,
       .merged = merged,
       .compute = kCompute,
       .device = kGpu});
  EXPECT_TRUE(policy.ok()) << policy.status();
  return *std::move(policy);
}

at::Tensor VelocityOf(const model::Policy& policy) {
  return policy.current()
      .Velocity(
          Drawn(1, {3, 2, 8, 6}), at::sigmoid(Drawn(2, {3})),
          {{model::kPromptTokens, Drawn(3, {3, 5, 12})}, {model::kPooledPrompt, Drawn(4, {3, 10})}})
      .detach();
}

size_t Held() { return DeviceMemory::Of(0).Use().held; }

// A process: what it says, and how it ends.
class Child {
 public:
  // `body` tells the test that it has come so far by calling `ready`.
  explicit Child(const std::function<void(const std::function<void()>& ready)>& body) {
    EXPECT_EQ(pipe(said_), 0);
    pid_ = fork();
    if (pid_ != 0) {
      close(said_[1]);
      return;
    }
    body([this] { EXPECT_EQ(write(said_[1], "!", 1), 1); });
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  ~Child() {
    Kill();
    close(said_[0]);
  }
  bool AwaitReady() const {
    char byte = 0;
    return read(said_[0], &byte, 1) == 1;
  }
  void Kill() {
    if (pid_ > 0 && kill(pid_, SIGKILL) == 0) Wait();
  }
  void Signal(int number) const { EXPECT_EQ(kill(pid_, number), 0); }
  // The exit code, or minus the signal.
  int Wait() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  int said_[2] = {-1, -1};
  pid_t pid_ = -1;
};

class LentBaseDeviceTest : public ::testing::Test {
 protected:
  // A learner, for as long as nobody kills it. With the lent base it computes what it would with
  // its own.
  void Lend(const std::function<void()>& ready) const {
    auto lent = model::LentBase::Make(*Network(), kCompute, kGpu, directory_.path());
    ASSERT_TRUE(lent.ok()) << lent.status();
    const auto policy = PolicyOf(lent->Filling(Base()), /*trainable=*/true);
    const auto alone = PolicyOf(Base(), /*trainable=*/true);
    ASSERT_TRUE(at::equal(VelocityOf(*policy), VelocityOf(*alone)));
    const absl::Status published = lent->Publish();
    ASSERT_TRUE(published.ok()) << published;
    ready();
    pause();
  }
  Child Lender() const {
    return Child([this](const auto& ready) { Lend(ready); });
  }
  absl::StatusOr<std::shared_ptr<model::BorrowedBase>> Open() const {
    return model::BorrowedBase::Open(directory_.path(), kGpu);
  }
  std::filesystem::path TablePath() const {
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      return entry.path();
    }
    return {};
  }

  const testing::ScopedDirectory directory_;
};

// Promise: Where weights are changes no bit.
TEST_F(LentBaseDeviceTest, ABorrowerComputesWhatItWouldWithItsOwn) {
  const Child lender = Lender();
  ASSERT_TRUE(lender.AwaitReady());
  Child borrower([this](const auto&) {
    const auto base = Open();
    ASSERT_TRUE(base.ok()) << base.status();
    const size_t before = Held();
    const auto shares = PolicyOf((*base)->InPlaceOf(Base()), /*trainable=*/false);
    const size_t shared = Held() - before;
    EXPECT_EQ((*base)->borrowed(), BaseBytes());
    EXPECT_EQ((*base)->own(), 0u);
    const auto alone = PolicyOf(Base(), /*trainable=*/false);
    EXPECT_GE(Held() - before - shared, shared + BaseBytes()) << "all but the adapter is shared";
    EXPECT_TRUE(at::equal(VelocityOf(*shares), VelocityOf(*alone)));
    EXPECT_TRUE(
        at::equal(shares->reference().Velocity(Drawn(1, {3, 2, 8, 6}), at::sigmoid(Drawn(2, {3})),
                                               {{model::kPromptTokens, Drawn(3, {3, 5, 12})},
                                                {model::kPooledPrompt, Drawn(4, {3, 10})}}),
                  VelocityOf(*alone)))
        << "a fresh adapter changes nothing";
  });
  EXPECT_EQ(borrower.Wait(), 0);
}

// Weights with the adapter in them are copies.
TEST_F(LentBaseDeviceTest, WhoMergesAnAdapterWritesNothingIntoWhatIsLent) {
  const Child lender = Lender();
  ASSERT_TRUE(lender.AwaitReady());
  Child borrower([this](const auto&) {
    const auto base = Open();
    ASSERT_TRUE(base.ok()) << base.status();
    const auto shares = PolicyOf((*base)->InPlaceOf(Base()), /*trainable=*/false, /*merged=*/true);
    const auto alone = PolicyOf(Base(), /*trainable=*/false, /*merged=*/true);
    const at::Tensor plain = VelocityOf(*alone);
    model::NamedTensors adapter;
    for (const auto& [name, tensor] : alone->parameters().tensors()) {
      adapter[name] = Drawn(std::hash<std::string>()(name), tensor.sizes());
    }
    ASSERT_TRUE(shares->Load(adapter).ok());
    ASSERT_TRUE(alone->Load(adapter).ok());
    EXPECT_FALSE(at::equal(VelocityOf(*alone), plain));
    EXPECT_TRUE(at::equal(VelocityOf(*shares), VelocityOf(*alone)));
    const auto again = Open();
    ASSERT_TRUE(again.ok()) << again.status();
    PolicyOf((*again)->InPlaceOf(Base()), /*trainable=*/false);
    EXPECT_EQ((*again)->borrowed(), BaseBytes());
  });
  EXPECT_EQ(borrower.Wait(), 0);
}

TEST_F(LentBaseDeviceTest, ATensorWithOtherBitsIsTheBorrowersOwn) {
  const Child lender = Lender();
  ASSERT_TRUE(lender.AwaitReady());
  Child borrower([this](const auto&) {
    const auto base = Open();
    ASSERT_TRUE(base.ok()) << base.status();
    const std::string other = Network()->shapes().rbegin()->first;
    const auto mixed = PolicyOf((*base)->InPlaceOf(Base(other)), /*trainable=*/false);
    EXPECT_EQ((*base)->own(), (*Base()(other)).nbytes());
    EXPECT_EQ((*base)->borrowed(), BaseBytes() - (*base)->own());
    EXPECT_TRUE(
        at::equal(VelocityOf(*mixed), VelocityOf(*PolicyOf(Base(other), /*trainable=*/false))));
  });
  EXPECT_EQ(borrower.Wait(), 0);
}

TEST_F(LentBaseDeviceTest, ABorrowerEndsSoonAfterTheLender) {
  Child lender = Lender();
  ASSERT_TRUE(lender.AwaitReady());
  Child borrower([this](const auto& ready) {
    const auto base = Open();
    ASSERT_TRUE(base.ok()) << base.status();
    const auto watch = rollout::LenderWatch::Start((*base)->lender(), absl::Milliseconds(50));
    ASSERT_TRUE(watch.ok()) << watch.status();
    ready();
    pause();
  });
  ASSERT_TRUE(borrower.AwaitReady());
  lender.Kill();
  EXPECT_EQ(borrower.Wait(), kExitUnavailable);
}

TEST_F(LentBaseDeviceTest, ABorrowerThatIsAtItsEndEndsByItself) {
  Child lender = Lender();
  ASSERT_TRUE(lender.AwaitReady());
  Child borrower([this](const auto& ready) {
    const auto base = Open();
    ASSERT_TRUE(base.ok()) << base.status();
    auto watch = rollout::LenderWatch::Start((*base)->lender(), absl::Minutes(10));
    ASSERT_TRUE(watch.ok()) << watch.status();
    sigset_t told;
    sigemptyset(&told);
    sigaddset(&told, SIGUSR1);
    ASSERT_EQ(sigprocmask(SIG_BLOCK, &told, nullptr), 0);
    ready();
    int signal = 0;
    ASSERT_EQ(sigwait(&told, &signal), 0);
    watch->reset();
  });
  ASSERT_TRUE(borrower.AwaitReady());
  lender.Kill();
  borrower.Signal(SIGUSR1);
  EXPECT_EQ(borrower.Wait(), 0);
}

TEST_F(LentBaseDeviceTest, WhoHasNobodyToBorrowFromIsTold) {
  Child alone([this](const auto&) {
    EXPECT_TRUE(absl::IsNotFound(Open().status())) << Open().status();
    EXPECT_TRUE(
        absl::IsUnimplemented(model::BorrowedBase::Open(directory_.path(), at::kCPU).status()));
  });
  EXPECT_EQ(alone.Wait(), 0);
  Child lender = Lender();
  ASSERT_TRUE(lender.AwaitReady());
  Child elsewhere([this](const auto&) {
    TheSettings().devices = 2;
    const auto base = model::BorrowedBase::Open(directory_.path(), at::Device(at::kCUDA, 1));
    EXPECT_TRUE(absl::IsNotFound(base.status())) << "no rank is on that GPU";
  });
  EXPECT_EQ(elsewhere.Wait(), 0);
  Child apart([this](const auto&) {
    TheSettings().shares_memory = false;
    EXPECT_TRUE(absl::IsUnavailable(Open().status())) << Open().status();
  });
  EXPECT_EQ(apart.Wait(), 0);
  lender.Kill();
  Child late([this](const auto&) {
    EXPECT_TRUE(absl::IsUnavailable(Open().status())) << Open().status();
  });
  EXPECT_EQ(late.Wait(), 0);
}

TEST_F(LentBaseDeviceTest, ADamagedTableIsRefused) {
  const Child lender = Lender();
  ASSERT_TRUE(lender.AwaitReady());
  std::string text = *ReadFile(TablePath());
  text[text.size() / 2] ^= 1;
  ASSERT_TRUE(WriteFileAtomically(TablePath(), text).ok());
  Child borrower(
      [this](const auto&) { EXPECT_TRUE(absl::IsDataLoss(Open().status())) << Open().status(); });
  EXPECT_EQ(borrower.Wait(), 0);
}

// Nor does a table of an earlier start stay.
TEST_F(LentBaseDeviceTest, AGpuThatLendsNothingIsUsedAlone) {
  {
    const Child lender = Lender();
    ASSERT_TRUE(lender.AwaitReady());
  }
  ASSERT_FALSE(TablePath().empty());
  Child lender([this](const auto&) {
    TheSettings().shares_memory = false;
    auto lent = model::LentBase::Make(*Network(), kCompute, kGpu, directory_.path());
    ASSERT_TRUE(lent.ok()) << lent.status();
    const auto policy = PolicyOf(lent->Filling(Base()), /*trainable=*/true);
    EXPECT_TRUE(absl::IsUnavailable(lent->Publish()));
    EXPECT_TRUE(TablePath().empty());
    EXPECT_TRUE(at::equal(VelocityOf(*policy), VelocityOf(*PolicyOf(Base(), true))));
  });
  EXPECT_EQ(lender.Wait(), 0);
  Child full([this](const auto&) {
    TheSettings().memory_bytes = BaseBytes() / 2;
    EXPECT_TRUE(absl::IsResourceExhausted(
        model::LentBase::Make(*Network(), kCompute, kGpu, directory_.path()).status()));
  });
  EXPECT_EQ(full.Wait(), 0);
}

}  // namespace
}  // namespace oxbow::rehearsal
