// SPDX-License-Identifier: Apache-2.0
// Decoders that take one latent frame after another, and the states that they hand on.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <nlohmann/json.hpp>

#include "core/model/exported_graph/exported_decoder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/counting_allocator.h"

namespace oxbow::model::exported {
namespace {

using ::oxbow::testing::CountingAllocator;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// A causal convolution over a frame and the two before it, then pixels twice as large. The second
// state is the sum of all frames so far, at the larger size; it is added to the pixels.
constexpr char kCausal[] = R"({
  "format": "oxbow-graph", "version": 2, "class": "AutoencoderCausal", "config": {"width": 3},
  "defaults": {}, "decoder": {"time": 1, "space": 2},
  "inputs": [{"name": "latents", "slot": 0, "shape": ["B", 2, 1, "H", "W"], "dtype": "float32"}],
  "symbols": {"B": {}, "H": {}, "W": {}}, "slots": 20,
  "parameters": [{"name": "conv.weight", "slot": 1, "shape": [3, 2, 3, 3, 3]},
                 {"name": "conv.bias", "slot": 2, "shape": [3]},
                 {"name": "encoder.weight", "slot": null, "shape": [5]}],
  "constants": [],
  "outputs": [{"name": "pixels", "slot": 6}, {"name": "last", "slot": 7},
              {"name": "sum", "slot": 6}],
  "blocks": [],
  "nodes": [
    {"op": "aten::pad", "args": {"self": {"v": 0}, "pad": [0, 0, 0, 0, 2, 0]}, "out": 3},
    {"op": "aten::conv3d", "args": {"input": {"v": 3}, "weight": {"v": 1}, "bias": {"v": 2},
      "padding": [0, 1, 1]}, "out": 4},
    {"op": "aten::repeat_interleave", "overload": "self_int", "args": {"self": {"v": 4},
      "repeats": 2, "dim": 3}, "out": 5},
    {"op": "aten::repeat_interleave", "overload": "self_int", "args": {"self": {"v": 5},
      "repeats": 2, "dim": 4}, "out": 6},
    {"op": "aten::slice", "overload": "Tensor", "args": {"self": {"v": 3}, "dim": 2, "start": 1},
      "out": 8},
    {"op": "aten::clone", "args": {"self": {"v": 8}}, "out": 7}],
  "next": {
    "inputs": [{"name": "latents", "slot": 9, "shape": ["B", 2, 1, "H", "W"], "dtype": "float32"},
               {"name": "last", "slot": 10, "shape": ["B", 2, 2, "H", "W"], "dtype": "float32"},
               {"name": "sum", "slot": 11, "shape": ["B", 3, 1, "2H", "2W"], "dtype": "float32"}],
    "outputs": [{"name": "pixels", "slot": 16}, {"name": "last", "slot": 18},
                {"name": "sum", "slot": 16}],
    "blocks": [],
    "nodes": [
      {"op": "aten::cat", "args": {"tensors": [{"v": 10}, {"v": 9}], "dim": 2}, "out": 12},
      {"op": "aten::conv3d", "args": {"input": {"v": 12}, "weight": {"v": 1}, "bias": {"v": 2},
        "padding": [0, 1, 1]}, "out": 13},
      {"op": "aten::repeat_interleave", "overload": "self_int", "args": {"self": {"v": 13},
        "repeats": 2, "dim": 3}, "out": 14},
      {"op": "aten::repeat_interleave", "overload": "self_int", "args": {"self": {"v": 14},
        "repeats": 2, "dim": 4}, "out": 15},
      {"op": "aten::add", "overload": "Tensor", "args": {"self": {"v": 15}, "other": {"v": 11}},
        "out": 16},
      {"op": "aten::slice", "overload": "Tensor", "args": {"self": {"v": 12}, "dim": 2,
        "start": 1}, "out": 17},
      {"op": "aten::clone", "args": {"self": {"v": 17}}, "out": 18}]}})";

constexpr char kConfig[] = R"({"_class_name": "AutoencoderCausal", "width": 3})";

NamedTensors DrawnWeights() {
  at::manual_seed(7);
  return {{"conv.weight", at::randn({3, 2, 3, 3, 3})}, {"conv.bias", at::randn({3})}};
}

// The whole clip by plain operators.
at::Tensor ByPlainOperators(const at::Tensor& latents, const NamedTensors& weights) {
  const at::Tensor padded = at::constant_pad_nd(latents, {0, 0, 0, 0, 2, 0});
  const at::Tensor frames = at::conv3d(padded, weights.at("conv.weight"), weights.at("conv.bias"),
                                       /*stride=*/1, at::IntArrayRef{0, 1, 1});
  return frames.repeat_interleave(2, 3).repeat_interleave(2, 4).cumsum(2);
}

std::shared_ptr<const DecoderArchitecture> Causal() {
  auto decoder = ReadDecoder(kConfig, kCausal);
  EXPECT_TRUE(decoder.ok()) << decoder.status();
  return *decoder;
}

// Promise: A video autoencoder computes what diffusers' does.
TEST(FrameDecoderTest, AClipIsWhatPlainOperatorsMakeOfItAtOnce) {
  const NamedTensors weights = DrawnWeights();
  const auto decoder = Causal()->Make(weights);
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  for (const int64_t frames : {1, 2, 3, 4, 7}) {
    const at::Tensor latents = at::randn({2, 2, frames, 3, 4});
    const at::Tensor expected = ByPlainOperators(latents, weights);
    const at::Tensor pixels = dynamic_cast<const ExportedDecoder&>(**decoder).Pixels(latents);
    ASSERT_EQ(pixels.sizes(), expected.sizes());
    EXPECT_LE((pixels - expected).abs().max().item<double>(), 2e-5) << frames;
    EXPECT_TRUE(at::equal((*decoder)->Decode(latents), ToBytes(pixels)));
  }
}

TEST(FrameDecoderTest, FactsAreThoseOfItsGraphs) {
  const auto causal = Causal();
  EXPECT_EQ(causal->latent_channels(), 2);
  EXPECT_EQ(causal->factors().space, 2);
  EXPECT_TRUE(causal->shapes().contains("encoder.weight"));
  EXPECT_FALSE(causal->InDecoder("encoder.weight"));
  EXPECT_TRUE(causal->InDecoder("conv.bias"));
  const auto bytes = [&](int64_t frames) {
    return causal->DecodingBytes({2, frames, 8, 6}, 1, false);
  };
  const uint64_t of_frame = uint64_t{3} * 16 * 12;  // In bytes of pixels that are done.
  EXPECT_EQ(bytes(60) - bytes(3), 57 * of_frame) << "nothing but pixels grows";
  // The states: two latent frames, and pixels in float32.
  EXPECT_GE(bytes(2), 4 * (2 * 2 * 8 * 6 + 2 * of_frame) + 2 * of_frame);
  EXPECT_LT(bytes(1), bytes(2));
}

TEST(FrameDecoderTest, MemoryDoesNotGrowWithTheLength) {
  CountingAllocator::Install();
  const c10::InferenceMode no_gradients;
  const auto decoder = *Causal()->Make(DrawnWeights());
  CountingAllocator& memory = CountingAllocator::Get();
  const auto beside_the_video = [&](int64_t length) {
    const at::Tensor z = at::zeros({2, 2, length, 8, 6});
    memory.Reset();
    const int64_t before = memory.alive();
    const at::Tensor video = decoder->Decode(z);
    return memory.most() - before - video.numel();
  };
  const int64_t few = beside_the_video(3), many = beside_the_video(60);
  EXPECT_GT(few, int64_t{4} * 3 * 16 * 12);
  EXPECT_LE(many, few + 1024);
}

struct BadStates {
  const char* pointer;
  const char* value;  // Null: the element is taken out.
  const char* complaint;
};

class BadStatesTest : public ::testing::TestWithParam<BadStates> {};

TEST_P(BadStatesTest, AreRefusedByName) {
  Json graph = Json::parse(kCausal);
  const Json::json_pointer at(GetParam().pointer);
  if (GetParam().value != nullptr) {
    graph[at] = Json::parse(GetParam().value);
  } else if (Json& parent = graph[at.parent_pointer()]; parent.is_array()) {
    parent.erase(std::stoul(at.back()));
  } else {
    parent.erase(at.back());
  }
  const absl::Status status = ReadDecoder(kConfig, graph.dump()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().complaint));
}

INSTANTIATE_TEST_SUITE_P(
    FrameDecoder, BadStatesTest,
    ::testing::Values(
        BadStates{"/version", "1", "version: only version 1, and 2 of a graph with `next`"},
        BadStates{"/next", nullptr, "version: only version 1, and 2 of a graph with `next`"},
        BadStates{"/decoder", nullptr, "next: not an autoencoder's graph"},
        BadStates{"/outputs/2", nullptr,
                  "next: the graph of the first frame does not give the state sum"},
        BadStates{"/next/outputs/1", nullptr, "next: no input takes the state sum of later"},
        BadStates{"/next/outputs/2", nullptr,
                  "next: the graph of later frames does not give the state sum"},
        BadStates{"/next/inputs/2", nullptr, "next: no input takes the state sum of the first"},
        BadStates{"/next/inputs/1/name", R"("lost")", "no input takes the state last"},
        BadStates{"/next/inputs/0/name", R"("z")", "its first input is not that of the first"},
        BadStates{"/next/inputs/0/shape/1", "3", "its first input is not that of the first"},
        BadStates{"/next/inputs/1/dtype", R"("int64")", "next: not float32: last"},
        BadStates{"/next/inputs/2/shape", R"(["B", 3, 1, "3H", "2W"])",
                  "decoder: values of state sum are [1, 3, 1, 4, 6] instead of [1, 3, 1, 6, 6]"},
        BadStates{"/next/inputs/2/shape", R"(["B", 3, 1, 1, 1])",
                  "decoder: values of state sum are [1, 3, 1, 4, 6] instead of [1, 3, 1, 1, 1]"},
        BadStates{"/next/inputs/2/shape", R"(["B", 3, 1, "0H", "2W"])", "no size: 0H"},
        BadStates{"/next/inputs/2/shape", R"(["B", 3, 1, "2Q", "2W"])", "no such symbol: Q"},
        BadStates{"/next/nodes/0/args/tensors/0/v", "3",
                  "next: nodes[0].args.tensors reads a slot"},
        BadStates{"/inputs/0/shape/2", R"("2")", "no such symbol"},
        BadStates{"/inputs/0/shape/2", "2", "its first input is not that of the first frame"},
        BadStates{"/decoder/time", "4", "decoder: pixels are [1, 3, 1, 4, 6] instead of [1, 3, 4"},
        BadStates{"/next/symbols", "{}", "next"}));

TEST(DecoderClassTest, TheConfigNamesIt) {
  EXPECT_EQ(*DecoderClassOf("{}"), "AutoencoderKL");
  EXPECT_THAT(std::string(ReadDecoder(R"({"_class_name": 3})").status().message()),
              HasSubstr("_class_name is no name: 3"));
}

}  // namespace
}  // namespace oxbow::model::exported
