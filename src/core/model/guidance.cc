#include "core/model/guidance.h"

#include <ATen/ATen.h>

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
    OXBOW_CHECK(conditioning.tokens.size(1) == negative_.tokens.size(1))
        << "tokens of a prompt and of the negative prompt: " << conditioning.tokens.size(1)
        << " != " << negative_.tokens.size(1);
    const int64_t rows = x.size(0);
    const auto both = [rows](const at::Tensor& negative, const at::Tensor& prompt) {
      return at::cat({BroadcastRows(negative, rows), BroadcastRows(prompt, rows)});
    };
    const at::Tensor v = model_->Velocity(at::cat({x, x}), at::cat({sigma, sigma}),
                                          {.tokens = both(negative_.tokens, conditioning.tokens),
                                           .pooled = both(negative_.pooled, conditioning.pooled)});
    const at::Tensor negative = v.narrow(0, 0, rows);
    return negative + (v.narrow(0, rows, rows) - negative) * scale_;
  }

  const std::unique_ptr<VelocityModel> model_;
  const double scale_;
  const Conditioning negative_;
};

}  // namespace

std::unique_ptr<VelocityModel> MakeGuided(std::unique_ptr<VelocityModel> model, double scale,
                                          Conditioning negative) {
  return std::make_unique<Guided>(std::move(model), scale, std::move(negative));
}

}  // namespace oxbow::model
