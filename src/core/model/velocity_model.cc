#include "core/model/velocity_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "base/check.h"
#include "core/model/layers.h"

namespace oxbow::model {
namespace {

class Guided final : public VelocityModel {
 public:
  Guided(std::unique_ptr<VelocityModel> model, double scale, Conditioning negative)
      : model_(std::move(model)), scale_(scale), negative_(std::move(negative)) {}

 private:
  int64_t passes() const override { return 2; }

  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const Conditioning& conditioning) const override {
    CheckSizes(conditioning);
    const int64_t rows = x.size(0);
    const at::Tensor v = model_->Velocity(
        at::cat({x, x}), at::cat({sigma, sigma}),
        ConcatRows({BroadcastRows(negative_, rows), BroadcastRows(conditioning, rows)}));
    const at::Tensor negative = v.narrow(0, 0, rows);
    return negative + (v.narrow(0, rows, rows) - negative) * scale_;
  }

  // Every part of one row is as large as the negative prompt's.
  void CheckSizes(const Conditioning& conditioning) const {
    for (const auto& [name, tensor] : conditioning) {
      const auto found = negative_.find(name);
      OXBOW_CHECK(found != negative_.end() && found->second.dim() == tensor.dim())
          << "the negative prompt has no such part as a prompt: " << name;
      for (int64_t i = 1; i < tensor.dim(); ++i) {
        OXBOW_CHECK(tensor.size(i) == found->second.size(i))
            << name << " of a prompt and of the negative prompt: " << tensor.size(i)
            << " != " << found->second.size(i);
      }
    }
  }

  const std::unique_ptr<VelocityModel> model_;
  const double scale_;
  const Conditioning negative_;
};

class WholeTimesteps final : public VelocityModel {
 public:
  explicit WholeTimesteps(std::unique_ptr<VelocityModel> model) : model_(std::move(model)) {}

 private:
  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const Conditioning& conditioning) const override {
    constexpr double kTimesteps = 1000;
    constexpr double kRounding = 5e-5;  // Half a unit of float32 below one, in timesteps, is 3e-5.
    const at::Tensor whole = (sigma.to(at::kDouble) * kTimesteps + kRounding).floor();
    return model_->Velocity(x, (whole / kTimesteps).to(sigma.scalar_type()), conditioning);
  }

  const std::unique_ptr<VelocityModel> model_;
};

}  // namespace

at::Tensor VelocityModel::Velocity(const at::Tensor& x, const at::Tensor& sigma,
                                   const Conditioning& conditioning) const {
  (at::GradMode::is_enabled() ? backward_ : forward_) += x.size(0) * passes();
  return Predict(x, sigma, conditioning);
}

std::unique_ptr<VelocityModel> MakeGuided(std::unique_ptr<VelocityModel> model, double scale,
                                          Conditioning negative) {
  return std::make_unique<Guided>(std::move(model), scale, std::move(negative));
}

std::unique_ptr<VelocityModel> MakeWholeTimesteps(std::unique_ptr<VelocityModel> model) {
  return std::make_unique<WholeTimesteps>(std::move(model));
}

}  // namespace oxbow::model
