// SPDX-License-Identifier: Apache-2.0
// The shipped models in our code and in diffusers and transformers: the same token ids, embeddings
// and velocities within 1e-5 (float32, sums in other orders), and the figures that they ship with.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "absl/strings/str_split.h"
#include "base/file.h"
#include "core/flow/schedule.h"
#include "core/model/velocity_model.h"
#include "gtest/gtest.h"
#include "io/diffusers_directory.h"
#include "io/prompts/text_encoders.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"
#include "run/model_facts.h"
#include "tasks/pretraining/networks.h"
#include "tasks/pretraining/pretraining.h"
#include "tasks/pretraining/task_tensors.h"

namespace oxbow {
namespace {

const std::string kSource = OXBOW_SOURCE_DIR;

struct Shipped {
  const char* model;
  const char* task;
  std::vector<std::string> prompts;  // Those of tools/check_embedded_model.py.
};

void PrintTo(const Shipped& shipped, std::ostream* out) { *out << shipped.model; }

model::NamedTensors TensorsOf(const std::string& path) {
  const auto file = io::ReadSafetensors(path);
  EXPECT_TRUE(file.ok()) << file.status();
  model::NamedTensors tensors;
  if (!file.ok()) return tensors;
  for (const auto& [name, bytes] : file->tensors) tensors[name] = *io::ToTorch(bytes);
  return tensors;
}

tasks::ComponentWeights WeightsOf(const io::DiffusersComponents& components) {
  tasks::ComponentWeights weights;
  for (const auto& [name, component] : components) {
    if (component.weights_base.empty()) continue;
    weights[name] =
        TensorsOf((component.directory / (component.weights_base + ".safetensors")).string());
  }
  return weights;
}

// Promise: The video demo learns its task.
class EmbeddedModelTest : public ::testing::TestWithParam<Shipped> {
 protected:
  std::vector<std::string> HeldOut() const {
    const auto lines = ReadFile(kSource + "/configs/prompts/" + GetParam().task + "_eval.txt");
    EXPECT_TRUE(lines.ok()) << lines.status();
    return absl::StrSplit(lines.value(), '\n', absl::SkipWhitespace());
  }
  // Around the transformer in the model's own directory.
  tasks::Networks NetworksOf(const io::DiffusersComponents& components) const {
    auto transformer = run::ArchitectureOf(components.at("transformer"));
    EXPECT_TRUE(transformer.ok()) << transformer.status();
    const auto pipeline = io::PipelineOf(components);
    EXPECT_TRUE(pipeline.ok()) << pipeline.status();
    return tasks::MakeNetworks(*std::move(transformer), (*pipeline)->text_side, *task_).value();
  }

  const std::string directory_ = kSource + "/models/" + GetParam().model;
  const model::NamedTensors golden_ =
      TensorsOf(kSource + "/tests/golden/models/velocity_" + GetParam().model + ".safetensors");
  const std::unique_ptr<tasks::TaskTensors> task_ =
      tasks::TensorsOf(**tasks::TaskNamed(GetParam().task), HeldOut()).value();
  const io::DiffusersComponents components_ = io::OpenDiffusersDirectory(directory_).value();
  const tasks::Networks networks_ = NetworksOf(components_);
  const tasks::ComponentWeights weights_ = WeightsOf(components_);
  const at::NoGradGuard no_grad_;
};

void ExpectClose(const at::Tensor& ours, const at::Tensor& golden) {
  ASSERT_EQ(ours.sizes(), golden.sizes());
  EXPECT_LE((ours - golden).abs().max().item<double>(),
            1e-5 * std::max(1.0, golden.abs().max().item<double>()));
}

// Promise: Embedded models are those of diffusers and fit to train. Token ids, prompts and
// velocities of `models/digits`, `digits_flux`, `plates` and `clip` equal those of diffusers and
// transformers, which load each directory, and each passes the gate of its task.
TEST_P(EmbeddedModelTest, IdsEmbeddingsAndVelocitiesAreThoseOfDiffusers) {
  const std::vector<at::Tensor> ids = networks_.text->TokenIds(GetParam().prompts).value();
  EXPECT_TRUE(at::equal(ids[0], golden_.at("ids")));
  if (golden_.contains("ids_2")) {
    EXPECT_TRUE(at::equal(ids[1], golden_.at("ids_2")));
  }
  if (golden_.contains("mask")) {
    EXPECT_TRUE(at::equal(ids[1], golden_.at("mask")));
  }

  const auto text = networks_.text->Make(weights_);
  ASSERT_TRUE(text.ok()) << text.status();
  const model::Conditioning encoded = networks_.text->Compose((*text)->Encode(ids));
  model::Conditioning golden;
  for (const char* part : {model::kPromptTokens, model::kPooledPrompt}) {
    if (!golden_.contains(part)) continue;
    golden[part] = golden_.at(part);
    ExpectClose(encoded.at(part), golden[part]);
  }
  EXPECT_EQ(golden.size(), encoded.size());

  const auto transformer =
      networks_.transformer->Make(weights_.at(tasks::kTransformer), nullptr, {});
  ASSERT_TRUE(transformer.ok()) << transformer.status();
  ExpectClose((*transformer)->Velocity(golden_.at("x"), golden_.at("sigma"), golden),
              golden_.at("velocity"));
}

// Padding that the model never saw would spoil what it draws.
TEST_P(EmbeddedModelTest, APromptHasTheTokensThatItWasTrainedWith) {
  EXPECT_EQ(io::PromptTokens(components_, /*t5_length=*/0).value(),
            golden_.at(model::kPromptTokens).size(1));
}

TEST_P(EmbeddedModelTest, SchedulerGivesOurGrid) {
  const at::Tensor grid = golden_.at("grid10");
  const std::vector<double> ours =
      flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, 10, /*shift=*/1.0);
  ASSERT_EQ(grid.numel(), static_cast<int64_t>(ours.size()));
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_NEAR(grid[static_cast<int64_t>(i)].item<double>(), ours[i], 1e-6) << i;
  }
}

// The base model of every example: sharp images, mostly the wrong ones, in all layouts.
// Promise: Embedded models are those of diffusers and fit to train.
TEST_P(EmbeddedModelTest, ShippedModelPassesItsOwnGate) {
  const auto report = tasks::EvaluatePretrained(
      *task_, networks_, weights_, HeldOut(), /*per_prompt=*/8,
      flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, 10, /*shift=*/1.0), /*seed=*/1);
  ASSERT_TRUE(report.ok()) << report.status();
  const absl::Status fit = task_->CheckBaseModel(*report);
  EXPECT_TRUE(fit.ok()) << fit;
  if (std::string(GetParam().task) == "digits") {
    EXPECT_GT(tasks::ValueOf(*report, "minority_share"), 0.3);
  }
  if (std::string(GetParam().task) == "plates") {
    EXPECT_GT(tasks::ValueOf(*report, "minority_share"), 0.2);
  }
  if (std::string(GetParam().task) == "clip") {
    EXPECT_GT(tasks::ValueOf(*report, "minority_share"), 0.3);
    EXPECT_GT(tasks::ValueOf(*report, "minority_way_share"), 0.25);
  }
}

const std::vector<std::string> kNumbers = {"text 000", "text 009", "text 473", "text 820",
                                           "text 999"};

INSTANTIATE_TEST_SUITE_P(
    Of, EmbeddedModelTest,
    ::testing::Values(
        Shipped{"digits", "digits", kNumbers},
        Shipped{"plates",
                "plates",
                {"text \"000\"", "text \"009\"", "text \"473\"", "text \"820\"", "text \"999\""}},
        Shipped{"clip", "clip", {"clip 00", "clip 09", "clip 47", "clip 82", "clip 99"}}),
    [](const auto& info) { return std::string(info.param.model); });

// A video's noise and time have its frames; a UMT5 trains with the transformer.
TEST(VideoPretrainingTest, TheTransformerOfAGraphTrainsWithItsTextEncoder) {
  const auto task = tasks::TensorsOf(**tasks::TaskNamed("clip"), {"clip 47", "clip 09", "clip 90"});
  ASSERT_TRUE(task.ok()) << task.status();
  const auto components = io::OpenDiffusersDirectory(kSource + "/models/clip");
  ASSERT_TRUE(components.ok()) << components.status();
  const auto transformer = run::ArchitectureOf(components->at("transformer"));
  ASSERT_TRUE(transformer.ok()) << transformer.status();
  const auto networks = tasks::MakeNetworks(*transformer, "wan", **task);
  ASSERT_TRUE(networks.ok()) << networks.status();
  tasks::PretrainingOptions options{.batch = {.seed = 2, .size = 16}, .steps = 20};
  const auto run = tasks::Pretraining::Create(options, **task, *networks);
  ASSERT_TRUE(run.ok()) << run.status();
  const tasks::ComponentWeights before = (*run)->Weights();
  EXPECT_NEAR((*run)->Step().value(), 2, 0.4);  // |eps|^2 + |x0|^2 and what the network draws.
  ASSERT_TRUE((*run)->Step().ok());
  const tasks::ComponentWeights after = (*run)->Weights();
  EXPECT_FALSE(at::equal(before.at("text_encoder").at("shared.weight"),
                         after.at("text_encoder").at("shared.weight")));
  const auto report =
      tasks::EvaluatePretrained(**task, *networks, after, {"clip 47"}, /*per_prompt=*/2,
                                flow::SigmaGrid(flow::ScheduleKind::kLinspace, 2, 1.0), 1);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(tasks::ValueOf(*report, "images"), 2);
}

}  // namespace
}  // namespace oxbow
