#include "core/model/velocity_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace oxbow::model {

at::Tensor VelocityModel::Velocity(const at::Tensor& x, const at::Tensor& sigma,
                                   const Conditioning& conditioning) const {
  (at::GradMode::is_enabled() ? backward_ : forward_) += x.size(0) * passes();
  return Predict(x, sigma, conditioning);
}

}  // namespace oxbow::model
