// SPDX-License-Identifier: Apache-2.0
#include "services/weights/probe.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "base/sha256.h"
#include "base/status_macros.h"

namespace oxbow::weights {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kLeadingOutputs = 64;
// Subject of the probe's streams; group ids never come near it.
constexpr uint64_t kProbeSubject = 0x70726f6265000000u;

at::Tensor Noise(uint64_t seed, uint32_t input, at::IntArrayRef shape) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  RandomStream(StreamKey{.seed = seed, .group = kProbeSubject, .sample = input})
      .FillNormal(std::span(tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())));
  return tensor;
}

// Row by row what a prompt's encoding could be: noise, and a mask under which all tokens count.
model::Conditioning ProbeConditioning(const ProbeShape& shape, uint64_t seed) {
  model::Conditioning conditioning;
  uint32_t input = 0;  // The latents' number.
  for (const model::ConditioningPart& part : shape.parts) {
    ++input;
    const std::vector<int64_t> size = model::ShapeOf(part, kRows, shape.tokens);
    conditioning[part.name] = part.values == model::ConditioningPart::Values::kMask
                                  ? at::ones(size, at::kFloat)
                                  : Noise(seed, input, size);
  }
  return conditioning;
}

}  // namespace

absl::StatusOr<ProbeShape> ProbeShapeOf(const model::Architecture& architecture,
                                        const std::vector<int64_t>& latent_shape,
                                        const model::Conditioning& negative) {
  OXBOW_RETURN_IF_ERROR(model::CheckDimensions(architecture.latent(), latent_shape));
  ProbeShape shape{.latent = latent_shape, .parts = architecture.conditioning()};
  shape.tokens = model::PromptLengthOf(shape.parts, negative, /*absent=*/shape.tokens);
  return shape;
}

v1::SnapshotManifest::Probe RunProbe(const model::VelocityModel& model, const ProbeShape& shape,
                                     uint64_t seed, double tolerance) {
  const c10::InferenceMode inference;
  std::vector<int64_t> batch = {kRows};
  batch.insert(batch.end(), shape.latent.begin(), shape.latent.end());
  const at::Tensor sigma = at::tensor({1.0f, 0.5f, 0.125f});
  const at::Tensor output =
      model.Velocity(Noise(seed, 0, batch), sigma, ProbeConditioning(shape, seed))
          .to(at::kCPU)
          .contiguous();

  v1::SnapshotManifest::Probe probe;
  probe.set_seed(seed);
  probe.set_digest(Sha256(std::string_view(static_cast<const char*>(output.data_ptr()),
                                           static_cast<size_t>(output.nbytes()))));
  const float* values = output.data_ptr<float>();
  probe.mutable_outputs()->Add(values, values + std::min(output.numel(), kLeadingOutputs));
  probe.set_tolerance(tolerance);
  return probe;
}

ProbeComparison CompareProbes(const v1::SnapshotManifest::Probe& expected,
                              const v1::SnapshotManifest::Probe& actual) {
  ProbeComparison comparison{.bits_equal = expected.digest() == actual.digest()};
  const int count = expected.outputs_size();
  if (count == 0 || count != actual.outputs_size()) {
    comparison.difference_max = std::numeric_limits<double>::infinity();
    return comparison;
  }
  for (int i = 0; i < count; ++i) {
    const double difference = std::abs(double{expected.outputs(i)} - double{actual.outputs(i)});
    // NaN compares false with everything; it must count as the largest difference.
    if (!(difference <= comparison.difference_max)) comparison.difference_max = difference;
    if (std::isnan(difference)) {
      comparison.difference_max = std::numeric_limits<double>::infinity();
      break;
    }
  }
  return comparison;
}

absl::Status JudgeProbe(const v1::SnapshotManifest::Probe& expected,
                        const ProbeComparison& comparison) {
  const bool finite = std::isfinite(comparison.difference_max);
  if (finite && (comparison.bits_equal || comparison.difference_max <= expected.tolerance())) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat("probe differs from the learner's: ", comparison.difference_max, ", tolerance ",
                   expected.tolerance()));
}

}  // namespace oxbow::weights
