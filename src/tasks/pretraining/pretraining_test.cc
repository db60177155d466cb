#include "tasks/pretraining/pretraining.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>

#include "core/flow/schedule.h"

namespace oxbow::tasks {
namespace {

const std::vector<std::string> kPrompts = {"text 473", "text 009", "text 812"};

const TaskTensors& SmallTask() {
  static const auto* const task = TensorsOf(**TaskNamed("digits"), kPrompts)->release();
  return *task;
}

std::unique_ptr<Pretraining> Start(uint64_t seed, int64_t steps) {
  PretrainingOptions options{.batch = {.seed = seed, .size = 16}, .steps = steps};
  options.warmup_steps = 5;
  auto run = Pretraining::Create(options, SmallTask());
  EXPECT_TRUE(run.ok()) << run.status();
  return *std::move(run);
}

TEST(PretrainingTest, RateIsWholeThenFallsToItsEnd) {
  const PretrainingOptions options{.steps = 1000};
  EXPECT_EQ(DecayFactor(options, 0), 1);
  EXPECT_EQ(DecayFactor(options, 400), 1);
  EXPECT_NEAR(DecayFactor(options, 700), 0.51, 1e-12);
  EXPECT_NEAR(DecayFactor(options, 999), 0.02, 0.002);
}

TEST(PretrainingTest, ModelHasTheDocumentedSize) {
  const auto run = Start(1, 10);
  const auto count = [](const model::NamedTensors& tensors) {
    int64_t numel = 0;
    for (const auto& [name, tensor] : tensors) {
      if (name != model::kSd3PositionTable) numel += tensor.numel();
    }
    return numel;
  };
  EXPECT_EQ(count(run->TransformerWeights()), 437'776);
  EXPECT_EQ(count(run->TextWeights()), 104'640);
}

TEST(PretrainingTest, LossFallsAndEqualSeedsGiveEqualBits) {
  const auto first = Start(3, 24);
  const auto second = Start(3, 24);
  const auto other = Start(4, 24);
  std::vector<double> losses;
  for (int step = 0; step < 24; ++step) {
    const auto loss = first->Step();
    ASSERT_TRUE(loss.ok()) << loss.status();
    losses.push_back(*loss);
    ASSERT_EQ(*loss, second->Step().value()) << "step " << step;
    if (step < 3) {
      ASSERT_NE(*loss, other->Step().value());
    }
  }
  EXPECT_NEAR(losses[0], 2, 0.2);  // The network starts at v = 0: |eps|^2 + |x0|^2.
  EXPECT_LT(losses[23], 0.98 * losses[0]);
  const auto expect_equal = [](const model::NamedTensors& a, const model::NamedTensors& b) {
    for (const auto& [name, tensor] : a) EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
  };
  expect_equal(first->TransformerWeights(), second->TransformerWeights());
  expect_equal(first->TextWeights(), second->TextWeights());
}

TEST(PretrainingTest, UntrainedModelDrawsNothingReadable) {
  const auto run = Start(5, 10);
  const auto report = EvaluatePretrained(
      SmallTask(), run->TransformerWeights(), run->TextWeights(), kPrompts,
      /*per_prompt=*/4, flow::SigmaGrid(flow::ScheduleKind::kLinspace, 4, 1.0), 1);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(ValueOf(*report, "images"), 12);
  EXPECT_GT(ValueOf(*report, "unreadable"), 0.9);
  EXPECT_EQ(SmallTask().CheckBaseModel(*report).code(), absl::StatusCode::kFailedPrecondition);
}

// A mean over positions would not detect this model.
TEST(PretrainingTest, GateRefusesAModelThatIgnoresOnePosition) {
  const auto fit = [](double reward, double speckle, std::array<double, 3> accuracy) {
    return SmallTask()
        .CheckBaseModel({{"reward", reward},
                         {"speckle", speckle},
                         {"digit_1_accuracy", accuracy[0]},
                         {"digit_2_accuracy", accuracy[1]},
                         {"digit_3_accuracy", accuracy[2]}})
        .ok();
  };
  EXPECT_TRUE(fit(0.52, 0.016, {0.55, 0.55, 0.55}));
  EXPECT_FALSE(fit(0.52, 0.016, {0.80, 0.10, 0.80}));
  EXPECT_FALSE(fit(0.52, 0.04, {0.55, 0.55, 0.55}));
  EXPECT_FALSE(fit(0.7, 0.016, {0.55, 0.55, 0.55}));
}

TEST(PretrainingTest, PromptsOfAnotherTaskAreRefused) {
  EXPECT_FALSE(TensorsOf(**TaskNamed("compose"), kPrompts).ok());
  EXPECT_FALSE(TensorsOf(**TaskNamed("compose"), {}).ok());
  EXPECT_FALSE(SmallTask().TokenIds({"red square above blue disc"}).ok());
}

// As the shipped tokenizer encodes them: quotation marks and digits are tokens of their own.
TEST(PretrainingTest, PlatePromptsHaveATokenPerQuotationMark) {
  const auto task = TensorsOf(**TaskNamed("plates"), {"text \"473\""});
  ASSERT_TRUE(task.ok()) << task.status();
  const at::Tensor ids = (*task)->TokenIds({"text \"473\""}).value();
  const at::Tensor wanted = at::tensor({515, 514, 257, 275, 278, 274, 257, 516}, at::kLong);
  EXPECT_TRUE(at::equal(ids[0], wanted)) << ids;
  EXPECT_FALSE((*task)->TokenIds({"text 473"}).ok());
}

// One token per word, padded with the end token: as the shipped tokenizer encodes these prompts.
TEST(PretrainingTest, ComposePromptsAreATokenPerWord) {
  const auto task = TensorsOf(**TaskNamed("compose"), {"red square above blue disc"});
  ASSERT_TRUE(task.ok()) << task.status();
  const auto ids =
      (*task)->TokenIds({"red square above blue disc", "blue disc left of red square"});
  ASSERT_TRUE(ids.ok()) << ids.status();
  ASSERT_EQ(ids->sizes(), (at::IntArrayRef{2, 8}));
  const auto at = [&](int row, int column) { return (*ids)[row][column].item<int64_t>(); };
  const int64_t end = (*task)->text().eos_token_id;
  EXPECT_EQ(at(0, 1), at(1, 5)) << "red";
  EXPECT_EQ(at(0, 2), at(1, 6)) << "square";
  EXPECT_EQ(at(0, 4), at(1, 1)) << "blue";
  EXPECT_EQ(at(0, 6), end);
  EXPECT_EQ(at(0, 7), end);
  EXPECT_EQ(at(1, 7), end);
  EXPECT_EQ(at(0, 0), end - 1);
}

}  // namespace
}  // namespace oxbow::tasks
