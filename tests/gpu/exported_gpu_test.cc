// SPDX-License-Identifier: Apache-2.0
// Exported networks on a GPU are those of the CPU: velocities, and gradients of adapters. Their
// fused kernels compute what the graph's nodes do, and a chain that is another one is noticed.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "core/model/exported_graph/exported_transformer.h"
#include "core/model/exported_graph/fused_call.h"
#include "core/model/exported_graph/fusions.h"
#include "core/model/exported_graph/graph.h"
#include "core/model/exported_graph/interpreter.h"
#include "core/model/fused/fused_layers.h"
#include "core/model/fused/head_layers.h"
#include "core/model/side_by_side.h"
#include "tests/golden/exported_golden.h"
#include "tests/gpu/gpu_test.h"

namespace oxbow::model {
namespace {

using exported::FusionKind;

class ExportedGpuTest : public ExportedGolden {
 protected:
  void SetUp() override {
    if (GpuCount() == 0) GTEST_SKIP() << "no GPU on this machine";
    at::globalContext().setAllowTF32CuBLAS(false);
    at::globalContext().setAllowTF32CuDNN(false);
  }

  // The weights there, as a policy keeps those of a GPU.
  NamedTensors Placed(at::Device device) const {
    NamedTensors placed = model::On(device, weights_);
    if (device.is_cpu()) return placed;
    for (const auto& [name, place] :
         PlacedSideBySide(architecture_->side_by_side(), architecture_->shapes(),
                          at::TensorOptions(device).dtype(at::kFloat))) {
      placed.at(name) = at::Tensor(place).copy_(weights_.at(name));
    }
    return placed;
  }

  struct Result {
    at::Tensor v;
    at::Tensor gradient;  // All of an adapter's matrices.
  };

  Result On(at::Device device, at::ScalarType compute, bool recompute) const {
    const ExportedCase& golden = cases_.at(0);
    ParameterSet matrices(adapter_, /*trainable=*/true, device);
    const LoraAdapter adapter{.tensors = matrices.tensors(), .scale = scale_};
    const auto network = architecture_->Make(
        Placed(device), &adapter, {.compute = compute, .checkpoint_activations = recompute});
    EXPECT_TRUE(network.ok()) << network.status();
    matrices.ZeroGrad();
    const at::Tensor v = Velocity(**network, golden);
    (v * golden.direction).sum().backward();
    return {v.detach(), matrices.flat_grad().cpu()};
  }

  // A graph's inputs of the first case, on the GPU.
  std::vector<at::Tensor> InputsOf(const exported::Graph& graph) const {
    const ExportedCase& golden = cases_.at(0);
    std::vector<at::Tensor> inputs;
    for (const exported::GraphInput& input : graph.inputs) {
      const auto part = golden.conditioning.find(input.name);
      const at::Tensor value = input.name == "x"                   ? golden.x
                               : input.name == "sigma"             ? golden.sigma
                               : part != golden.conditioning.end() ? part->second
                                                                   : at::ones({golden.x.size(0)});
      inputs.push_back(value.to(gpu_));
    }
    return inputs;
  }

  const at::Device gpu_ = at::Device(at::kCUDA, 0);
};

TEST_P(ExportedGpuTest, VelocitiesAndGradientsOfAdaptersAreThoseOfTheCpu) {
  for (const bool recompute : {false, true}) {
    const Result wanted = On(at::kCPU, at::kFloat, recompute);
    const Result ours = On(gpu_, at::kFloat, recompute);
    ExpectNear("v", ours.v, wanted.v, kExactTolerance);
    ExpectNear("gradient", ours.gradient, wanted.gradient, 2 * kExactTolerance);
    ExpectNear("v", On(gpu_, at::kBFloat16, recompute).v, wanted.v, kShortTolerance);
  }
}

// Gradients in bfloat16 have no bound of their own here: a norm over as few as 4 values makes much
// of a rounding, and plain operators lose 1 to 130 % of a gradient.
TEST_P(ExportedGpuTest, RoundsNoMoreThanPlainOperatorsOfTheCpu) {
  constexpr int kSamples = 8;
  // Other places of roundings change one sample's error up to twofold, and the geometric mean of
  // eight by a third.
  constexpr double kFactor = 1.5;
  double v = 0, gradient = 0;
  ExportedCase& golden = cases_.at(0);
  for (int i = 0; i < kSamples; ++i) {
    at::manual_seed(i);
    golden.x = at::randn_like(golden.x);
    golden.direction = at::randn_like(golden.direction);
    const bool recompute = i % 2 == 1;
    const Result exact = On(at::kCPU, at::kFloat, recompute);
    const Result plain = On(at::kCPU, at::kBFloat16, recompute);
    const Result ours = On(gpu_, at::kBFloat16, recompute);
    const auto times = [](const at::Tensor& a, const at::Tensor& b, const at::Tensor& wanted) {
      return std::log(RelativeDistance(a, wanted) / RelativeDistance(b, wanted)) / kSamples;
    };
    v += times(ours.v, plain.v, exact.v);
    gradient += times(ours.gradient, plain.gradient, exact.gradient);
  }
  EXPECT_LE(std::exp(v), kFactor);
  EXPECT_LE(std::exp(gradient), kFactor);
}

TEST_P(ExportedGpuTest, FusedKernelsComputeWhatTheNodesDo) {
  if (!fused::HasKernels()) GTEST_SKIP() << "no nvcc in this build";
  const at::NoGradGuard no_grad;
  const auto graph = exported::ParseGraph(source_.graph_json);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const NamedTensors weights = Placed(gpu_);
  const auto linears = exported::PlainLinears(*graph, weights);
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
    const auto program = *exported::Compile(*graph);
    const exported::Interpreter network(program, weights, linears, gpu_, {.compute = compute});
    const std::vector<at::Tensor> inputs = InputsOf(*graph);
    const at::Tensor v = network.Run(inputs)[0], again = network.Run(inputs)[0];
    EXPECT_TRUE(v.equal(again)) << "the first pass, which compares, has the bits of the others";
    EXPECT_EQ(program->verdicts->CountForTest(false), 0u);
    EXPECT_GE(program->verdicts->CountForTest(true), program->together.size());
    EXPECT_LE(program->verdicts->CountForTest(true),
              program->fusions.size() + program->together.size());
    RecordProperty("judged", static_cast<int>(program->verdicts->CountForTest(true)));
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, ExportedGpuTest, ::testing::ValuesIn(ExportedNames()),
                         [](const auto& info) { return info.param; });

// A norm over two sizes that looks like one over the last.
TEST(WrongFusionGpuTest, RunsItsNodesInstead) {
  if (GpuCount() == 0 || !fused::HasKernels()) GTEST_SKIP() << "no GPU, or no kernels";
  using exported::SlotRef;
  using exported::Value;
  exported::Graph graph;
  graph.nodes = {{.op = "aten::layer_norm",
                  .arguments = {{"input", {SlotRef{0}}},
                                {"normalized_shape", {Value::List{{int64_t{3}}, {int64_t{8}}}}},
                                {"eps", {1e-6}}},
                  .outputs = {2}},
                 {.op = "aten::add",
                  .overload = "Tensor",
                  .arguments = {{"self", {SlotRef{1}}}, {"other", {int64_t{1}}}},
                  .outputs = {3}},
                 {.op = "aten::mul",
                  .overload = "Tensor",
                  .arguments = {{"self", {SlotRef{2}}}, {"other", {SlotRef{3}}}},
                  .outputs = {4}}};
  graph.inputs = {{.name = "x", .slot = 0}, {.name = "scale", .slot = 1}};
  graph.outputs = {{.name = "v", .slot = 4}};
  graph.slots = 5;
  const at::Device gpu(at::kCUDA, 0);
  at::manual_seed(1);
  const at::Tensor x = at::randn({2, 3, 8}), scale = at::randn({2, 1, 8});
  const auto run = [&](at::IntArrayRef shape) {
    std::get<Value::List>(graph.nodes[0].arguments[1].second.is).clear();
    for (const int64_t size : shape) {
      std::get<Value::List>(graph.nodes[0].arguments[1].second.is).push_back({size});
    }
    const auto program = *exported::Compile(graph);
    EXPECT_EQ(program->fusions.size(), 1u);
    const exported::Interpreter network(program, {}, {}, gpu, {});
    for (int i = 0; i < 2; ++i) {
      const at::Tensor v = network.Run({x.to(gpu), scale.to(gpu)})[0];
      ExpectNear("v", v, at::layer_norm(x, shape, {}, {}, 1e-6) * (scale + 1), 1e-6);
    }
    return program->verdicts->CountForTest(true);
  };
  EXPECT_EQ(run({3, 8}), 0u);
  EXPECT_EQ(run({8}), 1u);
}

// A product of weights side by side that is not what its layers give.
TEST(WrongLinearsGpuTest, RunAlone) {
  if (GpuCount() == 0) GTEST_SKIP() << "no GPU";
  using exported::SlotRef;
  exported::Graph graph;
  graph.parameters = {{.name = "q.weight", .slot = 1, .shape = {3, 8}, .linear = true},
                      {.name = "k.weight", .slot = 2, .shape = {5, 8}, .linear = true}};
  for (const exported::Slot weight : {1, 2}) {
    graph.nodes.push_back({.op = "aten::linear",
                           .arguments = {{"input", {SlotRef{0}}}, {"weight", {SlotRef{weight}}}},
                           .outputs = {weight + 2}});
  }
  graph.inputs = {{.name = "x", .slot = 0}};
  graph.outputs = {{.name = "q", .slot = 3}, {.name = "k", .slot = 4}};
  graph.slots = 5;
  const at::Device gpu(at::kCUDA, 0);
  at::manual_seed(1);
  const at::Tensor x = at::randn({2, 8});
  for (const bool whole : {true, false}) {
    const auto program = *exported::Compile(graph);
    ASSERT_EQ(program->together.size(), 1u);
    NamedTensors weights =
        PlacedSideBySide({{"q.weight", "k.weight"}}, {{"q.weight", {3, 8}}, {"k.weight", {5, 8}}},
                         at::TensorOptions(gpu));
    weights.at("q.weight").copy_(at::randn({3, 8}));
    weights.at("k.weight").fill_(whole ? 1 : std::nan(""));
    const exported::Interpreter network(program, weights, exported::PlainLinears(graph, weights),
                                        gpu, {});
    for (int i = 0; i < 2; ++i) {
      const auto results = network.Run({x.to(gpu)});
      ExpectNear("q", results[0], at::linear(x, weights.at("q.weight").cpu()), 1e-6);
      EXPECT_EQ(results[0].is_alias_of(results[1]), whole);
    }
    EXPECT_EQ(program->verdicts->CountForTest(whole), 1u);
    EXPECT_EQ(program->verdicts->CountForTest(!whole), 0u);
  }
}

struct PartOfHeads {
  std::vector<int64_t> sizes, angles;  // No angles: by the table of the first part, or not turned.
  std::vector<int64_t> split;          // Then the norm is of whole tokens.
};
struct FormOfHeads {
  std::vector<PartOfHeads> parts;
  bool real = false, joint = false;
};

// A fusion of such parts, its values, and what it is to make of them.
class HeadsCase {
 public:
  HeadsCase(const FormOfHeads& form, at::Device gpu) : gpu_(gpu) {
    fusion_.kind = FusionKind::kHeads;
    fusion_.x = 0;
    exported::HeadSlots slots{.norm = true, .eps = 1e-6, .joint = form.joint};
    at::Tensor table;
    int64_t from = 0;
    std::vector<at::Tensor> made;
    for (const PartOfHeads& part : form.parts) {
      sources_.push_back(at::randn(part.sizes).to(gpu_).requires_grad_());
      const at::Tensor weight = at::randn({part.sizes.back()});
      slots.x = Keep(sources_.back());
      slots.weight = Keep(weight);
      slots.split = part.split;
      slots.whole = !part.split.empty();
      if (!part.angles.empty()) {
        table = at::randn(part.angles);
        const auto wide = [](const at::Tensor& of) { return of.repeat_interleave(2, -1); };
        slots.cos = Keep(form.real ? wide(at::cos(table)) : at::polar(at::ones_like(table), table));
        if (form.real) slots.sin = Keep(wide(at::sin(table)));
      } else if (!form.joint) {
        slots.cos = slots.sin = exported::kNoSlot;
      }
      fusion_.parts.push_back(slots);
      at::Tensor heads = Normal(sources_.back(), weight);
      if (slots.whole) heads = heads.unflatten(2, part.split);
      const at::Tensor of = form.joint ? table.narrow(1, from, part.sizes[1]) : table;
      made.push_back(slots.cos == exported::kNoSlot ? heads : Turned(heads, of));
      from += part.sizes[1];
    }
    wanted_ = at::cat(made, 1);
  }

  void Check() const {
    const auto ours = exported::RunFused(fusion_, [&](exported::Slot slot) {
      return slot == exported::kNoSlot ? at::Tensor() : values_[exported::Index(slot)];
    });
    ASSERT_EQ(ours.size(), 1u);
    ExpectNear("heads", ours[0], wanted_, 2e-6);
    const at::Tensor dy = at::randn(wanted_.sizes());
    const auto dx = torch::autograd::grad({ours[0]}, sources_, {dy.to(gpu_)});
    const auto exact = torch::autograd::grad({wanted_}, sources_, {dy.to(at::kDouble)});
    for (size_t i = 0; i < dx.size(); ++i) ExpectNear("dx", dx[i], exact[i], 2e-6);
  }

 private:
  static at::Tensor Normal(const at::Tensor& x, const at::Tensor& weight) {
    const at::Tensor exact = x.cpu().to(at::kDouble);
    return exact * at::rsqrt(exact.square().mean(-1, true) + 1e-6) * weight.to(at::kDouble);
  }
  static at::Tensor Turned(const at::Tensor& heads, const at::Tensor& angles) {
    const at::Tensor exact = angles.to(at::kDouble);
    const at::Tensor turn = at::polar(at::ones_like(exact), exact);
    return at::view_as_real(at::view_as_complex(heads.unflatten(-1, {-1, 2})) * turn).flatten(-2);
  }
  exported::Slot Keep(const at::Tensor& value) {
    values_.push_back(value.to(gpu_));
    return static_cast<exported::Slot>(values_.size() - 1);
  }

  const at::Device gpu_;
  exported::Fusion fusion_;
  std::vector<at::Tensor> values_, sources_;
  at::Tensor wanted_;  // In float64, on the CPU.
};

// Parts as networks have them: tables for all samples or for each one, of one part or of all, and
// parts that nothing turns.
TEST(FusedHeadsGpuTest, AnglesOfEveryShapeTurnTheirParts) {
  if (GpuCount() == 0 || !fused::HasKernels()) GTEST_SKIP() << "no GPU, or no kernels";
  const std::vector<FormOfHeads> forms = {
      {.parts = {{{2, 24, 32}, {1, 24, 1, 8}, {2, -1}}}},
      {.parts = {{{2, 7, 2, 16}, {7, 1, 8}, {}}, {{2, 24, 2, 16}, {24, 1, 8}, {}}}},
      {.parts = {{{2, 32, 2, 16}, {2, 32, 1, 8}, {}}}},
      {.parts = {{{2, 24, 2, 16}, {1, 24, 1, 8}, {}}, {{2, 7, 2, 16}, {}, {}}}, .real = true},
      {.parts = {{{2, 7, 2, 16}, {1, 31, 1, 8}, {}}, {{2, 24, 2, 16}, {}, {}}},
       .real = true,
       .joint = true}};
  at::manual_seed(7);
  for (size_t i = 0; i < forms.size(); ++i) {
    SCOPED_TRACE(i);
    HeadsCase(forms[i], at::Device(at::kCUDA, 0)).Check();
  }
}

// Any rows, widths and layouts, against float64.
TEST(JoinHeadsGpuTest, IsTheFormula) {
  if (GpuCount() == 0 || !fused::HasKernels()) GTEST_SKIP() << "no GPU, or no kernels";
  at::manual_seed(4);
  const at::Device gpu(at::kCUDA, 0);
  const auto random = [&](at::IntArrayRef shape, at::ScalarType type) {
    return at::randn(shape).to(gpu, type);
  };
  const auto turned = [](const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
    const at::Tensor pairs = x.unflatten(-1, {-1, 2});
    const at::Tensor a = pairs.select(-1, 0), b = pairs.select(-1, 1);
    return x * cos + at::stack({-b, a}, -1).flatten(-2) * sin;
  };
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const double tolerance = type == at::kFloat ? 2e-6 : 6e-3;
    for (const int64_t d : {8, 64, 128, 256}) {
      for (const bool whole : {false, true}) {
        for (const bool complex : {false, true}) {
          constexpr int64_t kHeads = 3;
          // Heads of one product's columns, and of a product of their own.
          const at::Tensor wide = random({2, 5, 2 * kHeads * d}, type).requires_grad_();
          const at::Tensor own = random({2, 7, kHeads * d}, type).requires_grad_();
          const at::Tensor weight = random({whole ? kHeads * d : d}, at::kFloat);
          const at::Tensor angle = random({1, 12, 1, d / 2}, at::kFloat);
          const at::Tensor cos = at::cos(angle).repeat_interleave(2, -1);
          const at::Tensor sin = at::sin(angle).repeat_interleave(2, -1);
          const at::Tensor both = at::polar(at::ones_like(angle), angle);
          std::vector<fused::HeadPart> parts;
          at::Tensor wanted;
          int64_t from = 0;
          for (const at::Tensor& source : {wide.narrow(2, kHeads * d, kHeads * d), own}) {
            const int64_t tokens = source.size(1);
            parts.push_back({.x = source.unflatten(2, {kHeads, d}),
                             .norm = true,
                             .whole = whole,
                             .eps = 1e-6,
                             .weight = weight,
                             .cos = (complex ? both : cos).narrow(1, from, tokens),
                             .sin = complex ? at::Tensor() : sin.narrow(1, from, tokens)});
            const at::Tensor exact = (whole ? source : parts.back().x).to(at::kDouble);
            const at::Tensor normal =
                exact * at::rsqrt(exact.square().mean(-1, true) + 1e-6) * weight.to(at::kDouble);
            const at::Tensor made = turned(whole ? normal.unflatten(2, {kHeads, d}) : normal,
                                           cos.narrow(1, from, tokens).to(at::kDouble),
                                           sin.narrow(1, from, tokens).to(at::kDouble));
            wanted = wanted.defined() ? at::cat({wanted, made}, 1) : made;
            from += tokens;
          }
          const auto y = fused::JoinHeads(parts, type);
          ASSERT_TRUE(y.has_value()) << d << whole << complex;
          ExpectNear("y", y->to(at::kDouble), wanted, tolerance);
          const at::Tensor dy = random(wanted.sizes(), type);
          const auto gradients = [&](const at::Tensor& of) {
            return torch::autograd::grad({of}, {wide, own}, {dy.to(of.scalar_type())});
          };
          const auto ours = gradients(*y), theirs = gradients(wanted);
          for (size_t i = 0; i < 2; ++i) {
            ExpectNear("dx", ours[i].to(at::kDouble), theirs[i].to(at::kDouble), tolerance);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace oxbow::model
