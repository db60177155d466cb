// SPDX-License-Identifier: Apache-2.0
#include "tasks/pretraining/pretraining.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>

#include "core/flow/schedule.h"
#include "tasks/pretraining/piece_vocabulary.h"

namespace oxbow::tasks {
namespace {

const std::vector<std::string> kPrompts = {"text 473", "text 009", "text 812"};

const TaskTensors& SmallTask() {
  static const auto* const task = TensorsOf(**TaskNamed("digits"), kPrompts)->release();
  return *task;
}

const Networks& SmallNetworks() {
  static const auto* const networks = new Networks(OwnNetworks(SmallTask()).value());
  return *networks;
}

std::unique_ptr<Pretraining> Start(uint64_t seed, int64_t steps) {
  PretrainingOptions options{.batch = {.seed = seed, .size = 16}, .steps = steps};
  options.warmup_steps = 5;
  auto run = Pretraining::Create(options, SmallTask(), SmallNetworks());
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
  EXPECT_EQ(count(run->Weights().at("transformer")), 437'776);
  EXPECT_EQ(count(run->Weights().at("text_encoder")), 104'640);
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
  const ComponentWeights again = second->Weights();
  for (const auto& [component, weights] : first->Weights()) {
    for (const auto& [name, tensor] : weights) {
      EXPECT_TRUE(at::equal(tensor, again.at(component).at(name))) << name;
    }
  }
}

TEST(PretrainingTest, UntrainedModelDrawsNothingReadable) {
  const auto run = Start(5, 10);
  const auto report = EvaluatePretrained(SmallTask(), SmallNetworks(), run->Weights(), kPrompts,
                                         /*per_prompt=*/4,
                                         flow::SigmaGrid(flow::ScheduleKind::kLinspace, 4, 1.0), 1);
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
  EXPECT_FALSE(TensorsOf(**TaskNamed("plates"), kPrompts).ok());
  EXPECT_FALSE(TensorsOf(**TaskNamed("plates"), {}).ok());
  EXPECT_FALSE(SmallTask().TokenIds({"clip 47"}).ok());
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

// Words of letters are whole; a digit at the beginning of a word is another piece than one within.
TEST(PieceVocabularyTest, APromptIsCutInOneWay) {
  const PieceVocabulary vocabulary({"text 473", "text 4"});
  const std::string space = "\xe2\x96\x81";
  EXPECT_EQ(vocabulary.pieces(), (std::vector<std::string>{"<pad>", "</s>", "<unk>", "3", "7",
                                                           space + "4", space + "text"}));
  EXPECT_EQ(vocabulary.length(), 5);
  const at::Tensor wanted = at::tensor({6, 5, 4, 3, 1, 6, 5, 1, 0, 0}, at::kLong).view({2, 5});
  EXPECT_TRUE(at::equal(vocabulary.TokenIds({"text 473", "text 4"}), wanted));
}

TEST(PretrainingTest, ATextSideWithoutSmallEncodersSaysSo) {
  const absl::Status text = MakeNetworks(SmallNetworks().transformer, "qwen", SmallTask()).status();
  EXPECT_EQ(text.message(),
            "no small text encoders for the text side 'qwen' (sd3, flux, wan have some)");
}

// Around the transformer of digits: a CLIP without projection, and a T5, all trained.
TEST(PretrainingTest, AllTextEncodersOfAPipelineTrain) {
  const auto networks = MakeNetworks(SmallNetworks().transformer, "flux", SmallTask());
  ASSERT_TRUE(networks.ok()) << networks.status();
  PretrainingOptions options{.batch = {.seed = 2, .size = 16}, .steps = 20};
  const auto run = Pretraining::Create(options, SmallTask(), *networks);
  ASSERT_TRUE(run.ok()) << run.status();
  const ComponentWeights before = (*run)->Weights();
  EXPECT_EQ(before.at("text_encoder").count("text_projection.weight"), 0u);
  for (int step = 0; step < 3; ++step) ASSERT_TRUE((*run)->Step().ok());
  const ComponentWeights after = (*run)->Weights();
  for (const char* component : {"transformer", "text_encoder", "text_encoder_2"}) {
    bool changed = false;
    for (const auto& [name, tensor] : before.at(component)) {
      changed = changed || !at::equal(tensor, after.at(component).at(name));
    }
    EXPECT_TRUE(changed) << component;
  }
}

TEST(PretrainingTest, ATaskWithoutATransformerSaysSo) {
  const auto task = TensorsOf(**TaskNamed("clip"), {"clip 47"});
  ASSERT_TRUE(task.ok()) << task.status();
  EXPECT_EQ(OwnNetworks(**task).status().message(), "task clip has no transformer without a graph");
  EXPECT_EQ(MakeNetworks(SmallNetworks().transformer, "sd3", **task).status().message(),
            "SD3Transformer2DModel draws [C, H, W] of 1 channels with heights and widths of "
            "multiples of 4 and 4; "
            "this task's videos are [1, 3, 8, 20]");
}

// A mean would hide a frame that does not follow the prompt.
// Promise: The video demo learns its task.
TEST(PretrainingTest, GateRefusesAModelOfClipsThatIgnoresOneFrame) {
  const auto task = TensorsOf(**TaskNamed("clip"), {"clip 47"});
  const auto fit = [&](double steady, std::array<double, 3> frames) {
    return (*task)
        ->CheckBaseModel({{"reward", 0.52},
                          {"unreadable", 0.1},
                          {"speckle", 0.016},
                          {"steady", steady},
                          {"digit_1_accuracy", 0.52},
                          {"digit_2_accuracy", 0.52},
                          {"frame_1_accuracy", frames[0]},
                          {"frame_2_accuracy", frames[1]},
                          {"frame_3_accuracy", frames[2]}})
        .ok();
  };
  EXPECT_TRUE(fit(0.9, {0.52, 0.52, 0.52}));
  EXPECT_FALSE(fit(0.9, {0.10, 0.72, 0.72}));
  EXPECT_FALSE(fit(0.2, {0.52, 0.52, 0.52}));
}

}  // namespace
}  // namespace oxbow::tasks
