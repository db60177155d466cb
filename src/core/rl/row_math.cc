#include "core/rl/row_math.h"

#include <ATen/ATen.h>

#include <vector>

namespace oxbow::rl {

at::Tensor ElementMean(const at::Tensor& rows) { return rows.to(at::kDouble).flatten(1).mean(1); }

at::Tensor OverRows(const at::Tensor& column, const at::Tensor& like) {
  std::vector<int64_t> shape(static_cast<size_t>(like.dim()), 1);
  shape[0] = -1;
  return column.to(like.device(), at::kDouble).view(shape);
}

at::Tensor CleanPrediction(const at::Tensor& x_t, const at::Tensor& t, const at::Tensor& v) {
  return x_t.to(at::kDouble) - OverRows(t, x_t) * v.to(at::kDouble);
}

}  // namespace oxbow::rl
