#include "services/weights/probe.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
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

absl::StatusOr<int64_t> Width(const nlohmann::json& config, const char* key) {
  if (!config.is_object() || !config.contains(key) || !config[key].is_number_integer()) {
    return absl::InvalidArgumentError(absl::StrCat("transformer config has no number: ", key));
  }
  return config[key].get<int64_t>();
}

}  // namespace

absl::StatusOr<ProbeShape> ProbeShapeOf(const std::string& transformer_config_json,
                                        const std::vector<int64_t>& latent_shape) {
  const nlohmann::json config =
      nlohmann::json::parse(transformer_config_json, nullptr, /*allow_exceptions=*/false);
  if (latent_shape.size() != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("latent shape is not [C, H, W]: ", latent_shape.size(), " dimensions"));
  }
  ProbeShape shape{.latent = latent_shape};
  OXBOW_ASSIGN_OR_RETURN(shape.token_width, Width(config, "joint_attention_dim"));
  OXBOW_ASSIGN_OR_RETURN(shape.pooled_width, Width(config, "pooled_projection_dim"));
  return shape;
}

v1::SnapshotManifest::Probe RunProbe(const model::VelocityModel& model, const ProbeShape& shape,
                                     uint64_t seed, double tolerance) {
  const c10::InferenceMode inference;
  std::vector<int64_t> batch = {kRows};
  batch.insert(batch.end(), shape.latent.begin(), shape.latent.end());
  const model::Conditioning conditioning{Noise(seed, 1, {kRows, shape.tokens, shape.token_width}),
                                         Noise(seed, 2, {kRows, shape.pooled_width})};
  const at::Tensor sigma = at::tensor({1.0f, 0.5f, 0.125f});
  const at::Tensor output =
      model.Velocity(Noise(seed, 0, batch), sigma, conditioning).to(at::kCPU).contiguous();

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
    // NaN compares false with everything; it must count as the largest
    // difference.
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
