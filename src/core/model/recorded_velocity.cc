// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "core/model/cuda_graphs.h"
#include "core/model/layers.h"

namespace oxbow::model {
namespace {

// Sizes of latents and of each part of the conditioning, which decide all sizes within.
using ShapeKey = std::vector<int64_t>;

ShapeKey KeyOf(const at::Tensor& x, const Conditioning& conditioning) {
  ShapeKey key = x.sizes().vec();
  for (const auto& [name, part] : conditioning) {
    key.insert(key.end(), part.sizes().begin() + 1, part.sizes().end());
  }
  return key;
}

class RecordedStep final : public VelocityModel {
 public:
  RecordedStep(std::unique_ptr<VelocityModel> model, std::vector<at::Tensor> weights,
               std::shared_ptr<GraphRecorder> recorder, size_t recordings_max)
      : model_(std::move(model)),
        weights_(std::move(weights)),
        recorder_(std::move(recorder)),
        recordings_max_(recordings_max) {
    OXBOW_CHECK(!weights_.empty() && recordings_max_ > 0) << weights_.size() << " weights";
  }

 private:
  struct Recording {
    at::Tensor x, sigma;  // Inputs of a replay, on the device.
    Conditioning conditioning;
    std::unique_ptr<RecordedWork> work;
    uint64_t used = 0;  // Larger is later.
  };

  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const Conditioning& conditioning) const override {
    OXBOW_CHECK(!at::GradMode::is_enabled()) << "a recorded forward pass has no backward pass";
    if (gave_up_) return model_->Velocity(x, sigma, conditioning);
    Recording& recording = RecordingFor(x, conditioning);
    Fill(recording, x, sigma, conditioning);
    if (recording.work == nullptr && !Record(recording)) {
      return model_->Velocity(x, sigma, conditioning);
    }
    return recording.work->Replay().to(x.device(), at::kFloat, /*non_blocking=*/false,
                                       /*copy=*/true);
  }

  // False: it could not, and `recording` is gone.
  bool Record(Recording& recording) const {
    // Tensors of inference could not be written by a caller without its mode.
    const c10::InferenceMode outlive_the_caller(false);
    const at::NoGradGuard no_grad;
    try {
      recording.work = recorder_->Record([this, &recording] {
        return model_->Velocity(recording.x, recording.sigma, recording.conditioning);
      });
      return true;
    } catch (const std::exception& error) {
      if (!recorder_->optional) throw;
      OXBOW_LOG(Warning) << "a forward pass could not be recorded, and its kernels are launched "
                            "one by one (model.cuda_graphs)"
                         << Field("error", error.what());
    }
    gave_up_ = true;
    recordings_.clear();
    return false;
  }

  // That of these shapes; without its work if that was never recorded, or the attempt failed.
  Recording& RecordingFor(const at::Tensor& x, const Conditioning& conditioning) const {
    std::vector<const void*> addresses = AddressesOfWeights();
    if (addresses != addresses_) {
      recordings_.clear();
      addresses_ = std::move(addresses);
    }
    const ShapeKey key = KeyOf(x, conditioning);
    auto found = recordings_.find(key);
    if (found == recordings_.end()) {
      MakeRoom();
      found = recordings_.emplace(key, Empty(x, conditioning)).first;
    }
    found->second.used = ++uses_;
    return found->second;
  }

  void MakeRoom() const {
    if (recordings_.size() < recordings_max_) return;
    recordings_.erase(std::min_element(
        recordings_.begin(), recordings_.end(),
        [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  }

  Recording Empty(const at::Tensor& x, const Conditioning& conditioning) const {
    const c10::InferenceMode outlive_the_caller(false);
    const auto rows_of = [&](const at::Tensor& input) {
      std::vector<int64_t> shape = input.sizes().vec();
      shape[0] = x.size(0);
      return at::empty(shape, input.options().device(weights_.front().device()));
    };
    Recording recording{
        .x = rows_of(x),
        .sigma = at::empty({x.size(0)}, x.options().device(weights_.front().device()))};
    for (const auto& [name, part] : conditioning) recording.conditioning[name] = rows_of(part);
    return recording;
  }

  static void Fill(Recording& recording, const at::Tensor& x, const at::Tensor& sigma,
                   const Conditioning& conditioning) {
    const int64_t rows = x.size(0);
    recording.x.copy_(x);
    recording.sigma.copy_(BroadcastRows(sigma, rows));
    for (auto& [name, part] : recording.conditioning) {
      const at::Tensor& given = conditioning.at(name);
      if (given.size(0) == rows) {
        part.copy_(given);
      } else {  // A row that all share travels once.
        part.copy_(BroadcastRows(given.to(part.device()), rows));
      }
    }
  }

  std::vector<const void*> AddressesOfWeights() const {
    std::vector<const void*> addresses;
    addresses.reserve(weights_.size());
    for (const at::Tensor& weight : weights_) addresses.push_back(weight.const_data_ptr());
    return addresses;
  }

  const std::unique_ptr<VelocityModel> model_;
  const std::vector<at::Tensor> weights_;
  const std::shared_ptr<GraphRecorder> recorder_;
  const size_t recordings_max_;

  // A forward pass is the same to its caller whether it was recorded before or not.
  mutable std::map<ShapeKey, Recording> recordings_;
  mutable std::vector<const void*> addresses_;  // The weights' addresses, for all recordings.
  mutable uint64_t uses_ = 0;
  mutable bool gave_up_ = false;
};

}  // namespace

std::unique_ptr<VelocityModel> MakeRecorded(std::unique_ptr<VelocityModel> model,
                                            std::vector<at::Tensor> weights,
                                            std::shared_ptr<GraphRecorder> recorder,
                                            size_t recordings_max) {
  return std::make_unique<RecordedStep>(std::move(model), std::move(weights), std::move(recorder),
                                        recordings_max);
}

}  // namespace oxbow::model
