// SPDX-License-Identifier: Apache-2.0
// Every format of one run says the same: the base model plus alpha / r B A.
#include "cli/model/export.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/philox.h"
#include "cli/model/trained_part.h"
#include "config/run_config.h"
#include "core/model/lora.h"
#include "core/model/velocity_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/diffusers_directory.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"
#include "services/learner/checkpoint/checkpoint_store.h"
#include "tests/testing/graph_architecture.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const fs::path kModel = fs::path(OXBOW_SOURCE_DIR) / "models/digits";
constexpr char kTransformer[] = "transformer/diffusion_pytorch_model.safetensors";
constexpr char kModule[] = "transformer_blocks.0.attn.to_q";

at::Tensor Draw(at::IntArrayRef shape, uint64_t seed) {
  RandomStream random({.seed = seed});
  at::Tensor tensor = at::empty(shape, at::kFloat);
  random.FillNormal(std::span<float>(tensor.mutable_data_ptr<float>(), tensor.numel()));
  return tensor;
}

class ExportedRunTest : public ::testing::Test {
 protected:
  // A run as training leaves it, of these weights at two steps and their average.
  void MakeRun(const std::string& trained, const fs::path& model) {
    const auto resolved = config::LoadRunConfig(
        fs::path(OXBOW_SOURCE_DIR) / "configs/digits.yaml",
        {"run.name=seven", "model.path=" + model.string(), "model.trained=" + trained,
         "model.lora.rank=3", "model.lora.alpha=6", "model.lora.targets=[attn.to_q, ff.net.2]"},
        {});
    ASSERT_TRUE(resolved.ok()) << resolved.status();
    ASSERT_TRUE(config::WriteResolved(*resolved, run_ / "config.resolved.yaml").ok());
    const learner::CheckpointStore store(run_ / "checkpoints", 5);
    for (const uint64_t step : {1, 2}) {
      const auto file = [&](uint64_t seed) -> learner::FileContent {
        return [bytes = Serialized(Weights(trained, seed))](const learner::WritePiece& write) {
          return write(bytes);
        };
      };
      ASSERT_TRUE(store
                      .Write({.committed_steps = step,
                              .policy_version = step,
                              .evaluated = {{"eval/reward_mean", 0.5 / static_cast<double>(step)}}},
                             {{"weights.safetensors", file(10 * step)},
                              {"ema.safetensors", file(10 * step + 1)}})
                      .ok());
    }
  }
  static std::string Serialized(const model::NamedTensors& tensors) {
    return io::SerializeSafetensors({.tensors = io::AllFromTorch(tensors)});
  }
  model::NamedTensors Weights(const std::string& trained, uint64_t seed) const {
    model::NamedTensors tensors;
    if (trained == "full") {
      tensors = base_;
      for (const std::string& buffer : network_->buffers()) tensors.erase(buffer);
    } else {
      tensors =
          model::InitialLora(network_->linears(),
                             {.rank = 3, .alpha = 6, .targets = {"attn.to_q", "ff.net.2"}}, seed)
              .value();
    }
    for (auto& [name, tensor] : tensors) tensor = tensor + Draw(tensor.sizes(), seed++) * 0.1;
    return tensors;
  }
  at::Tensor Velocity(const model::NamedTensors& weights,
                      const model::LoraAdapter* adapter = nullptr) const {
    const at::NoGradGuard no_grad;
    return network_->Make(weights, adapter, {})
        .value()
        ->Velocity(Draw({2, network_->latent().channels, 8, 20}, 91), at::sigmoid(Draw({2}, 92)),
                   {{model::kPromptTokens, Draw({2, 6, 64}, 93)},
                    {model::kPooledPrompt, Draw({2, 64}, 94)}});
  }
  static model::NamedTensors Load(const fs::path& file) {
    const auto files = io::WeightFiles::OpenFile(file);
    EXPECT_TRUE(files.ok()) << files.status();
    return io::LoadTensors(files.value()).value();
  }
  fs::path Exported(ExportRequest request) const {
    request.run = run_;
    request.out = scratch_.path() / "out";
    const auto written = ExportRun(request);
    EXPECT_TRUE(written.ok()) << written.status();
    return request.out;
  }

  testing::ScopedDirectory scratch_;
  const fs::path run_ = scratch_.path();
  const std::shared_ptr<const model::Architecture> network_ =
      testing::GraphArchitecture(testing::kDigitsGraph);
  const model::NamedTensors base_ = Load(kModel / kTransformer);
};

std::set<std::string> FilesIn(const fs::path& directory) {
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) files.insert(fs::relative(entry.path(), directory).string());
  }
  return files;
}

TEST_F(ExportedRunTest, AWholeModelHasTheFilesOfItsBaseAndTheMergedTransformer) {
  MakeRun("lora", kModel);
  const fs::path out = Exported({.format = "merged", .whole_model = true});
  EXPECT_EQ(FilesIn(out), FilesIn(kModel));
  for (const std::string& file : FilesIn(kModel)) {
    const bool same = ReadFile(out / file).value() == ReadFile(kModel / file).value();
    EXPECT_EQ(same, file != kTransformer) << file;
  }
  // Twice over: what is there is replaced.
  EXPECT_EQ(FilesIn(Exported({.format = "merged", .whole_model = true})), FilesIn(kModel));
  EXPECT_TRUE(io::OpenDiffusersDirectory(out).ok());
}

TEST_F(ExportedRunTest, AWholeModelIsRefusedOverItsBaseOrOfAnotherFormat) {
  const fs::path model = scratch_.path() / "copy";
  fs::copy(kModel, model, fs::copy_options::recursive);
  MakeRun("lora", model);
  const auto over = ExportRun({.run = run_, .format = "merged", .out = model, .whole_model = true});
  EXPECT_THAT(over.status().message(), HasSubstr("the base model is not written over"));
  EXPECT_EQ(ReadFile(model / kTransformer).value(), ReadFile(kModel / kTransformer).value());
  EXPECT_THAT(ExportRun({.run = run_, .format = "peft", .whole_model = true}).status().message(),
              HasSubstr("--whole-model needs --format merged"));
}

TEST_F(ExportedRunTest, APlaceThatTakesNoFilesIsRefusedBeforeTheRunIsRead) {
  std::ofstream(scratch_.path() / "file") << "x";
  const auto refused =
      ExportRun({.run = "no/run", .format = "peft", .out = scratch_.path() / "file" / "out"});
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
  EXPECT_THAT(refused.status().message(), HasSubstr("cannot write to: Not a directory"));
}

// Promise: The best checkpoint stays and can be named.
TEST_F(ExportedRunTest, TheBestCheckpointIsExportedByName) {
  MakeRun("lora", kModel);  // Step 1 was evaluated higher than step 2.
  const fs::path file = "adapter_model.safetensors";
  EXPECT_EQ(ReadFile(Exported({.format = "peft", .checkpoint = "best"}) / file).value(),
            ReadFile(Exported({.format = "peft", .checkpoint = "1"}) / file).value());
  EXPECT_THAT(ExportRun({.run = run_, .format = "peft", .checkpoint = "fine"}).status().message(),
              HasSubstr("newest, best or a number of steps, got fine"));
}

config::ResolvedConfig NewRun(const std::vector<std::string>& set) {
  std::vector<std::string> all = {"model.path=" + kModel.string(), "model.trained=lora",
                                  "model.lora.rank=3", "model.lora.alpha=6",
                                  "model.lora.targets=[attn.to_q, ff.net.2]"};
  all.insert(all.end(), set.begin(), set.end());
  return config::LoadRunConfig(fs::path(OXBOW_SOURCE_DIR) / "configs/digits.yaml", all, {}).value();
}

TEST_F(ExportedRunTest, AnotherRunStartsFromTheAverageOfACheckpoint) {
  MakeRun("lora", kModel);
  const auto start = StartWeightsFrom(run_.string() + "@best", NewRun({}).config);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_THAT(start->from, HasSubstr("step 1"));
  const auto tensors = io::AllToTorch(start->tensors).value();
  for (const auto& [name, tensor] : Weights("lora", 11)) {
    EXPECT_TRUE(at::equal(tensors.at(name), tensor)) << name;
  }
  EXPECT_THAT(StartWeightsFrom(run_.string(), NewRun({}).config)->from, HasSubstr("step 2"));
}

// Promise: A start from other weights is those weights.
TEST_F(ExportedRunTest, AStartThatDoesNotFitIsRefusedInOneLine) {
  MakeRun("lora", kModel);
  const auto refusal = [&](const std::vector<std::string>& set) {
    const absl::Status status = StartWeightsFrom(run_.string(), NewRun(set).config).status();
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({"model.trained=full"}), HasSubstr("has trained an adapter"));
  EXPECT_THAT(refusal({"model.lora.rank=2"}), HasSubstr("set model.lora.rank to it, got 2"));
  EXPECT_THAT(refusal({"model.lora.targets=[attn.to_q]"}), HasSubstr("model.lora.targets"));
  const fs::path flux = fs::path(OXBOW_SOURCE_DIR) / "models/digits_flux";
  EXPECT_THAT(refusal({"model.path=" + flux.string()}), HasSubstr("do not fit the base model"));
}

TEST_F(ExportedRunTest, AnotherRunStartsFromAnAdaptersFile) {
  MakeRun("lora", kModel);
  const fs::path adapter = Exported({.format = "comfyui"});
  const auto start = StartWeightsFrom(adapter.string(), NewRun({"model.lora.rank=8"}).config);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->from, (adapter / "seven.safetensors").string());
  const auto tensors = io::AllToTorch(start->tensors).value();
  const model::NamedTensors trained = Weights("lora", 21);
  const std::string module(kModule);
  EXPECT_TRUE(
      at::equal(tensors.at(module + ".lora_A.weight"), trained.at(module + ".lora_A.weight")));
  EXPECT_TRUE(at::allclose(tensors.at(module + ".lora_B.weight") * (6. / 8),
                           trained.at(module + ".lora_B.weight") * 2));
  EXPECT_THAT(std::string(StartWeightsFrom(adapter.string(), NewRun({"model.trained=full"}).config)
                              .status()
                              .message()),
              HasSubstr("set model.trained to lora"));
}

TEST_F(ExportedRunTest, ACheckpointThatHasNoSuchNameNamesTheNearest) {
  MakeRun("lora", kModel);
  const auto start = StartWeightsFrom(run_.string() + "@besst", NewRun({}).config);
  EXPECT_EQ(start.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(start.status().message()),
              HasSubstr("did you mean " + run_.string() + "@best?: " + run_.string() + "@besst"));
}

TEST(StartFromTest, APathMayHaveAnAtSign) {
  EXPECT_EQ(ParseStartFrom("runs/a@40").run, "runs/a");
  EXPECT_EQ(ParseStartFrom("runs/a@40").checkpoint, "40");
  EXPECT_EQ(ParseStartFrom("runs/a@best").checkpoint, "best");
  EXPECT_EQ(ParseStartFrom("runs/me@home/a").run, "runs/me@home/a");
  EXPECT_EQ(ParseStartFrom("runs/me@home/a").checkpoint, "newest");
}

TEST_F(ExportedRunTest, EveryFormatOfAnAdapterGivesTheSameVelocities) {
  MakeRun("lora", kModel);
  const model::LoraAdapter trained{.tensors = Weights("lora", 21), .scale = 2};
  const at::Tensor expected = Velocity(base_, &trained);
  EXPECT_GT((expected - Velocity(base_)).abs().max().item<double>(), 0.1);
  const auto near = [&](const at::Tensor& ours) {
    return (ours - expected).abs().max().item<double>() <
           1e-5 * std::max(1.0, expected.abs().max().item<double>());
  };

  const model::NamedTensors peft = Load(Exported({.format = "peft"}) / "adapter_model.safetensors");
  model::LoraAdapter read{.tensors = {}, .scale = 2};  // adapter_config.json's 6 / 3.
  for (const auto& [name, tensor] : peft) {
    read.tensors[name.substr(std::string("base_model.model.").size())] = tensor;
  }
  EXPECT_TRUE(near(Velocity(base_, &read)));

  const fs::path diffusers = Exported({.format = "diffusers"}) / "pytorch_lora_weights.safetensors";
  const fs::path comfyui = Exported({.format = "comfyui"}) / "seven.safetensors";
  for (const fs::path& file : {diffusers, comfyui}) {
    model::LoraAdapter folded{.tensors = {}, .scale = 1};
    for (const auto& [name, tensor] : Load(file)) {
      folded.tensors[name.substr(std::string("transformer.").size())] = tensor;
    }
    EXPECT_TRUE(near(Velocity(base_, &folded))) << file;
  }
  EXPECT_TRUE(near(Velocity(Load(Exported({.format = "merged"}) / kTransformer))));
}

TEST_F(ExportedRunTest, TheAverageOfTheNewestCheckpointUnlessAskedOtherwise) {
  MakeRun("lora", kModel);
  const auto matrix = [&](const ExportRequest& request) {
    return Load(Exported(request) / "adapter_model.safetensors")
        .at(std::string("base_model.model.") + kModule + ".lora_A.weight");
  };
  const std::string name = std::string(kModule) + ".lora_A.weight";
  EXPECT_TRUE(at::equal(matrix({.format = "peft"}), Weights("lora", 21).at(name)));
  EXPECT_TRUE(at::equal(matrix({.format = "peft", .raw = true}), Weights("lora", 20).at(name)));
  EXPECT_TRUE(
      at::equal(matrix({.format = "peft", .checkpoint = "1"}), Weights("lora", 11).at(name)));
  const auto file = io::ReadSafetensors(scratch_.path() / "out/adapter_model.safetensors");
  EXPECT_EQ(file->metadata.at("oxbow.step"), "1");
  EXPECT_EQ(file->metadata.at("oxbow.weights"), "ema");
  EXPECT_EQ(file->metadata.at("oxbow.run"), "seven");
  EXPECT_EQ(file->metadata.at("oxbow.base_model"), kModel.string());
}

TEST_F(ExportedRunTest, AFullFineTuneIsAWholeTransformer) {
  MakeRun("full", kModel);
  const model::NamedTensors written = Load(Exported({.format = "merged"}) / kTransformer);
  model::NamedTensors expected = Weights("full", 21);
  for (const std::string& buffer : network_->buffers()) expected[buffer] = base_.at(buffer);
  ASSERT_EQ(written.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(at::equal(written.at(name), tensor));
  EXPECT_EQ(ReadFile(scratch_.path() / "out/transformer/config.json").value(),
            ReadFile(kModel / "transformer/config.json").value());
  const auto refused = ExportRun({.run = run_, .format = "peft", .out = scratch_.path() / "p"});
  EXPECT_EQ(ExitCodeOf(refused.status()), kExitUsage);
  EXPECT_FALSE(fs::exists(scratch_.path() / "p"));
}

TEST_F(ExportedRunTest, TheBaseModelsTypeIsKept) {
  const fs::path model = scratch_.path() / "half";
  fs::copy(kModel, model, fs::copy_options::recursive);
  model::NamedTensors half;
  for (const auto& [name, tensor] : base_) half[name] = tensor.to(at::kBFloat16);
  ASSERT_TRUE(io::WriteSafetensors(model / kTransformer, {.tensors = io::AllFromTorch(half)}).ok());
  MakeRun("lora", model);
  const auto merged = io::ReadSafetensors(Exported({.format = "merged"}) / kTransformer);
  ASSERT_TRUE(merged.ok()) << merged.status();
  const std::string name = std::string(kModule) + ".weight";
  EXPECT_EQ(merged->tensors.at(name).dtype, io::DType::kBF16);
  const model::NamedTensors adapter = Weights("lora", 21);
  const at::Tensor expected =
      half.at(name).to(at::kFloat) + at::mm(adapter.at(std::string(kModule) + ".lora_B.weight"),
                                            adapter.at(std::string(kModule) + ".lora_A.weight")) *
                                         2;
  EXPECT_TRUE(at::allclose(io::ToTorch(merged->tensors.at(name))->to(at::kFloat), expected,
                           /*rtol=*/0.004, /*atol=*/1e-6));  // bfloat16 keeps 8 bits.
}

TEST_F(ExportedRunTest, AMergeSaysWhatRoundingTookAndFloat32KeepsIt) {
  const fs::path model = scratch_.path() / "half";
  fs::copy(kModel, model, fs::copy_options::recursive);
  model::NamedTensors half;
  // Weights that are large beside the adapter.
  for (const auto& [name, tensor] : base_) half[name] = (tensor * 64).to(at::kBFloat16);
  ASSERT_TRUE(io::WriteSafetensors(model / kTransformer, {.tensors = io::AllFromTorch(half)}).ok());
  MakeRun("lora", model);
  ExportRequest request{.run = run_, .format = "merged", .out = scratch_.path() / "out"};
  const std::string said = ExportRun(request)->said;
  EXPECT_THAT(said, AllOf(HasSubstr("% of the adapter arrived"), HasSubstr("--dtype f32")));
  request.float32 = true;
  EXPECT_EQ(ExportRun(request)->said, "");
  const auto merged = io::ReadSafetensors(request.out / kTransformer).value();
  const model::NamedTensors adapter = Weights("lora", 21);
  double added = 0;
  double lost = 0;
  for (const auto& [name, tensor] : merged.tensors) {
    EXPECT_EQ(tensor.dtype, io::DType::kF32) << name;
    const at::Tensor whole = *io::ToTorch(tensor);
    const at::Tensor start = half.at(name).to(at::kFloat);
    const std::string module = name.substr(0, name.rfind('.'));
    if (!adapter.contains(module + ".lora_A.weight")) {
      EXPECT_TRUE(at::equal(whole, start)) << name;
      continue;
    }
    added += (whole - start).square().sum().item<double>();
    lost += (whole - whole.to(at::kBFloat16).to(at::kFloat)).square().sum().item<double>();
  }
  const double share = 100 * (1 - std::sqrt(lost / added));
  EXPECT_THAT(said, HasSubstr(absl::StrFormat("merged: %.0f %%", share)));
  request.format = "peft";
  EXPECT_EQ(ExitCodeOf(ExportRun(request).status()), kExitUsage);
}

TEST_F(ExportedRunTest, WhatDoesNotFitIsOneLineAndWritesNothing) {
  const auto refusal = [&](ExportRequest request) {
    request.out = scratch_.path() / "nothing";
    const auto status = ExportRun(request).status();
    EXPECT_EQ(ExitCodeOf(status), kExitData) << status;
    EXPECT_FALSE(fs::exists(request.out / kTransformer));
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({.run = "/nowhere", .format = "peft"}), HasSubstr("/nowhere"));
  const fs::path model = scratch_.path() / "other";
  fs::copy(kModel, model, fs::copy_options::recursive);
  MakeRun("lora", model);
  EXPECT_THAT(refusal({.run = run_, .format = "peft", .checkpoint = "7"}),
              AllOf(HasSubstr("7"), HasSubstr("step_000002")));
  model::NamedTensors smaller = base_;
  smaller[std::string(kModule) + ".weight"] = at::zeros({3, 3});
  ASSERT_TRUE(
      io::WriteSafetensors(model / kTransformer, {.tensors = io::AllFromTorch(smaller)}).ok());
  EXPECT_THAT(refusal({.run = run_, .format = "merged"}),
              AllOf(HasSubstr(kModule), HasSubstr("[3,3]")));
  fs::resize_file(run_ / "checkpoints/step_000002/ema.safetensors", 100);
  EXPECT_THAT(refusal({.run = run_, .format = "peft", .checkpoint = "2"}),
              HasSubstr("ema.safetensors"));
}

}  // namespace
}  // namespace oxbow::cli
