// SPDX-License-Identifier: Apache-2.0
// On a CPU the passes of fused/modulation.h take the place of a graph's nodes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/model/exported_graph/exported_transformer.h"
#include "tests/testing/graph_architecture.h"

namespace oxbow::model::exported {
namespace {

TEST(CpuFusionsTest, NormsAndGatesOfASmallTransformerAreOnePassEach) {
  const ArchitectureSource source = testing::GraphSource(testing::kDigitsGraph);
  const auto program = *Compile(*ParseGraph(source.graph_json));
  at::manual_seed(1);
  NamedTensors weights;
  for (const auto& [name, shape] : ShapesOf(program->graph)) {
    weights[name] = (at::randn(shape) * 0.1).requires_grad_(true);
  }
  const auto network = *MakeExportedTransformer(program, weights, nullptr, {});
  const Conditioning prompts{{kPromptTokens, at::randn({8, 6, 64})},
                             {kPooledPrompt, at::randn({8, 64})}};
  const at::Tensor v = network->Velocity(at::randn({8, 1, 8, 20}), at::rand({8}), prompts);
  v.square().sum().backward();
  EXPECT_GT(weights.at("transformer_blocks.0.norm1.linear.weight").grad().abs().max().item<float>(),
            0);
  // In three blocks: two norms and two gates of each stream, but none of the last prompt's, whose
  // norm is written otherwise.
  EXPECT_GE(program->verdicts->CountForTest(true), 3u * 8 - 4);
  EXPECT_EQ(program->verdicts->CountForTest(false), 0u);
}

}  // namespace
}  // namespace oxbow::model::exported
