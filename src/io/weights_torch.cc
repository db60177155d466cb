#include "io/weights_torch.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "io/tensor_torch.h"

namespace oxbow::io {
namespace {

// NaN and infinity propagate into one of the two.
bool AllFinite(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return true;
  const auto [low, high] = at::aminmax(tensor);
  return std::isfinite(low.item<double>()) && std::isfinite(high.item<double>());
}

absl::StatusOr<at::Tensor> Loaded(const TensorHeader& header, std::string_view bytes,
                                  const std::optional<DType>& floats_as) {
  at::Tensor tensor = CopyOf(header.dtype, header.shape, bytes);
  if (!tensor.is_floating_point()) return tensor;
  if (!AllFinite(tensor)) return absl::DataLossError("holds NaN or infinity");
  if (!floats_as.has_value() || *floats_as == header.dtype) return tensor;
  tensor = tensor.to(ScalarTypeOf(*floats_as));
  if (WidthOf(*floats_as) <= WidthOf(header.dtype) && !AllFinite(tensor)) {
    return absl::FailedPreconditionError(absl::StrCat("values too large for ", NameOf(*floats_as),
                                                      ", load it as ", NameOf(header.dtype)));
  }
  return tensor;
}

}  // namespace

absl::StatusOr<std::map<std::string, at::Tensor>> LoadTensors(const WeightFiles& files,
                                                              const TensorLoading& loading) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, header] : files.headers()) {
    if (loading.wanted && !loading.wanted(name)) continue;
    auto tensor = Loaded(header, files.BytesOf(name), loading.floats_as);
    files.Release(name);  // Or a model would be in memory twice at the end.
    if (!tensor.ok()) {
      return Annotate(tensor.status(), absl::StrCat(files.FileOf(name), ": tensor '", name, "'"));
    }
    tensors.emplace_hint(tensors.end(), name, *std::move(tensor));
  }
  return tensors;
}

}  // namespace oxbow::io
