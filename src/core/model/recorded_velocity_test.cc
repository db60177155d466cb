// SPDX-License-Identifier: Apache-2.0
// A recorded forward pass says what the network says, whatever shapes and weights come and
// go, and recordings are made no more often than they must. On the CPU, with a recorder that keeps
// to the rules of CUDA graphs: it sees inputs only when it records, and writes one result for ever.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <map>
#include <random>
#include <stdexcept>

#include "core/model/cuda_graphs.h"
#include "core/model/policy.h"
#include "gtest/gtest.h"
#include "tests/testing/small_sd3.h"

namespace oxbow::model {
namespace {

class FakeRecorder final : public GraphRecorder {
 public:
  std::unique_ptr<RecordedWork> Record(const std::function<at::Tensor()>& work) override {
    if (failures > 0) {
      --failures;
      throw std::runtime_error("out of memory");
    }
    ++records;
    return std::make_unique<Work>(*this, work);
  }

  int records = 0, replays = 0, alive = 0, failures = 0;

 private:
  struct Work final : RecordedWork {
    Work(FakeRecorder& owner, const std::function<at::Tensor()>& work)
        : owner(owner), work(work), result(work().zero_()) {
      ++owner.alive;
    }
    ~Work() override { --owner.alive; }
    const at::Tensor& Replay() override {
      ++owner.replays;
      return result.copy_(work());
    }
    FakeRecorder& owner;
    const std::function<at::Tensor()> work;
    at::Tensor result;
  };
};

struct Kind {
  const char* name;
  Trained trained;
  bool merged = false;
  double guidance = 1;
  at::ScalarType compute = at::kFloat;
};

std::unique_ptr<Policy> PolicyOf(const Kind& kind, std::shared_ptr<GraphRecorder> graphs) {
  at::manual_seed(4);
  Policy::Options options{
      .architecture = SmallSd3(/*blocks=*/2, /*dual=*/1),
      .trained = kind.trained,
      .with_reference = false,
      .with_ema = false,
      .trainable = false,
      .merged = kind.merged,
      .guidance = kind.guidance,
      .negative = {{kPromptTokens, at::randn({1, 5, 12})}, {kPooledPrompt, at::randn({1, 10})}},
      .compute = kind.compute,
      .graphs = std::move(graphs)};
  options.lora = {.rank = 3, .alpha = 6, .targets = {"attn.to_q", "ff.net.2"}};
  for (const auto& [name, shape] : options.architecture->shapes())
    options.base[name] = at::randn(shape) * 0.2;
  return *Policy::Create(std::move(options));
}

NamedTensors RandomLike(const NamedTensors& tensors) {
  NamedTensors fresh;
  for (const auto& [name, tensor] : tensors) fresh[name] = at::randn(tensor.sizes()) * 0.2;
  return fresh;
}

// A batch of `rows` images of a size, with a prompt of their own or one for all.
struct Batch {
  Batch(int64_t rows, int64_t height, int64_t width, bool shared)
      : x(at::randn({rows, 2, height, width})),
        sigma(at::rand({rows})),
        prompt{{kPromptTokens, at::randn({shared ? 1 : rows, 5, 12})},
               {kPooledPrompt, at::randn({shared ? 1 : rows, 10})}} {}
  at::Tensor Of(const VelocityModel& model) const { return model.Velocity(x, sigma, prompt); }
  at::Tensor x, sigma;
  Conditioning prompt;
};

class RecordedVelocityTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

// Promise: CUDA graphs change no number. With `model.cuda_graphs`, velocities have the bits of
// kernels launched one by one, for any shapes and for weights that come and go. A network that
// cannot record is refused. The rules are tested on CPUs, the bits on a GPU.
TEST_P(RecordedVelocityTest, HasTheBitsOfTheNetworkForAnyShapesAndWeights) {
  const auto recorder = std::make_shared<FakeRecorder>();
  const auto plain = PolicyOf(GetParam(), nullptr), recorded = PolicyOf(GetParam(), recorder);
  const auto seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::vector<std::pair<int64_t, int64_t>> sizes = {{8, 8}, {8, 4}, {4, 8}};
  std::map<std::vector<int64_t>, int> shapes;
  for (int i = 0; i < 40; ++i) {
    if (random() % 4 == 0) {
      const NamedTensors fresh = RandomLike(plain->parameters().tensors());
      ASSERT_TRUE(plain->Load(fresh).ok() && recorded->Load(fresh).ok());
    }
    const auto [height, width] = sizes[random() % sizes.size()];
    const Batch batch(1 + static_cast<int64_t>(random() % 3), height, width, random() % 2 == 0);
    shapes[batch.x.sizes().vec()] += 1;
    // As workers and as probes ask.
    if (random() % 2 == 0) {
      const c10::InferenceMode inference;
      ASSERT_TRUE(at::equal(batch.Of(plain->sampler()), batch.Of(recorded->sampler())));
    } else {
      const at::NoGradGuard no_grad;
      ASSERT_TRUE(at::equal(batch.Of(plain->sampler()), batch.Of(recorded->sampler())));
    }
    ASSERT_EQ(plain->rows().forward, recorded->rows().forward);
  }
  EXPECT_EQ(recorder->records, static_cast<int>(shapes.size()));
  EXPECT_EQ(recorder->replays, 40);
}

INSTANTIATE_TEST_SUITE_P(Kinds, RecordedVelocityTest,
                         ::testing::Values(Kind{"Full", Trained::kFull},
                                           Kind{"Lora", Trained::kLora},
                                           Kind{"Merged", Trained::kLora, /*merged=*/true},
                                           Kind{"Guided", Trained::kLora, /*merged=*/false,
                                                /*guidance=*/3},
                                           Kind{"Bf16", Trained::kLora, false, 1, at::kBFloat16}),
                         [](const auto& info) { return info.param.name; });

// v = (x + sigma) w: what bookkeeping needs of a network.
class Scaled final : public VelocityModel {
 public:
  explicit Scaled(at::Tensor weight) : weight_(std::move(weight)) {}

 private:
  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const Conditioning&) const override {
    return (x + sigma.view({-1, 1, 1, 1})) * weight_;
  }
  const at::Tensor weight_;
};

struct Bookkeeping : ::testing::Test {
  std::unique_ptr<VelocityModel> Recorded(size_t recordings_max) {
    return MakeRecorded(std::make_unique<Scaled>(weight), {weight}, recorder, recordings_max);
  }
  // Asks for a batch of so many rows.
  void Ask(const VelocityModel& model, int64_t rows) {
    const at::NoGradGuard no_grad;
    const Batch batch(rows, 4, 4, true);
    EXPECT_TRUE(at::equal(batch.Of(model), batch.Of(Scaled(weight)))) << rows << " rows";
  }
  const at::Tensor weight = at::full({}, 2.0F);
  const std::shared_ptr<FakeRecorder> recorder = std::make_shared<FakeRecorder>();
};

using RecordedBookkeepingTest = Bookkeeping;

// Promise: CUDA graphs change no number.
TEST_F(RecordedBookkeepingTest, TheShapeUsedLongestAgoMakesRoom) {
  const auto model = Recorded(/*recordings_max=*/2);
  for (const int64_t rows : {1, 2, 1, 3}) Ask(*model, rows);  // 3 takes the place of 2.
  EXPECT_EQ(recorder->records, 3);
  for (const int64_t rows : {1, 3}) Ask(*model, rows);
  EXPECT_EQ(recorder->records, 3);
  Ask(*model, 2);
  EXPECT_EQ(recorder->records, 4);
  EXPECT_EQ(recorder->alive, 2);
}

TEST_F(RecordedBookkeepingTest, PromptsOfAnotherLengthAreAnotherShape) {
  const auto model = Recorded(kRecordingsMax);
  const at::NoGradGuard no_grad;
  const Batch batch(2, 4, 4, true);
  for (const int64_t tokens : {5, 7, 5, 7}) {
    (void)model->Velocity(
        batch.x, batch.sigma,
        {{kPromptTokens, at::randn({1, tokens, 12})}, {kPooledPrompt, at::randn({1, 10})}});
  }
  EXPECT_EQ(recorder->records, 2);
}

// Promise: CUDA graphs change no number.
TEST_F(RecordedBookkeepingTest, WeightsThatMovedAreRecordedAnewAndThoseThatChangedInPlaceAreNot) {
  const auto model = Recorded(kRecordingsMax);
  for (const int64_t rows : {1, 2}) Ask(*model, rows);
  at::Tensor(weight).fill_(3);
  for (const int64_t rows : {1, 2}) Ask(*model, rows);
  EXPECT_EQ(recorder->records, 2);
  weight.set_data(at::full({}, 5.0F));
  Ask(*model, 1);
  EXPECT_EQ(recorder->alive, 1) << "a recording of the old place is of no use to anyone";
  Ask(*model, 2);
  EXPECT_EQ(recorder->records, 4);
}

TEST_F(RecordedBookkeepingTest, ResultsOutliveTheNextReplay) {
  const auto model = Recorded(kRecordingsMax);
  const at::NoGradGuard no_grad;
  const Batch first(2, 4, 4, true), second(2, 4, 4, true);
  const at::Tensor v = first.Of(*model);
  (void)second.Of(*model);
  EXPECT_TRUE(at::equal(v, first.Of(Scaled(weight))));
}

TEST_F(RecordedBookkeepingTest, ARecordingThatFailedIsTriedAgain) {
  const auto model = Recorded(kRecordingsMax);
  recorder->failures = 1;
  EXPECT_THROW(Ask(*model, 1), std::runtime_error);
  Ask(*model, 1);
  EXPECT_EQ(recorder->records, 1);
}

// Promise: Recordings that nobody asked for end no run. With `model.cuda_graphs: auto` a network
// whose pass cannot be recorded is launched kernel by kernel from then on.
TEST_F(RecordedBookkeepingTest, ANetworkThatCannotBeRecordedGoesOnWithoutWhereThatIsOptional) {
  recorder->optional = true;
  const auto model = Recorded(kRecordingsMax);
  Ask(*model, 2);
  recorder->failures = 1;
  for (const int64_t rows : {1, 1, 2, 3}) Ask(*model, rows);
  EXPECT_EQ(recorder->records, 1) << "and is not asked for again";
  EXPECT_EQ(recorder->alive, 0);
}

// Promise: CUDA graphs change no number.
TEST(GraphRecorderTest, WhatCannotRecordIsRefusedInOneLine) {
  const absl::Status cpu = CheckGraphs(at::kCPU);
  EXPECT_EQ(cpu.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(cpu.message().find("model.cuda_graphs"), std::string::npos) << cpu;
  const absl::Status gpu = CheckGraphs(at::Device(at::kCUDA, 0));
  EXPECT_EQ(gpu.ok(), HasCudaGraphs()) << gpu;
  if (!gpu.ok()) {
    EXPECT_EQ(gpu.code(), absl::StatusCode::kUnimplemented);
    EXPECT_NE(gpu.message().find("-DOXBOW_CUDA=ON"), std::string::npos) << gpu;
  }
}

}  // namespace
}  // namespace oxbow::model
