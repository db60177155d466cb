// SPDX-License-Identifier: Apache-2.0
#include "services/learner/publish/weights_source.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "io/tensor_torch.h"
#include "services/weights/tensor_place.h"

namespace oxbow::learner {

namespace {

// The weights of a component. Without files chunks are held.
class FilesOfModel {
 public:
  FilesOfModel(const io::DiffusersComponents& components, const std::string& component) {
    const auto found = components.find(component);
    if (found == components.end() || found->second.weights_base.empty()) return;
    auto opened = io::OpenComponentWeights(found->second);
    if (!opened.ok()) return;
    weights_.emplace(*std::move(opened));
    places_.emplace(*weights_);
  }
  FilesOfModel(const FilesOfModel&) = delete;
  FilesOfModel& operator=(const FilesOfModel&) = delete;

  std::shared_ptr<const weights::TensorPlace> Find(const std::string& name,
                                                   const io::TensorHeader& kept) {
    return places_.has_value() ? places_->Find(name, kept) : nullptr;
  }

 private:
  std::optional<io::WeightFiles> weights_;
  std::optional<weights::FilePlaces> places_;  // In the files of weights_.
};

std::shared_ptr<const weights::TensorPlace> WeightsPlaceOf(const at::Tensor& tensor,
                                                           const std::string& name,
                                                           FilesOfModel& files) {
  if (!tensor.is_cpu() || !tensor.is_contiguous()) return files.Find(name, io::HeaderOf(tensor));
  return weights::PlaceInMemory(
      {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()},
      std::make_shared<const at::Tensor>(tensor));
}

}  // namespace

TensorShapes ShapesOf(const model::NamedTensors& tensors) {
  TensorShapes shapes;
  for (const auto& [name, tensor] : tensors) shapes[name] = tensor.sizes().vec();
  return shapes;
}

weights::TensorSource FrozenSource(const model::NamedTensors& policy,
                                   const model::NamedTensors& decoder) {
  return [&policy, &decoder](const weights::UseTensor& use) {
    for (const auto& [name, tensor] : policy) use(name, io::FromTorch(tensor));
    for (const auto& [name, tensor] : decoder) {
      use(absl::StrCat(weights::kDecoderPrefix, name), io::FromTorch(tensor));
    }
  };
}

weights::PlaceOfTensor PlacesOfFrozen(const model::NamedTensors& policy,
                                      const model::NamedTensors& decoder,
                                      const io::DiffusersComponents& components) {
  const auto transformer = std::make_shared<FilesOfModel>(components, "transformer");
  const auto vae = std::make_shared<FilesOfModel>(components, "vae");
  return [&policy, &decoder, transformer,
          vae](const std::string& name) -> std::shared_ptr<const weights::TensorPlace> {
    if (const auto found = policy.find(name); found != policy.end()) {
      return WeightsPlaceOf(found->second, name, *transformer);
    }
    if (!name.starts_with(weights::kDecoderPrefix)) return nullptr;
    const std::string own = name.substr(std::string_view(weights::kDecoderPrefix).size());
    const auto found = decoder.find(own);
    return found == decoder.end() ? nullptr : WeightsPlaceOf(found->second, own, *vae);
  };
}

weights::TensorSource TrainedSource(parallel::HostCopy& trained, const TensorShapes& shapes) {
  return [&trained, &shapes](const weights::UseTensor& use) {
    int64_t begin = 0;
    for (const auto& [name, shape] : shapes) {
      const int64_t length = c10::multiply_integers(shape);
      io::TensorBytes bytes{.dtype = io::DType::kF32, .shape = shape, .data = {}};
      bytes.data.resize(static_cast<size_t>(length) * sizeof(float));
      trained.Read(begin, std::span<float>(reinterpret_cast<float*>(bytes.data.data()),
                                           static_cast<size_t>(length)));
      begin += length;
      trained.Release(begin);
      use(name, bytes);
    }
  };
}

}  // namespace oxbow::learner
