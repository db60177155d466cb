// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/initial_weights.h"

#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace oxbow::model {
namespace {

at::Tensor Uniform(at::IntArrayRef shape, double bound, RandomStream& random) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  float* values = tensor.mutable_data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    values[i] = static_cast<float>(bound * (2 * random.NextUniform() - 1));
  }
  return tensor;
}

at::Tensor Normal(at::IntArrayRef shape, double std, RandomStream& random) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  float* values = tensor.mutable_data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    values[i] = static_cast<float>(std * random.NextNormal());
  }
  return tensor;
}

// Fan-in of the layer a weight or bias belongs to.
int64_t FanIn(const Shapes& shapes, const std::string& name) {
  const std::string module = name.substr(0, name.rfind('.'));
  const auto& weight = shapes.at(module + ".weight");
  int64_t fan_in = 1;
  for (size_t i = 1; i < weight.size(); ++i) fan_in *= weight[i];
  return fan_in;
}

at::Tensor LikePyTorch(const Shapes& shapes, const std::string& name, RandomStream& random) {
  const double bound = 1 / std::sqrt(static_cast<double>(FanIn(shapes, name)));
  return Uniform(shapes.at(name), bound, random);
}

// A tensor's name taken apart: "transformer_blocks.0.norm1.linear.weight" is the weight of "linear"
// in "norm1".
struct TensorName {
  explicit TensorName(const std::string& name) {
    const std::vector<std::string> parts = absl::StrSplit(name, '.');
    const size_t count = parts.size();
    tensor = parts[count - 1];
    if (count >= 2) module = parts[count - 2];
    if (count >= 3) parent = parts[count - 3];
  }
  bool of_module() const { return tensor == "weight" || tensor == "bias"; }
  bool starts_at_zero() const {
    return (module == "linear" && absl::StrContains(parent, "norm")) ||
           (module == "proj_out" && parent.empty());
  }
  std::string tensor, module, parent;
};

// diffusers get_2d_sincos_pos_embed: the first half of the channels codes the column, the second
// the row, each as sines then cosines.
at::Tensor PositionTable(const LatentGeometry& latent, const std::vector<int64_t>& shape) {
  const int64_t side = latent.side_max / latent.patch.height, quarter = shape.back() / 4;
  const double cells = static_cast<double>(latent.side / latent.patch.height);
  at::Tensor table = at::empty(shape, at::kFloat);
  float* out = table.mutable_data_ptr<float>();
  for (int64_t row = 0; row < side; ++row) {
    for (int64_t column = 0; column < side; ++column) {
      for (const int64_t position : {column, row}) {
        const double at_cell = static_cast<double>(position) / (static_cast<double>(side) / cells);
        for (int64_t i = 0; i < quarter; ++i) {
          const double angle =
              at_cell / std::pow(10000.0, static_cast<double>(i) / static_cast<double>(quarter));
          out[i] = static_cast<float>(std::sin(angle));
          out[quarter + i] = static_cast<float>(std::cos(angle));
        }
        out += 2 * quarter;
      }
    }
  }
  return table;
}

}  // namespace

NamedTensors InitialWeights(const Architecture& architecture, RandomStream& random) {
  Shapes shapes = architecture.shapes();
  const auto positions = shapes.extract(kPositionTable).mapped();
  NamedTensors tensors;
  for (const auto& [name, shape] : shapes) {
    const TensorName parts(name);
    if (!parts.of_module()) {
      const double width = shape.empty() ? 1 : static_cast<double>(shape.back());
      tensors[name] = Normal(shape, 1 / std::sqrt(width), random);
    } else if (parts.starts_at_zero()) {
      tensors[name] = at::zeros(shape, at::kFloat);
    } else if (absl::StrContains(parts.module, "norm") && shape.size() == 1) {
      const bool weight = parts.tensor == "weight";
      tensors[name] = weight ? at::ones(shape, at::kFloat) : at::zeros(shape, at::kFloat);
    } else {
      tensors[name] = LikePyTorch(shapes, name, random);
    }
  }
  tensors[kPositionTable] = PositionTable(architecture.latent(), positions);
  return tensors;
}

}  // namespace oxbow::model
