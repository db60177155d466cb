// SPDX-License-Identifier: Apache-2.0
// Graphs that are right do what they say; any other is refused in one line that names the key.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/architecture.h"
#include "core/model/exported_graph/dry_run.h"
#include "core/model/exported_graph/exported_transformer.h"
#include "core/model/exported_graph/graph.h"
#include "core/model/exported_graph/program.h"
#include "core/model/policy.h"
#include "tests/testing/small_graph.h"

namespace oxbow::model::exported {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kClass[] = "SmallTransformer2DModel";
constexpr char kConfig[] = R"({"_class_name": "SmallTransformer2DModel", "width": 4})";

absl::StatusOr<std::shared_ptr<const Architecture>> Read(const Json& graph,
                                                         const char* config = kConfig) {
  return ReadArchitecture({kClass, config, graph.dump()});
}

std::shared_ptr<const Architecture> Small() {
  auto architecture = Read(SmallGraph());
  EXPECT_TRUE(architecture.ok()) << architecture.status();
  return *std::move(architecture);
}

struct Inputs {
  at::Tensor x, sigma;
  Conditioning conditioning;
};

Inputs SomeInputs(int64_t rows, int64_t height = 4, int64_t width = 6) {
  at::manual_seed(3);
  return {at::randn({rows, 2, height, width}),
          at::rand({rows}),
          {{kPromptTokens, at::randn({rows, 5, 3})}}};
}

at::Tensor Velocity(const VelocityModel& network, const Inputs& in) {
  return network.Velocity(in.x, in.sigma, in.conditioning);
}

// Promise: A graph is input.

TEST(ExportedGraphTest, ComputesWhatItSays) {
  const auto architecture = Small();
  const NamedTensors weights = SmallWeights();
  const auto network = *architecture->Make(weights, nullptr, {.embedded_guidance = 3.5});
  for (const auto& [height, width] : {std::pair(4, 6), {2, 2}, {8, 4}, {4, 6}}) {
    const Inputs in = SomeInputs(3, height, width);
    const at::Tensor expected =
        SmallVelocity(weights, in.x, in.sigma, in.conditioning.at(kPromptTokens), 3.5);
    EXPECT_TRUE(at::allclose(Velocity(*network, in), expected, 1e-5, 1e-5))
        << height << " x " << width;
  }
}

TEST(ExportedGraphTest, SaysWhatTheNetworkTakes) {
  const auto architecture = Small();
  EXPECT_EQ(architecture->class_name(), kClass);
  EXPECT_EQ(architecture->latent().channels, 2);
  EXPECT_EQ(architecture->latent().side, 4);
  EXPECT_EQ(architecture->latent().side_max, 8);
  EXPECT_EQ(architecture->latent().patch.height, 2);
  EXPECT_EQ(architecture->latent().patch.width, 2);
  EXPECT_EQ(architecture->latent().dimensions(), 3);
  ASSERT_EQ(architecture->conditioning().size(), 1u) << "guidance is no part of a prompt";
  EXPECT_THAT(architecture->conditioning()[0].shape, ElementsAre(kPromptLength, 3));
  EXPECT_TRUE(architecture->takes_embedded_guidance());
  EXPECT_EQ(architecture->default_guidance(), 0) << "nobody says it";
  EXPECT_THAT(architecture->buffers(), ElementsAre("scale"));
  EXPECT_EQ(architecture->shapes().size(), 5u);
  EXPECT_EQ(architecture->linears().size(), 3u);
  EXPECT_EQ(architecture->linears().at("unused"), std::pair(int64_t{3}, int64_t{3}));
}

TEST(ExportedGraphTest, SidesMayBeMultiplesOfDifferentSizes) {
  Json graph = SmallGraph();
  graph["symbols"]["W"] = {{"min", 3}, {"max", 9}, {"multiple", 3}};
  const auto architecture = *Read(graph);
  EXPECT_EQ(architecture->latent().patch.height, 2);
  EXPECT_EQ(architecture->latent().patch.width, 3);
  EXPECT_EQ(architecture->latent().side_max, 8);
  const NamedTensors weights = SmallWeights();
  const Inputs in = SomeInputs(2, 4, 9);
  const auto network = *architecture->Make(weights, nullptr, {.embedded_guidance = 1});
  const at::Tensor expected =
      SmallVelocity(weights, in.x, in.sigma, in.conditioning.at(kPromptTokens), 1);
  EXPECT_TRUE(at::allclose(Velocity(*network, in), expected, 1e-5, 1e-5));
  graph["latent"]["guidance_norm"] = true;
  EXPECT_THAT(std::string(Read(graph).status().message()), HasSubstr("tokens are not square"));
}

// The first linear layer is exact, the second takes its product in bfloat16.
TEST(ExportedGraphTest, WhatAGraphKeepsInFloat32IsNeitherRoundedNorMultipliedInAShorterType) {
  Json graph = SmallGraph();
  for (const int i : {0, 1}) graph["parameters"][i]["float32"] = true;
  const auto architecture = *Read(graph);
  EXPECT_THAT(architecture->float32(), ElementsAre("in.bias", "in.weight", "scale"));
  EXPECT_THAT(architecture->buffers(), ElementsAre("scale"));
  const NamedTensors weights = SmallWeights();
  const auto policy = *Policy::Create({.architecture = architecture,
                                       .base = weights,
                                       .trained = Trained::kLora,
                                       .lora = {.rank = 1, .alpha = 1, .targets = {"unused"}},
                                       .embedded_guidance = 1.5,
                                       .compute = at::kBFloat16});
  for (const auto& [name, tensor] : policy->frozen()) {
    const bool kept = architecture->float32().contains(name);
    EXPECT_EQ(tensor.scalar_type(), kept ? at::kFloat : at::kBFloat16) << name;
    EXPECT_TRUE(!kept || at::equal(tensor, weights.at(name))) << name;
  }
  const Inputs in = SomeInputs(2);
  const auto short_second = [](const at::Tensor& h, const at::Tensor& w) {
    return at::linear(h.to(at::kBFloat16), w.to(at::kBFloat16)).to(at::kFloat);
  };
  const at::Tensor expected =
      SmallVelocity(weights, in.x, in.sigma, in.conditioning.at(kPromptTokens), 1.5, short_second);
  const at::NoGradGuard no_grad;
  const at::Tensor v = Velocity(policy->reference(), in);
  EXPECT_TRUE(at::allclose(v, expected, 1e-6, 1e-6)) << (v - expected).abs().max();
}

// Promise: Guidance that is an input is one scale everywhere.
TEST(ExportedGraphTest, AScaleOfGuidanceIsWhatTheGraphSays) {
  Json graph = SmallGraph();
  graph["inputs"][3]["default"] = 2.5;
  EXPECT_EQ((*Read(graph))->default_guidance(), 2.5);
}

// Promise: Guidance that is an input is one scale everywhere.
TEST(ExportedGraphTest, APolicyGivesItsNetworksTheScale) {
  const auto architecture = Small();
  const Inputs in = SomeInputs(2);
  for (const double scale : {1.0, 3.5}) {
    auto policy = *Policy::Create(
        {.architecture = architecture, .base = SmallWeights(), .embedded_guidance = scale});
    const at::Tensor expected =
        SmallVelocity(SmallWeights(), in.x, in.sigma, in.conditioning.at(kPromptTokens), scale);
    for (const VelocityModel* network :
         {&policy->current(), &policy->reference(), &policy->ema()}) {
      EXPECT_TRUE(at::allclose(Velocity(*network, in), expected, 1e-5, 1e-5)) << scale;
    }
  }
}

TEST(ExportedGraphTest, ADryRunCountsWhatTheBackwardPassReads) {
  const auto program = *Compile(*ParseGraph(SmallGraph().dump()));
  const auto kept = DryRun(program, {{"B", 8}, {"H", 4}, {"W", 4}, {"S", 5}});
  ASSERT_TRUE(kept.ok()) << kept.status();
  const uint64_t number = 4, pixels = 8 * 16;
  // The block's mask, a byte each; the inputs of silu and of the second linear layer; the velocity.
  EXPECT_EQ(kept->blocks, pixels * 2);
  EXPECT_EQ(kept->largest_block, kept->blocks);
  EXPECT_EQ(kept->outside, pixels * (4 + 4 + 2) * number);
  EXPECT_EQ(kept->between, pixels * 2 * number + pixels * 2);
  EXPECT_EQ(DryRun(program, {{"B", 8}, {"H", 4}, {"W", 3}, {"S", 5}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ExportedGraphTest, WhatDependsOnSizesAloneIsFolded) {
  const auto program = *Compile(*ParseGraph(SmallGraph().dump()));
  const auto folded = std::count(program->folded.begin(), program->folded.end(), true);
  EXPECT_EQ(folded, 8) << "sizes, and the table made of them";
  EXPECT_THAT(program->folded_symbols, ElementsAre("H", "W"));
  EXPECT_THAT(program->folded_results, ElementsAre(15, 9, 10));
}

TEST(ExportedGraphTest, AValueThatOthersReadBeforeItIsWrittenIsNotFolded) {
  Json graph = SmallGraph();
  // silu's output takes the place of what the pixels count: the write comes after a read.
  graph["nodes"][5] = Json::parse(
      R"({"op": "aten::mul", "overload": "Tensor",
          "args": {"self": {"v": 13}, "other": {"v": 1}}, "out": 14})");
  const auto program = Compile(*ParseGraph(graph.dump()));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_FALSE((*program)->folded[4]) << "arange, which zero_ writes after mul reads it";
  EXPECT_FALSE((*program)->folded[6]);
}

TEST(ExportedGraphTest, RecomputedAndAdaptedTrainingIsThatOfTheWholeGraph) {
  at::set_num_threads(1);
  const auto architecture = Small();
  const auto policy = [&](bool recompute, bool merged) {
    auto made = Policy::Create({.architecture = architecture,
                                .base = SmallWeights(),
                                .trained = Trained::kLora,
                                .lora = {.rank = 2, .alpha = 4, .targets = {"in", "out", "unused"}},
                                .lora_seed = 5,
                                .trainable = !merged,
                                .merged = merged,
                                .checkpoint_activations = recompute});
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  };
  const auto kept = policy(false, false), again = policy(true, false), merged = policy(false, true);
  at::manual_seed(6);
  const at::Tensor change = at::randn({kept->parameters().numel()}) * 0.3;
  NamedTensors trained;
  for (const auto& one : {kept.get(), again.get()}) one->parameters().flat().detach().add_(change);
  for (const auto& [name, view] : kept->parameters().tensors()) trained[name] = view.detach();
  ASSERT_TRUE(merged->Load(trained).ok());
  const Inputs in = SomeInputs(3);
  const at::Tensor v = Velocity(kept->current(), in), w = Velocity(again->current(), in);
  EXPECT_TRUE(at::equal(v, w));
  EXPECT_FALSE(at::allclose(v, Velocity(kept->reference(), in), 1e-2, 1e-2));
  {
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::allclose(v, Velocity(merged->current(), in), 1e-4, 1e-5));
  }
  v.square().mean().backward();
  w.square().mean().backward();
  EXPECT_TRUE(at::allclose(kept->parameters().flat_grad(), again->parameters().flat_grad(), 1e-5));
  EXPECT_GT(kept->parameters().Get("in.lora_A.weight").grad().abs().max().item<float>(), 0);
  EXPECT_EQ(kept->parameters().Get("unused.lora_B.weight").grad().abs().max().item<float>(), 0);
}

void ExpectSameBitsWithOffloadedWeights(Trained trained) {
  at::set_num_threads(1);
  const auto policy = [&](bool offloaded) {
    return *Policy::Create({.architecture = Small(),
                            .base = SmallWeights(),
                            .trained = trained,
                            .lora = {.rank = 2, .alpha = 4, .targets = {"in", "unused"}},
                            .lora_seed = 5,
                            .with_ema = false,
                            .weights_on_host = offloaded,
                            .checkpoint_activations = true});
  };
  const auto plain = policy(false), offloaded = policy(true);
  at::manual_seed(6);
  const at::Tensor change = at::randn({plain->parameters().numel()}) * 0.3;
  for (Policy* one : {plain.get(), offloaded.get()}) one->parameters().flat().detach().add_(change);
  const Inputs in = SomeInputs(3);
  for (int step = 0; step < 2; ++step) {
    for (Policy* one : {plain.get(), offloaded.get()}) {
      one->parameters().ZeroGrad();
      Velocity(one->current(), in).square().mean().backward();
    }
    EXPECT_GT(plain->parameters().flat_grad().abs().max().item<float>(), 0);
    EXPECT_TRUE(at::equal(plain->parameters().flat_grad(), offloaded->parameters().flat_grad()));
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::equal(Velocity(plain->current(), in), Velocity(offloaded->current(), in)));
    EXPECT_TRUE(at::equal(Velocity(plain->reference(), in), Velocity(offloaded->reference(), in)));
    for (Policy* one : {plain.get(), offloaded.get()}) {
      one->parameters().flat().sub_(one->parameters().flat_grad(), 0.1);
    }
  }
}

// Promise: Where weights are changes no bit.
TEST(ExportedGraphTest, TrainingWithWeightsThatComeBlockByBlockHasTheSameBits) {
  ExpectSameBitsWithOffloadedWeights(Trained::kFull);
}

// Promise: Where weights are changes no bit.
TEST(ExportedGraphTest, ALoraWhoseBaseComesBlockByBlockHasTheSameBits) {
  ExpectSameBitsWithOffloadedWeights(Trained::kLora);
}

TEST(ExportedGraphTest, ARowHasTheSameBitsWhateverTheBatch) {
  at::set_num_threads(1);
  const auto network = *Small()->Make(SmallWeights(), nullptr, {});
  const Inputs in = SomeInputs(11);
  const at::NoGradGuard no_grad;
  const at::Tensor all = Velocity(*network, in);
  for (const int64_t rows : {1, 3, 8, 10}) {
    const at::Tensor part = network->Velocity(in.x.narrow(0, 0, rows), in.sigma.narrow(0, 0, rows),
                                              NarrowRows(in.conditioning, 0, rows));
    EXPECT_TRUE(at::equal(part, all.narrow(0, 0, rows))) << rows;
  }
}

TEST(ExportedGraphTest, WeightsOfOtherShapesAreNamed) {
  NamedTensors weights = SmallWeights();
  weights["in.weight"] = at::zeros({4, 3});
  weights.erase("scale");
  weights["more"] = at::zeros({1});
  const auto status = Small()->Make(weights, nullptr, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("missing: scale; unexpected: more; "
                                                       "wrong shape: in.weight [4,3] instead of "
                                                       "[4,2]"));
}

TEST(ExportedGraphTest, SizesOutsideTheirRangesAreRefused) {
  const Graph graph = *ParseGraph(SmallGraph().dump());
  const auto refusal = [&](at::IntArrayRef x, int64_t tokens) {
    return std::string(CheckInputs(graph, {at::zeros(x), at::zeros({x[0]}),
                                           at::zeros({x[0], tokens, 3}), at::zeros({x[0]})})
                           .message());
  };
  EXPECT_EQ(refusal({1, 2, 4, 4}, 9), "");
  EXPECT_EQ(refusal({1, 2, 5, 4}, 9),
            "size H of this network's inputs must be at least 2, at most 8, a multiple of 2: 5");
  EXPECT_THAT(refusal({1, 2, 4, 10}, 9), HasSubstr("size W"));
  EXPECT_THAT(refusal({1, 2, 4, 4}, 10), HasSubstr("size S"));
  EXPECT_EQ(refusal({1, 3, 4, 4}, 9), "input x: dimension 1 has 3 instead of 2");
  EXPECT_EQ(refusal({1, 2, 4}, 9), "input x: dimensions: 3 instead of 4");
}

TEST(ExportedGraphTest, AGraphOfAnotherConfigIsRefusedByKey) {
  EXPECT_TRUE(Read(SmallGraph(), R"({"width": 4, "act": "silu", "unheard_of": 1})").ok());
  const auto refusal = [](const char* config) {
    return std::string(Read(SmallGraph(), config).status().message());
  };
  EXPECT_EQ(refusal("{}"), "graph: width is 8, and the graph is for 4") << "the class's default";
  EXPECT_EQ(refusal(R"({"width": 4, "act": "gelu"})"),
            "graph: act is \"gelu\", and the graph is for \"silu\"");
  EXPECT_EQ(
      std::string(ReadArchitecture({"Other", kConfig, SmallGraph().dump()}).status().message()),
      "graph: class: SmallTransformer2DModel instead of Other");
}

// An edit of the small graph at a JSON pointer, and what is said of it.
struct BadGraph {
  const char* pointer;
  const char* value;
  const char* complaint;
};

class BadGraphTest : public ::testing::TestWithParam<BadGraph> {};

// Promise: A graph is input. A graph of another class or config, an operator that is not allowed,
// slots, sizes, types or blocks that do not fit, and a write to a weight are refused when the graph
// is read, in one line with the key.
TEST_P(BadGraphTest, IsRefusedInOneLineThatNamesTheKey) {
  Json graph = SmallGraph();
  graph[Json::json_pointer(GetParam().pointer)] = Json::parse(GetParam().value);
  const absl::Status status = Read(graph).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr(GetParam().complaint));
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    ExportedGraph, BadGraphTest,
    ::testing::Values(
        BadGraph{"/format", R"("onnx")", "format: not oxbow-graph"},
        BadGraph{"/version", "2", "version: only version 1, and 2 of a graph"},
        BadGraph{"/slots", "30", "output: not a whole number from 0 to 29"},
        BadGraph{"/output", "40", "output: not a whole number"},
        BadGraph{"/output", "9", "output: not a tensor"},
        BadGraph{"/inputs/0/shape", R"(["B", 2, "H"])", "x is neither [B, C, H, W]"},
        BadGraph{"/inputs/2/shape/1", R"("T")", "inputs[2].shape[1]: no such symbol: T"},
        BadGraph{"/inputs/1/dtype", R"("int64")", "inputs[1].dtype: an input is not float32"},
        BadGraph{"/inputs/3/default", "0", "inputs[3].default: not a number above 0"},
        BadGraph{"/inputs/3/default", R"("3.5")", "inputs[3].default: not a number above 0"},
        BadGraph{"/inputs/2/default", "3.5", "inputs[2].default: only guidance has one"},
        BadGraph{"/parameters/0/shape", "[4]", "parameters[0]: a linear layer's weight"},
        BadGraph{"/parameters/0/name", R"("in.bias")", "parameters[0]: a linear layer's weight"},
        BadGraph{"/parameters/1/slot", "4", "parameter in.bias writes a slot a second time: 4"},
        BadGraph{"/parameters/3/linear", "true", "parameters[3]: a linear layer's weight"},
        BadGraph{"/constants/0/data", R"("AAA=")", "constants[0].data: bytes: 2 instead of 4"},
        BadGraph{"/constants/0/data", R"("?")", "constants[0].data: not base64"},
        BadGraph{"/constants/0/shape", "[2147483648, 2147483648]", "more bytes than a graph file"},
        BadGraph{"/constants/0/dtype", R"("int7")", "constants[0].dtype: unknown type: int7"},
        BadGraph{"/nodes/11/out", "18", "nodes[11].out writes a slot a second time: 18"},
        BadGraph{"/nodes/4/args/end/v", "14", "nodes[4].args.end reads a slot that nothing wrote"},
        BadGraph{"/nodes/11/op", R"("aten::save")",
                 "nodes[11] (aten::save): an operator that is not allowed: aten::save"},
        BadGraph{"/nodes/11/op", R"("aten::normal_")", "an operator that is not allowed"},
        BadGraph{"/nodes/11/op", R"("prim::Print")", "an operator that is not allowed"},
        BadGraph{"/nodes/0/op", R"("sym::system")", "an operator that is not allowed: sym::system"},
        BadGraph{"/nodes/11/args/inplace", "true",
                 "nodes[11] (aten::silu): no such argument: inplace"},
        BadGraph{"/nodes/11/args/self", R"("x")", "argument self: not a Tensor"},
        BadGraph{"/nodes/12/args/self", "[1]", "argument self: not a Tensor"},
        BadGraph{"/nodes/9/args/dim0", "0.5", "argument dim0: not a int"},
        BadGraph{"/nodes/9/args/dim0", R"({"v": 0})", "argument dim0: not a int"},
        BadGraph{"/nodes/4/args/device", R"("cuda:1")", "argument device: not a Device"},
        BadGraph{"/nodes/4/args/pin_memory", "true", "argument pin_memory: memory is not pinned"},
        BadGraph{"/nodes/4/args/end", R"({"v": 0, "w": 1})",
                 "nodes[4].args.end: an argument's object"},
        BadGraph{"/nodes/11/out", "[19, null]",
                 "nodes[11] (aten::silu): out: not one slot per result"},
        BadGraph{"/nodes/18/out", "[26, 27, null]", "results: 2 instead of 3"},
        BadGraph{"/nodes/29/args/self/v", "0", "writes to a weight, an input or a constant"},
        BadGraph{"/nodes/29/args/self/v", "16", "writes to a weight, an input or a constant"},
        BadGraph{"/nodes/20/args/self/v", "7", "writes to a weight, an input or a constant"},
        BadGraph{"/blocks/0/first", "20", "writes to a value from outside its block blocks.0"},
        BadGraph{"/blocks/0/end", "21", "blocks[0].end: not a whole number from 22"},
        BadGraph{"/nodes/10/args/bias", "null", "does not use a linear layer's weight as one"},
        BadGraph{"/nodes/16/args/other/v", "6", "does not use a linear layer's weight as one"},
        BadGraph{"/nodes/3/args/b", "0", "nodes[3] (sym::floordiv)"},
        BadGraph{"/nodes/27/args/shape", "[-1, 3, 7]", "nodes[27] (aten::reshape)"},
        BadGraph{"/nodes/14/args/dim", "[1, 5]", "nodes[14] (aten::mean.dim)"},
        BadGraph{"/output", "35", "output: not of x's shape"},
        BadGraph{"/nodes/11/autocasts", "false", "nodes[11]: unknown key"},
        BadGraph{"/symbols/H/max", "1", "symbols.H: max is below min"},
        BadGraph{"/latent/side", "0", "latent.side: not a whole number"},
        BadGraph{"/config", "[]", "config: not an object"}));

TEST(ExportedGraphTest, AFileThatIsNoGraphIsRefused) {
  EXPECT_EQ(ParseGraph("[").status().message(), "not a JSON object");
  EXPECT_EQ(ParseGraph("{}").status().message(), "no key `format`");
  EXPECT_EQ(ParseGraph(std::string(100000, '[')).status().message(), "lists in lists without end");
  EXPECT_THAT(std::string(ReadArchitecture({kClass, kConfig, ""}).status().message()),
              HasSubstr("graph: not a JSON object"));
}

}  // namespace
}  // namespace oxbow::model::exported
