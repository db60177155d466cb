// SPDX-License-Identifier: Apache-2.0
#include "core/model/velocity_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <limits>
#include <utility>

#include "base/check.h"
#include "core/model/device_memory.h"
#include "core/model/host_inputs.h"
#include "core/model/layers.h"
#include "core/model/offloaded_weights.h"
#include "core/model/recompute.h"

namespace oxbow::model {
namespace {

// v with the norm of `like` in each token: all channels of p x p latents.
at::Tensor WithNormOf(const at::Tensor& like, const at::Tensor& v, int64_t p) {
  const int64_t width = v.size(3) / p;
  const auto tokens = [&](const at::Tensor& x) {  // [B, C, h, p, w, p]
    return x.reshape({x.size(0), x.size(1), -1, p, width, p});
  };
  const auto norm = [&](const at::Tensor& x) {
    return tokens(x).square().sum({1, 3, 5}, /*keepdim=*/true).sqrt();
  };
  return (tokens(v) * (norm(like) / norm(v))).reshape(v.sizes());
}

class Guided final : public VelocityModel {
 public:
  Guided(std::unique_ptr<VelocityModel> model, double scale, Conditioning negative,
         int64_t norm_patch, std::optional<Tensors> apart)
      : model_(std::move(model)),
        scale_(scale),
        negative_(std::move(negative)),
        norm_patch_(norm_patch),
        apart_(std::move(apart)) {
    OXBOW_CHECK(!negative_.empty()) << "guidance without a negative prompt";
  }

 private:
  int64_t passes() const override { return 2; }

  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const Conditioning& conditioning) const override {
    CheckSizes(conditioning);
    const int64_t rows = x.size(0);
    const at::Device device = negative_.begin()->second.device();
    const at::Tensor there = x.to(device);
    const at::Tensor level = sigma.to(device);
    const Conditioning nothing = BroadcastRows(negative_, rows);
    const Conditioning prompt = BroadcastRows(MovedTo(conditioning, device), rows);
    at::Tensor negative, prompted;
    if (apart_.has_value()) {
      negative = Half(there, level, nothing);
      prompted = Half(there, level, prompt);
    } else {
      const at::Tensor v = model_->Velocity(at::cat({there, there}), at::cat({level, level}),
                                            ConcatRows({nothing, prompt}));
      negative = v.narrow(0, 0, rows);
      prompted = v.narrow(0, rows, rows);
    }
    const at::Tensor guided = negative + (prompted - negative) * scale_;
    return (norm_patch_ == 0 ? guided : WithNormOf(prompted, guided, norm_patch_)).to(x.device());
  }

  // Keeps nothing but its inputs.
  at::Tensor Half(const at::Tensor& x, const at::Tensor& sigma, const Conditioning& prompt) const {
    const Segment segment = [this, prompt](const Tensors& in) -> Tensors {
      return {model_->Velocity(in[0], in[1], prompt)};
    };
    return Recomputed(segment, {x, sigma}, {.leaves = *apart_, .hold = nullptr})[0];
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
  const int64_t norm_patch_;
  const std::optional<Tensors> apart_;
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

class Bounded final : public VelocityModel {
 public:
  Bounded(std::unique_ptr<VelocityModel> model, int64_t rows_max)
      : model_(std::move(model)),
        rows_max_(rows_max > 0 ? rows_max : std::numeric_limits<int64_t>::max()) {}

 private:
  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const Conditioning& conditioning) const override {
    const int64_t rows = x.size(0);
    if (at::GradMode::is_enabled()) return model_->Velocity(x, sigma, conditioning);
    return InPortions(rows, rows_max_, "the network", [&](int64_t first, int64_t count) {
      if (count == rows) return model_->Velocity(x, sigma, conditioning);
      return model_->Velocity(x.narrow(0, first, count), sigma.narrow(0, first, count),
                              NarrowRows(BroadcastRows(conditioning, rows), first, count));
    });
  }

  const std::unique_ptr<VelocityModel> model_;
  mutable std::atomic<int64_t> rows_max_;
};

class Offloaded final : public VelocityModel {
 public:
  Offloaded(std::unique_ptr<VelocityModel> model, OffloadedWeights& weights)
      : model_(std::move(model)), weights_(weights) {}

 private:
  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const Conditioning& conditioning) const override {
    weights_.BringRest();
    return model_->Velocity(x, sigma, conditioning);
  }

  const std::unique_ptr<VelocityModel> model_;
  OffloadedWeights& weights_;
};

class InputsOnHost final : public VelocityModel {
 public:
  InputsOnHost(std::unique_ptr<VelocityModel> model, at::Device device)
      : model_(std::move(model)), inputs_(std::make_shared<HostInputs>(device)) {}

 private:
  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const Conditioning& conditioning) const override {
    const HostInputs::Scope scope(inputs_);
    return model_->Velocity(x, sigma, conditioning);
  }

  const std::unique_ptr<VelocityModel> model_;
  const std::shared_ptr<HostInputs> inputs_;
};

}  // namespace

at::Tensor VelocityModel::Velocity(const at::Tensor& x, const at::Tensor& sigma,
                                   const Conditioning& conditioning) const {
  (at::GradMode::is_enabled() ? backward_ : forward_) += x.size(0) * passes();
  return Predict(x, sigma, conditioning);
}

std::unique_ptr<VelocityModel> MakeGuided(std::unique_ptr<VelocityModel> model, double scale,
                                          Conditioning negative, int64_t norm_patch,
                                          std::optional<std::vector<at::Tensor>> apart) {
  return std::make_unique<Guided>(std::move(model), scale, std::move(negative), norm_patch,
                                  std::move(apart));
}

std::unique_ptr<VelocityModel> MakeInputsOnHost(std::unique_ptr<VelocityModel> model,
                                                at::Device device) {
  return std::make_unique<InputsOnHost>(std::move(model), device);
}

std::unique_ptr<VelocityModel> MakeBounded(std::unique_ptr<VelocityModel> model, int64_t rows_max) {
  return std::make_unique<Bounded>(std::move(model), rows_max);
}

std::unique_ptr<VelocityModel> MakeOffloaded(std::unique_ptr<VelocityModel> model,
                                             OffloadedWeights& weights) {
  return std::make_unique<Offloaded>(std::move(model), weights);
}

std::unique_ptr<VelocityModel> MakeWholeTimesteps(std::unique_ptr<VelocityModel> model) {
  return std::make_unique<WholeTimesteps>(std::move(model));
}

}  // namespace oxbow::model
