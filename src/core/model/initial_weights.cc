#include "core/model/initial_weights.h"

#include <ATen/ATen.h>

#include <cmath>

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

bool StartsAtZero(const std::string& name) {
  return name.find(".norm1.linear.") != std::string::npos ||
         name.find(".norm1_context.linear.") != std::string::npos ||
         name.starts_with("norm_out.linear.") || name.starts_with("proj_out.");
}

// diffusers get_2d_sincos_pos_embed: the first half of the channels codes the column, the second
// the row, each as sines then cosines.
at::Tensor PositionTable(const Sd3Params& params) {
  const int64_t side = params.pos_embed_max_size, quarter = params.width() / 4;
  const double cells = static_cast<double>(params.sample_size / params.patch_size);
  at::Tensor table = at::empty({1, side * side, params.width()}, at::kFloat);
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

NamedTensors InitialSd3Weights(const Sd3Params& params, RandomStream& random) {
  const Shapes shapes = Sd3Shapes(params);
  NamedTensors tensors;
  for (const auto& [name, shape] : shapes) {
    if (name == kSd3PositionTable) {
      tensors[name] = PositionTable(params);
    } else if (StartsAtZero(name)) {
      tensors[name] = at::zeros(shape, at::kFloat);
    } else if (name.find(".norm_") != std::string::npos) {
      tensors[name] = at::ones(shape, at::kFloat);  // RMS norm of queries and keys.
    } else {
      tensors[name] =
          Uniform(shape, 1 / std::sqrt(static_cast<double>(FanIn(shapes, name))), random);
    }
  }
  return tensors;
}

NamedTensors InitialClipTextWeights(const ClipTextParams& params, double embedding_std,
                                    RandomStream& random) {
  const Shapes shapes = ClipTextShapes(params);
  NamedTensors tensors;
  for (const auto& [name, shape] : shapes) {
    if (name.find(".embeddings.") != std::string::npos) {
      tensors[name] = Normal(shape, embedding_std, random);
    } else if (name.find("layer_norm") != std::string::npos) {
      tensors[name] =
          name.ends_with(".weight") ? at::ones(shape, at::kFloat) : at::zeros(shape, at::kFloat);
    } else {
      tensors[name] =
          Uniform(shape, 1 / std::sqrt(static_cast<double>(FanIn(shapes, name))), random);
    }
  }
  return tensors;
}

}  // namespace oxbow::model
